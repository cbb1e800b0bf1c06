// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package reencryption

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	pending = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: "sandlot", Subsystem: "encryption", Name: "rewrite_pending",
		Help:           "1 while something that is stored may be encrypted with another key than new values, or not at all, and 0 when nothing is.",
		StabilityLevel: metrics.ALPHA,
	})
	rewrites = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: "sandlot", Subsystem: "encryption", Name: "rewrites_total",
		Help:           "How many values this server has encrypted anew because they were encrypted with another key than new ones, or not at all.",
		StabilityLevel: metrics.ALPHA,
	})
	unreadable = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: "sandlot", Subsystem: "encryption", Name: "unreadable_values",
		Help:           "How many values could not be decrypted by the last pass of this server through all of the store, for example because their key is not configured.",
		StabilityLevel: metrics.ALPHA,
	})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(pending, rewrites, unreadable) })
)
