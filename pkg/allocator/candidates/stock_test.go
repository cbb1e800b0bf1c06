// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"fmt"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// TestStandsInFewLines: what a place costs does not grow with the sets of a template.
func TestStandsInFewLines(t *testing.T) {
	e := &claims.Eligible{}
	for i := range 3 * maxLines {
		e.Pools = append(e.Pools, setOf(fmt.Sprintf("s-%03d", i), "py"))
	}
	got := WantsOf(claimOf(warm(5)), e, plan.Wants{Need: 5}, 0).Sources
	if len(got) != maxLines || got[maxLines-1].Pool.Name != e.Pools[maxLines-1].Name {
		t.Errorf("stands in %d lines: %v", len(got), got)
	}
	e.Pools[0].Spec.Replicas = new(int32(0))
	got = WantsOf(claimOf(warm(5)), e, plan.Wants{Need: 5}, 0).Sources
	if len(got) != maxLines || got[0].Pool.Name != e.Pools[1].Name {
		t.Errorf("stands in the line of a pool that is meant to hold nothing: %v", got)
	}
	for _, atOnce := range []bool{false, true} {
		if wants := WantsOf(claimOf(warm(100_000)), e, plan.Wants{Need: 100_000, AtOnce: atOnce}, 0); wants.Yields != atOnce {
			t.Errorf("at once %v: yields %v, and these pools never hold as much", atOnce, wants.Yields)
		}
	}
}
