// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	refusedWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "sandlot",
		Name:      "refused_writes_total",
		Help: "Writes that were refused or put off because of their bytes, by the budget that was spent: " +
			"namespace, user, or store where etcd is nearly full.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"budget"})

	usedRatio = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: "sandlot",
		Name:      "store_used_ratio",
		Help: "Estimated fraction of etcd's storage quota that is used, from 0 to 1. Half of the free space in the database file " +
			"counts as used, and more when the file is close to the quota. 0 if etcd does not report its quota.",
		StabilityLevel: metrics.ALPHA,
	})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(refusedWrites, usedRatio)
		for _, budget := range []string{BudgetNamespace, BudgetUser, BudgetStore} {
			refusedWrites.WithLabelValues(budget) // shown before the first one
		}
	})
)
