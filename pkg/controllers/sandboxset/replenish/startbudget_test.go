// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestScalingLimited: sandboxes that fail to start use up scaleStrategy.maxUnavailable,
// and healthy ones that are starting do not.
func TestScalingLimited(t *testing.T) {
	const long, short = 51 * time.Second, 49 * time.Second
	pending := func(name string, age time.Duration, reason string) builder {
		return notReadyFor(name, age, reason, "").age(age)
	}
	failed := func(name string) builder { return pending(name, time.Second, v1alpha1.ReasonStartContainerFailed) }
	young := []builder{pending("a", short, ""), pending("b", short, ""), pending("c", short, "")}
	gatedFor := func(name string, status metav1.ConditionStatus, since time.Duration) builder {
		return pending(name, time.Hour, corev1.PodReasonSchedulingGated).gated(status, since)
	}
	limit := func(n int32) func(*v1alpha1.SandboxSet) { return scaleLimit(intstr.FromInt32(n)) }
	tests := map[string]struct {
		set    *v1alpha1.SandboxSet
		pool   []builder
		create int
		told   string
		next   time.Duration
	}{
		"no limit": {set: makeSet(10), create: 10, told: "False StartupBudgetAvailable: 0 of 1 startup slots are blocked: Timeout=0, Failed=0"},
		"healthy ones start": {
			set: makeSet(10, limit(2)), pool: young, create: 2, next: time.Second,
			told: "False StartupBudgetAvailable: 0 of 2 startup slots are blocked: Timeout=0, Failed=0",
		},
		"one cannot start": {
			set: makeSet(10, limit(2)), pool: append([]builder{failed("x")}, young...), create: 1, next: time.Second,
			told: "False StartupBudgetAvailable: 1 of 2 startup slots are blocked: Timeout=0, Failed=1",
		},
		"one was restarted": {
			set: makeSet(10, limit(2)), pool: []builder{pending("x", time.Second, v1alpha1.ReasonContainerRestarted).phase(v1alpha1.SandboxRunning)}, create: 1,
			told: "False StartupBudgetAvailable: 1 of 2 startup slots are blocked: Timeout=0, Failed=1",
		},
		"no pod could be made": {
			set: makeSet(10, limit(1)), pool: []builder{pending("x", time.Second, v1alpha1.ReasonPodCreateFailed)},
			told: "True StartupBudgetExhausted: 1 of 1 startup slots are blocked: Timeout=0, Failed=1",
		},
		"one is pending too long": {
			set: makeSet(10, limit(2)), pool: []builder{pending("x", long, v1alpha1.ReasonUnschedulable), failed("y")},
			told: "True StartupBudgetExhausted: 2 of 2 startup slots are blocked: Timeout=1, Failed=1",
		},
		"one has run": {
			set: makeSet(10, limit(2)), pool: []builder{pending("x", long, "PodReady").phase(v1alpha1.SandboxRunning)}, create: 2,
			told: "False StartupBudgetAvailable: 0 of 2 startup slots are blocked: Timeout=0, Failed=0",
		},
		"behind a gate": {
			set: makeSet(10, limit(1)), pool: []builder{gatedFor("x", metav1.ConditionTrue, time.Hour)}, create: 1,
			told: "False StartupBudgetAvailable: 0 of 1 startup slots are blocked: Timeout=0, Failed=0",
		},
		"gates removed": {
			set: makeSet(10, limit(1)), pool: []builder{gatedFor("x", metav1.ConditionFalse, short)}, create: 1, next: time.Second,
			told: "False StartupBudgetAvailable: 0 of 1 startup slots are blocked: Timeout=0, Failed=0",
		},
		"a percentage": {
			set: makeSet(10, scaleLimit(intstr.FromString("15%"))), pool: []builder{failed("x")}, create: 1,
			told: "False StartupBudgetAvailable: 1 of 2 startup slots are blocked: Timeout=0, Failed=1",
		},
		"held": {set: makeSet(10, limit(0)), told: "False StartupBudgetAvailable: 0 of 1 startup slots are blocked: Timeout=0, Failed=0"},
		"no limit, some fail": {
			set: makeSet(10), pool: []builder{failed("x"), available("y")}, create: 8,
			told: "False StartupBudgetAvailable: 1 of 2 startup slots are blocked: Timeout=0, Failed=1",
		},
		"no limit, all fail": {
			set: makeSet(10), pool: []builder{failed("x"), failed("y")}, create: 8,
			told: "True StartupBudgetExhausted: 2 of 2 startup slots are blocked: Timeout=0, Failed=2",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := &observation{set: tc.set, target: targetOf(current), now: epoch, maxPending: DefaultMaxPendingTimeout}
			o.pool.sandboxes = sandboxes(tc.pool...)
			c := o.count()
			p, err := o.plan(&c, delays{})
			if err != nil {
				t.Fatal(err)
			}
			status := builderOf(o).build()
			told := meta.FindStatusCondition(status.Conditions, v1alpha1.SetConditionScalingLimited)
			if diff := cmp.Diff(tc.told, fmt.Sprintf("%s %s: %s", told.Status, told.Reason, told.Message)); diff != "" {
				t.Errorf("ScalingLimited (-want +got):\n%s", diff)
			}
			if next := c.blocked.requeueAfter; p.create != tc.create || next != tc.next {
				t.Errorf("creates %d and looks again after %s, want %d and %s", p.create, next, tc.create, tc.next)
			}
		})
	}
}

// TestUnseenCreatesUseUpTheBudget: what the cache does not show yet may fail as well.
func TestUnseenCreatesUseUpTheBudget(t *testing.T) {
	o := &observation{set: makeSet(10, scaleLimit(intstr.FromInt32(3))), target: targetOf(current), now: epoch}
	o.pool.expectedCreates = map[types.UID]string{"a": current, "b": current}
	c := o.count()
	if p, err := o.plan(&c, delays{}); err != nil || p.create != 1 {
		t.Errorf("creates %d, %v", p.create, err)
	}
}

func TestClampPendingTimeout(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{
		-time.Second: 15 * time.Second, 0: 15 * time.Second, time.Minute: time.Minute, 2 * time.Hour: 3590 * time.Second,
	} {
		if got := clampPendingTimeout(given); got != want {
			t.Errorf("%s is taken for %s, want %s", given, got, want)
		}
	}
}
