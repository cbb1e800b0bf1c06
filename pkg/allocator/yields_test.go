// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func withBurst(set *v1alpha1.SandboxSet) { set.Spec.ScaleStrategy.Burst = new(int32(5)) }

// TestWhoLetsOthersPass: a claim for all or nothing is queued for what its sets may
// come to hold. They grow for one that waits, not for one that has sandboxes made, also
// if it cannot have any.
func TestWhoLetsOthersPass(t *testing.T) {
	waits, as := func(*v1alpha1.SandboxClaim) {}, func(*v1alpha1.SandboxSet) {}
	onItsWay := func(set *v1alpha1.SandboxSet) { set.DeletionTimestamp = new(metav1.NewTime(birth)) }
	noBurst := func(set *v1alpha1.SandboxSet) { set.Spec.ScaleStrategy.Burst = nil }
	tests := map[string]struct {
		replicas int32
		change   func(*v1alpha1.SandboxClaim)
		set      func(*v1alpha1.SandboxSet)
		want     bool
	}{
		"as many as it grows to":       {7, waits, as, false},
		"more than that":               {8, waits, as, true},
		"as many as it is to hold":     {2, waits, onItsWay, false},
		"more than a set that goes":    {3, waits, onItsWay, true},
		"as many as without any burst": {2, waits, noBurst, false},
		"more than without any burst":  {3, waits, noBurst, true},
		"as many as are there":         {2, orFresh, as, false},
		"more, with no fresh ones":     {3, orFresh, as, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, setOf("a", "py", withBurst, tc.set)) // there is no template py
			p := d.planned(d.nextAttempt(func(c *v1alpha1.SandboxClaim) {
				warm(tc.replicas)(c)
				tc.change(c)
				c.Spec.Allocation = v1alpha1.AllocationAllOrNothing
			}))
			if !p.Wants.AtOnce || p.Wants.Yields != tc.want {
				t.Errorf("wants %+v", p.Wants)
			}
		})
	}
}
