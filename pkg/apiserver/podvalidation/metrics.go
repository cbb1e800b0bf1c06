// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var gateState = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace: "sandlot",
	Name:      "pod_dry_runs",
	Help: "1 for how pods of sets and templates are judged by the cluster, in dry runs: on, off (the API server " +
		"may not create pods), or unguarded (it may, and nothing holds it to dry runs, so it does not ask).",
	StabilityLevel: metrics.ALPHA,
}, []string{"state"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(gateState) })

func observeGate(now GateState) {
	registerMetrics()
	for _, state := range []GateState{GateOff, GateUnguarded, GateOn} {
		value := 0.0
		if state == now {
			value = 1
		}
		gateState.WithLabelValues(string(state)).Set(value)
	}
}
