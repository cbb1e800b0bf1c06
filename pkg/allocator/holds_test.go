// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A claim for all or nothing stands in line for what its sets may come to hold: with
// a burst they grow for it.
func TestHolds(t *testing.T) {
	set := &v1alpha1.SandboxSet{}
	set.Spec.Replicas = new(int32(2))
	if got := holds(set); got != 2 {
		t.Errorf("a set of 2 holds %d", got)
	}
	set.Spec.ScaleStrategy.Burst = new(int32(5))
	if got := holds(set); got != 7 {
		t.Errorf("a set of 2 with a burst of 5 holds %d", got)
	}
	c := &catalog{}
	set.Namespace, set.Name = "ns", "pool"
	c.change(set)
	if got := c.replicas()[poolOf(set)]; got != 2 {
		t.Errorf("a set of 2 with a burst of 5 is shown to want %d", got)
	}
}
