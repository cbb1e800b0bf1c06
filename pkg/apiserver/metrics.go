// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // what is asked of the cluster

	"github.com/sandlot-io/sandlot/pkg/version"
)

var (
	feedLists = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "sandlot",
		Name:      "feed_lists_total",
		Help: "How often the allocator read all objects of a resource: once at the start, and again " +
			"whenever its watch could not continue.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"resource"})

	buildInfo = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace:      "sandlot",
		Name:           "build_info",
		Help:           "1, with the version of Sandlot that runs.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"version"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(feedLists, buildInfo)
		buildInfo.WithLabelValues(version.Get()).Set(1)
	})
)
