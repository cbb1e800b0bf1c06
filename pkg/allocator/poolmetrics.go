// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

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
	// maxMeasuredPools is how many pools have figures of their own, in all and of one
	// namespace. Sets and namespaces are their users' to make, and each one that is
	// measured costs a Prometheus some 30 series.
	maxMeasuredPools            = 100
	maxMeasuredPoolsOfNamespace = 20
	// idleMeasured is how long a pool keeps its figures against one that is claimed from.
	idleMeasured = 10 * time.Minute
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
		poolClaims.WithLabelValues(outcomeBound, otherPools, otherPools).Add(0)
		poolClaimDuration.WithLabelValues(otherPools, otherPools)
	})

	measuredPools = measured{places: map[types.NamespacedName]time.Time{}, of: map[string]int{}}
)

// measured is which pools have figures of their own: those that were claimed from
// first, and have been since. A set or a namespace more costs no series more when all
// places are taken.
type measured struct {
	mu     sync.Mutex
	places map[types.NamespacedName]time.Time // when each was last claimed from
	of     map[string]int                     // how many a namespace has, but for its otherPools
}

// observe counts how the create of a claim went.
func (m *measured) observe(pool types.NamespacedName, outcome string, took time.Duration, now time.Time) {
	m.mu.Lock() // held until it is counted: what is evicted does not come back
	defer m.mu.Unlock()
	pool = m.place(pool, now)
	poolClaims.WithLabelValues(outcome, pool.Namespace, pool.Name).Inc()
	if outcome == outcomeBound {
		poolClaimDuration.WithLabelValues(pool.Namespace, pool.Name).Observe(took.Seconds())
	}
}

// place returns the name under which a pool is counted.
func (m *measured) place(pool types.NamespacedName, now time.Time) types.NamespacedName {
	if _, has := m.places[pool]; !has {
		if pool.Name != otherPools && m.of[pool.Namespace] >= maxMeasuredPoolsOfNamespace && !m.evict(pool.Namespace, now) {
			return m.place(types.NamespacedName{Namespace: pool.Namespace, Name: otherPools}, now)
		}
		if len(m.places) >= maxMeasuredPools && !m.evict("", now) {
			return types.NamespacedName{Namespace: otherPools, Name: otherPools}
		}
		if pool.Name != otherPools {
			m.of[pool.Namespace]++
		}
	}
	m.places[pool] = now
	return pool
}

// evict takes its figures from the pool that has been idle for longest, of a namespace
// or of all, and reports whether one has been for long enough.
func (m *measured) evict(in string, now time.Time) bool {
	var idle types.NamespacedName
	since := now.Add(-idleMeasured)
	for pool, used := range m.places {
		if used.Before(since) && (in == "" || pool.Namespace == in && pool.Name != otherPools) {
			idle, since = pool, used
		}
	}
	if idle.Name == "" {
		return false
	}
	delete(m.places, idle)
	if idle.Name != otherPools {
		if m.of[idle.Namespace]--; m.of[idle.Namespace] == 0 {
			delete(m.of, idle.Namespace)
		}
	}
	labels := map[string]string{ofPool[0]: idle.Namespace, ofPool[1]: idle.Name}
	poolClaimDuration.Delete(labels)
	for _, labels["outcome"] = range outcomes {
		poolClaims.Delete(labels)
	}
	return true
}

// namedPool is the pool that a claim names, or the only one of the template that it
// names. A name that no set has is its user's to choose, and is no pool.
func namedPool(claim *v1alpha1.SandboxClaim, sets claims.Sets) types.NamespacedName {
	asked, byRef := v1alpha1.AskedOf(claim)
	if pool := claim.Spec.WarmPool; pool != "" && pool != v1alpha1.WarmPoolDefault && pool != v1alpha1.WarmPoolNone {
		asked, byRef = pool, false
	}
	pool := types.NamespacedName{Namespace: claim.Namespace, Name: otherPools}
	if !byRef && sets.Set(claim.Namespace, asked) != nil {
		pool.Name = asked
	} else if using := sets.Using(claim.Namespace, asked); len(using) == 1 {
		pool.Name = using[0].Name
	}
	return pool
}
