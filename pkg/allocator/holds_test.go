// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func withBurst(set *v1alpha1.SandboxSet) { set.Spec.ScaleStrategy.Burst = new(int32(5)) }

func TestHolds(t *testing.T) {
	leaving := func(set *v1alpha1.SandboxSet) { set.DeletionTimestamp = new(metav1.NewTime(birth)) }
	tests := map[string]struct {
		set         *v1alpha1.SandboxSet
		as, growing int32
	}{
		"a set of 2":             {setOf("pool", ""), 2, 2},
		"with a burst of 5":      {setOf("pool", "", withBurst), 2, 7},
		"one that is on its way": {setOf("pool", "", withBurst, leaving), 2, 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if as, growing := holds(tc.set, false), holds(tc.set, true); as != tc.as || growing != tc.growing {
				t.Errorf("holds %d, and %d if it grows", as, growing)
			}
			c := &catalog{}
			c.change(tc.set)
			if got := c.replicas()[poolOf(tc.set)]; got != 2 {
				t.Errorf("is shown to want %d", got)
			}
		})
	}
}

// TestWhoLetsOthersPass: a claim for all or nothing stands in line for what its sets may
// come to hold. They grow for one that waits, not for one that has sandboxes made, also
// if it cannot have any.
func TestWhoLetsOthersPass(t *testing.T) {
	tests := map[string]struct {
		replicas int32
		change   func(*v1alpha1.SandboxClaim)
		want     bool
	}{
		"as many as it grows to":   {7, func(*v1alpha1.SandboxClaim) {}, false},
		"more than that":           {8, func(*v1alpha1.SandboxClaim) {}, true},
		"as many as are there":     {2, orFresh, false},
		"more, with no fresh ones": {3, orFresh, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, setOf("a", "py", withBurst)) // there is no template py
			j := d.job(5, func(c *v1alpha1.SandboxClaim) {
				warm(tc.replicas)(c)
				tc.change(c)
				c.Spec.Allocation = v1alpha1.AllocationAllOrNothing
			})
			if wants := j.wants(d.draft(j)); !wants.atomic || wants.yields != tc.want {
				t.Errorf("wants %+v", wants)
			}
		})
	}
}
