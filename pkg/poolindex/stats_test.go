// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever becomes of a taken sandbox, it is counted once and not for ever.
func TestDepths(t *testing.T) {
	x, p := New(), Pool{Namespace: "ns", Name: "py"}
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		x.Upsert(Candidate{Pool: p, Name: name, ResourceVersion: uint64(i + 1), Revision: "r"})
	}
	want := func(what string, wanted map[Pool]Depth) {
		t.Helper()
		if diff := cmp.Diff(wanted, x.Depths()); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("stocked", map[Pool]Depth{p: {Available: 5}})
	taken := x.Take(p, 5)
	want("taken", map[Pool]Depth{p: {Taken: 5}})
	x.Bound(taken[:1], 10)
	want("one bound", map[Pool]Depth{p: {Taken: 4}})
	x.Discard(taken[1])
	want("one discarded", map[Pool]Depth{p: {Taken: 3}})
	x.Release(taken[2:3])
	want("one released", map[Pool]Depth{p: {Available: 1, Taken: 2}})

	// News about taken ones: one is gone, one has moved to another pool.
	other := Pool{Namespace: "ns", Name: "other"}
	x.Remove("ns", taken[3].Name, 20)
	x.Upsert(Candidate{Pool: other, Name: taken[4].Name, ResourceVersion: 21, Revision: "r"})
	want("news do not count yet", map[Pool]Depth{p: {Available: 1, Taken: 2}})
	x.Release(taken[3:])
	want("released", map[Pool]Depth{p: {Available: 1}, other: {Available: 1}})

	x.Remove("ns", taken[2].Name, 22)
	x.Remove("ns", taken[4].Name, 23)
	want("gone", map[Pool]Depth{})
}
