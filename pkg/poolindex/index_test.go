// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var py = Pool{Namespace: "ns", Name: "py", UID: "u"}

// at is the sandbox ns/a of the pool py at a version.
func at(version uint64) Candidate {
	return Candidate{Pool: py, Name: "a", ResourceVersion: version, Revision: "r1"}
}

func inPy(name, revision string, version uint64) Candidate {
	return Candidate{Pool: py, Name: name, Revision: revision, ResourceVersion: version}
}

// mustBeEmpty fails if x holds on to anything.
func mustBeEmpty(t *testing.T, x *Index) {
	t.Helper()
	entries, pools, suspended, on := x.entries.byKey, x.pools.byKey, x.pools.suspended, x.pools.nodes.on
	if len(entries) != 0 || len(pools) != 0 || len(suspended) != 0 || len(on) != 0 {
		t.Errorf("%d entries, %d pools, %d suspended ones and %d nodes are left behind: %v", len(entries), len(pools), len(suspended), len(on), pools)
	}
}

func names(cs []Candidate) string {
	all := make([]string, 0, len(cs))
	for _, c := range cs {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}

// peek returns what Take would return.
func peek(x *Index, p Pool, n int) []Candidate {
	regular := x.Peek(p, n, false)
	return append(regular, x.Peek(p, n-len(regular), true)...)
}

func indexOf(cs ...Candidate) *Index {
	x := New()
	for _, c := range cs {
		x.Upsert(c)
	}
	return x
}

func TestTakeOrder(t *testing.T) {
	// r1, r2 and r3 appear in this order.
	stock := []Candidate{
		inPy("a1", "r1", 1), inPy("b2", "r2", 2), inPy("a2", "r2", 3), inPy("c1", "r1", 4), inPy("z3", "r3", 5), inPy("b1", "r1", 6), inPy("c3", "r3", 7),
	}
	tests := map[string]struct {
		do   func(*Index)
		want string
	}{
		"no current revision":       {func(*Index) {}, "z3 c3 b2 a2 a1 c1 b1"},
		"newest is current":         {func(x *Index) { x.MarkTarget(py, "r3") }, "z3 c3 b2 a2 a1 c1 b1"},
		"middle is current":         {func(x *Index) { x.MarkTarget(py, "r2") }, "b2 a2 z3 c3 a1 c1 b1"},
		"rolled back to the oldest": {func(x *Index) { x.MarkTarget(py, "r1") }, "a1 c1 b1 z3 c3 b2 a2"},
		"none of the current yet":   {func(x *Index) { x.MarkTarget(py, "r4") }, "z3 c3 b2 a2 a1 c1 b1"},
		"switched twice":            {func(x *Index) { x.MarkTarget(py, "r1"); x.MarkTarget(py, "r2") }, "b2 a2 z3 c3 a1 c1 b1"},
		"set forgotten":             {func(x *Index) { x.MarkTarget(py, "r1"); x.MarkTarget(py, "") }, "z3 c3 b2 a2 a1 c1 b1"},
		"current of another pool":   {func(x *Index) { x.MarkTarget(Pool{Namespace: "other", Name: "py"}, "r1") }, "z3 c3 b2 a2 a1 c1 b1"},
		"news keeps the place":      {func(x *Index) { x.Upsert(inPy("b2", "r2", 20)) }, "z3 c3 b2 a2 a1 c1 b1"},
		"relabelled goes to the back": {
			func(x *Index) { x.Upsert(inPy("a1", "r3", 20)) }, "z3 c3 a1 b2 a2 c1 b1",
		},
		"first of a new revision": {func(x *Index) { x.Upsert(inPy("a4", "r4", 20)) }, "a4 z3 c3 b2 a2 a1 c1 b1"},
		"released in front, in order": {
			func(x *Index) { x.Release(x.Take(py, 4)) }, "z3 c3 b2 a2 a1 c1 b1",
		},
		"released in part": {
			func(x *Index) { cs := x.Take(py, 4); x.Discard(cs[0], cs[2]); x.Release([]Candidate{cs[1], cs[3]}) }, "c3 a2 a1 c1 b1",
		},
		"released in front of later arrivals": {
			func(x *Index) {
				x.MarkTarget(py, "r3")
				cs := x.Take(py, 2)
				x.Upsert(inPy("d3", "r3", 21))
				x.Release(cs)
			}, "z3 c3 d3 b2 a2 a1 c1 b1",
		},
		"released with news in front": {
			func(x *Index) {
				cs := x.Take(py, 1)
				x.Upsert(inPy("z3", "r3", 22))
				x.Release(cs)
			}, "z3 c3 b2 a2 a1 c1 b1",
		},
		"released with news of another revision": {
			func(x *Index) {
				cs := x.Take(py, 1)
				x.Upsert(inPy("z3", "r1", 22))
				x.Release(cs)
			}, "c3 b2 a2 z3 a1 c1 b1",
		},
		"removed from the middle": {func(x *Index) { x.Remove("ns", "a2", 23); x.Remove("ns", "c1", 24) }, "z3 c3 b2 a1 b1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := indexOf(stock...)
			tc.do(x)
			peeked := peek(x, py, 100)
			if before := x.Available(py); before != len(peeked) {
				t.Errorf("Available() = %d, and Peek() shows %d", before, len(peeked))
			}
			var got []Candidate
			for {
				cs := x.Take(py, 2)
				if len(cs) == 0 {
					break
				}
				got = append(got, cs...)
			}
			if diff := cmp.Diff(tc.want, names(got)); diff != "" {
				t.Errorf("taken in another order (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(got, peeked); diff != "" {
				t.Errorf("Peek shows something else than Take hands out (-taken +peeked):\n%s", diff)
			}
		})
	}
}

func TestTakeAndPeekSizes(t *testing.T) {
	tests := map[string]struct {
		pool Pool
		n    int
		want string
	}{
		"none":              {py, 0, ""},
		"negative":          {py, -1, ""},
		"some":              {py, 2, "a b"},
		"all":               {py, 3, "a b c"},
		"more than there":   {py, 1 << 40, "a b c"},
		"no such pool":      {Pool{Namespace: "ns", Name: "nope"}, 1, ""},
		"other namespace":   {Pool{Namespace: "other", Name: "py"}, 1, ""},
		"pool without any":  {Pool{Namespace: "ns", Name: "empty"}, 1, ""},
		"names swapped":     {Pool{Namespace: "py", Name: "ns"}, 1, ""},
		"a pool of no name": {Pool{}, 1, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := New()
			x.MarkTarget(Pool{Namespace: "ns", Name: "empty"}, "r1")
			for i, name := range []string{"a", "b", "c"} {
				x.Upsert(Candidate{Pool: py, Name: name, ResourceVersion: uint64(i + 1)})
			}
			for range 2 { // peeking takes nothing
				if got := names(peek(x, tc.pool, tc.n)); got != tc.want {
					t.Errorf("Peek() = %q, want %q", got, tc.want)
				}
			}
			if got := names(x.Take(tc.pool, tc.n)); got != tc.want {
				t.Errorf("Take() = %q, want %q", got, tc.want)
			}
			if got, want := x.Available(py), 3-len(strings.Fields(tc.want)); got != want {
				t.Errorf("Available() after = %d, want %d", got, want)
			}
		})
	}
}

func TestSameNamesInOtherNamespaces(t *testing.T) {
	x := New()
	pools := []Pool{{Namespace: "one", Name: "py"}, {Namespace: "two", Name: "py"}, {Namespace: "two", Name: "js"}}
	for i, p := range pools {
		name := "a"
		if p.Name == "js" {
			name = "b"
		}
		if !x.Upsert(Candidate{Pool: p, Name: name, ResourceVersion: uint64(i + 1)}) {
			t.Errorf("%v: Upsert() = false", p)
		}
	}
	one := x.Take(pools[0], 5)
	if diff := cmp.Diff([]Candidate{{Pool: pools[0], Name: "a", ResourceVersion: 1}}, one); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := []int{x.Available(pools[0]), x.Available(pools[1]), x.Available(pools[2])}, []int{0, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("available = %v, want %v", got, want)
	}
	x.Bound(one, 9)
	x.Remove("one", "a", 9)
	x.Remove("one", "b", 9)
	if got := names(x.Take(pools[1], 5)) + names(x.Take(pools[2], 5)); got != "ab" {
		t.Errorf("left in namespace two: %q", got)
	}
}

// TestNothingIsLeftBehind takes sandboxes all the ways through the index that
// there are; at the end nothing of them may be in memory.
func TestNothingIsLeftBehind(t *testing.T) {
	js := Pool{Namespace: "ns", Name: "js"}
	inJS := func(version uint64) Candidate {
		return Candidate{Pool: js, Name: "a", ResourceVersion: version, Revision: "r1"}
	}
	tests := map[string]func(x *Index){
		"removed while available": func(x *Index) { x.Upsert(at(5)); x.Remove("ns", "a", 6) },
		"list without it":         func(x *Index) { x.Upsert(at(5)); x.Retain(func(_, _ string) bool { return false }, 6) },
		"bound, then seen":        func(x *Index) { x.Upsert(at(5)); x.Bound(x.Take(py, 1), 9); x.Remove("ns", "a", 9) },
		"seen, then bound": func(x *Index) {
			x.Upsert(at(5))
			cs := x.Take(py, 1)
			x.Remove("ns", "a", 9)
			x.Bound(cs, 9)
		},
		"bound, missing in a list": func(x *Index) {
			x.Upsert(at(5))
			x.Bound(x.Take(py, 1), 9)
			x.Retain(func(_, _ string) bool { return false }, 12)
		},
		"taken, missing in a list": func(x *Index) {
			x.Upsert(at(5))
			cs := x.Take(py, 1)
			x.Retain(func(_, _ string) bool { return false }, 12)
			x.Release(cs)
		},
		"discarded, then removed": func(x *Index) { x.Upsert(at(5)); x.Discard(x.Take(py, 1)...); x.Remove("ns", "a", 6) },
		"removed, then discarded": func(x *Index) {
			x.Upsert(at(5))
			cs := x.Take(py, 1)
			x.Remove("ns", "a", 6)
			x.Discard(cs...)
		},
		"removed, then released": func(x *Index) {
			x.Upsert(at(5))
			cs := x.Take(py, 1)
			x.Remove("ns", "a", 6)
			x.Release(cs)
		},
		"released, then removed": func(x *Index) { x.Upsert(at(5)); x.Release(x.Take(py, 1)); x.Remove("ns", "a", 6) },
		"in another pool": func(x *Index) {
			x.Upsert(at(5))
			x.Upsert(inJS(6))
			x.Remove("ns", "a", 7)
		},
		"in another pool while taken": func(x *Index) {
			x.Upsert(at(5))
			cs := x.Take(py, 1)
			x.Upsert(inJS(6))
			x.Release(cs)
			x.Remove("ns", "a", 7)
		},
		"set deleted last": func(x *Index) {
			x.MarkTarget(py, "r1")
			x.Upsert(at(5))
			x.Remove("ns", "a", 7)
			x.MarkTarget(py, "")
		},
		"set deleted first": func(x *Index) {
			x.MarkTarget(py, "r1")
			x.Upsert(at(5))
			x.MarkTarget(py, "")
			x.Remove("ns", "a", 7)
		},
		"set deleted while taken": func(x *Index) {
			x.MarkTarget(py, "r1")
			x.Upsert(at(5))
			cs := x.Take(py, 1)
			x.MarkTarget(py, "")
			x.Bound(cs, 9)
			x.Remove("ns", "a", 9)
		},
		"set without status":       func(x *Index) { x.MarkTarget(py, "") },
		"set that was never there": func(x *Index) { x.MarkTarget(py, "") },
		"asked for":                func(x *Index) { x.Available(py); peek(x, py, 1); x.Take(py, 1) },
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			x := New()
			do(x)
			mustBeEmpty(t, x)
		})
	}
	t.Run("revisions of a living pool", func(t *testing.T) {
		x := New()
		x.MarkTarget(py, "r9")
		for i := range uint64(20) {
			x.Upsert(Candidate{Pool: py, Name: "a", ResourceVersion: i + 1, Revision: fmt.Sprint("r", i)})
		}
		if n := len(x.pools.byKey[py].revisions); n != 1 {
			t.Errorf("%d revisions with one sandbox", n)
		}
		x.Remove("ns", "a", 99)
		if n := len(x.pools.byKey[py].revisions); n != 0 {
			t.Errorf("%d revisions without a sandbox", n)
		}
	})
}
