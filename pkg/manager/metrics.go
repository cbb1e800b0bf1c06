// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sandlot-io/sandlot/pkg/version"
)

func init() {
	metrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "sandlot_build_info",
		Help:        "1, with the version of Sandlot that runs.",
		ConstLabels: prometheus.Labels{"version": version.Get()},
	}, func() float64 { return 1 }))
}
