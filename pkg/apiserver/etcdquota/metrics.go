// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	rejectedWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      "sandlot",
		Name:           "rejected_writes_total",
		Help:           "Number of writes rejected because a write limit was exceeded, by scope: namespace, user, or etcd or memory (nearly full).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"scope"})

	usedRatio = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: "sandlot",
		Name:      "etcd_quota_used_ratio",
		Help: "Estimated fraction of etcd's storage quota that is used, from 0 to 1. Half of the free space in the database file " +
			"counts as used, and more when the file is close to the quota. 0 if etcd does not report its quota.",
		StabilityLevel: metrics.ALPHA,
	})

	memoryUsedRatio = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: "sandlot",
		Name:      "memory_limit_used_ratio",
		Help: "Fraction of Go's memory limit (GOMEMLIMIT) that was in use in the heap after the last garbage collection. " +
			"Requests in flight count. 0 if there is no limit.",
		StabilityLevel: metrics.ALPHA,
	})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(rejectedWrites, usedRatio, memoryUsedRatio)
		for _, scope := range []string{ScopeNamespace, ScopeUser, ScopeEtcd, ScopeMemory} {
			rejectedWrites.WithLabelValues(scope) // shown before the first one
		}
	})
)
