// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

const (
	// otherPools in a label stands for all that has no figures of its own. No
	// namespace and no set can be called that.
	otherPools = "_other"
)

var (
	poolClaims = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      namespace,
		Name:           "pool_claims_total",
		Help:           "Creates of claims by the pool that they name and by outcome. Pools beyond the first 100, or 20 of a namespace, are counted as _other.",
		StabilityLevel: metrics.ALPHA,
	}, append([]string{"outcome"}, ofPool...))

	poolClaimDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace:      namespace,
		Name:           "pool_claim_duration_seconds",
		Help:           "Time that the create of a bound claim spent on binding, by the pool that it names. Pools beyond the first 100, or 20 of a namespace, are counted as _other.",
		Buckets:        []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60},
		StabilityLevel: metrics.ALPHA,
	}, ofPool)

	registerPoolMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(poolClaims, poolClaimDuration)
		poolClaims.WithLabelValues(OutcomeBound, otherPools, otherPools).Add(0)
		poolClaimDuration.WithLabelValues(otherPools, otherPools)
	})

	measuredPools = newMeasured(otherPools, func(pool types.NamespacedName, _ bool) {
		labels := map[string]string{ofPool[0]: pool.Namespace, ofPool[1]: pool.Name}
		poolClaimDuration.Delete(labels)
		for _, labels["outcome"] = range outcomes {
			poolClaims.Delete(labels)
		}
	})
)

// observePool counts how the create of a claim on a pool went.
func observePool(m *measured, pool types.NamespacedName, outcome string, took time.Duration, now time.Time) {
	m.count(pool, now, func(pool types.NamespacedName) {
		poolClaims.WithLabelValues(outcome, pool.Namespace, pool.Name).Inc()
		if outcome == OutcomeBound {
			poolClaimDuration.WithLabelValues(pool.Namespace, pool.Name).Observe(took.Seconds())
		}
	})
}

// namedPool is the pool that a claim names, or the only one of the template that it
// names. A name that no set has is its user's to choose, and is no pool.
func namedPool(claim *v1alpha1.SandboxClaim, sets claims.Sets) types.NamespacedName {
	asked, byRef := v1alpha1.AskedOf(claim)
	if pool := claim.Spec.WarmPool; pool != "" && pool != v1alpha1.WarmPoolDefault && pool != v1alpha1.WarmPoolNone {
		asked, byRef = pool, false
	}
	if ref := claim.Spec.WarmPoolRef; ref != nil {
		asked, byRef = ref.Name, false
	}
	pool := types.NamespacedName{Namespace: claim.Namespace, Name: otherPools}
	if !byRef && sets.Set(claim.Namespace, asked) != nil {
		pool.Name = asked
	} else if using := sets.Using(claim.Namespace, asked); len(using) == 1 {
		pool.Name = using[0].Name
	}
	return pool
}
