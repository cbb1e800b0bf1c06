// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSuspend suspends r2, which is the newest, of a pool that has a and d of r1 and b
// and c of r2.
func TestSuspend(t *testing.T) {
	suspend := func(x *Index) { x.Suspensions.Suspend(py, "r2", x.Suspensions.Resumes()) }
	tests := map[string]struct {
		do func(*Index)
		// What can be taken then, and after a Resume, if that resumes something.
		want, resumed string
	}{
		"nothing":             {func(*Index) {}, "b c a d", ""},
		"suspended":           {suspend, "a d", "b c a d"},
		"twice":               {func(x *Index) { suspend(x); suspend(x) }, "a d", "b c a d"},
		"the current one":     {func(x *Index) { x.MarkTarget(py, "r2"); suspend(x) }, "a d", "b c a d"},
		"made current":        {func(x *Index) { suspend(x); x.MarkTarget(py, "r2") }, "a d", "b c a d"},
		"both":                {func(x *Index) { suspend(x); x.Suspensions.Suspend(py, "r1", 0) }, "", "b c a d"},
		"an unknown revision": {func(x *Index) { x.Suspensions.Suspend(py, "r9", 0) }, "b c a d", ""},
		"an unknown pool":     {func(x *Index) { x.Suspensions.Suspend(Pool{Name: "py"}, "r2", 0) }, "b c a d", ""},
		"preferred anew": {func(x *Index) {
			suspend(x)
			x.Prefer(func(_, name string) bool { return name == "c" })
		}, "d a", "c b d a"},

		"resumed":           {func(x *Index) { suspend(x); x.Suspensions.ResumeAll() }, "b c a d", ""},
		"resumed elsewhere": {func(x *Index) { suspend(x); x.Suspensions.Resume("ns", func(p Pool) bool { return p != py }) }, "a d", "b c a d"},
		"since asOf resumed": {func(x *Index) {
			asOf := x.Suspensions.Resumes()
			x.Suspensions.ResumeAll()
			x.Suspensions.Suspend(py, "r2", asOf)
		}, "b c a d", ""},
		"resumed before it": {func(x *Index) { x.Suspensions.ResumeAll(); suspend(x) }, "a d", "b c a d"},
		"suspended again":   {func(x *Index) { suspend(x); x.Suspensions.ResumeAll(); suspend(x) }, "a d", "b c a d"},

		"one more comes":       {func(x *Index) { suspend(x); x.Upsert(inPy("e", "r2", 9)) }, "a d", "b c e a d"},
		"one is written":       {func(x *Index) { suspend(x); x.Upsert(inPy("b", "r2", 9)) }, "a d", "b c a d"},
		"one is relabelled":    {func(x *Index) { suspend(x); x.Upsert(inPy("b", "r1", 9)) }, "a d b", "c a d b"},
		"one is relabelled to": {func(x *Index) { suspend(x); x.Upsert(inPy("a", "r2", 9)) }, "d", "b c a d"},
		"one goes":             {func(x *Index) { suspend(x); x.Remove("ns", "b", 9) }, "a d", "c a d"},
		"one was taken":        {func(x *Index) { cs := x.Take(py, 1); suspend(x); x.Release(cs) }, "a d", "b c a d"},
		"one was discarded":    {func(x *Index) { cs := x.Take(py, 1); suspend(x); x.Discard(cs...) }, "a d", "c a d"},
		"one comes from a claim": {func(x *Index) {
			cs := x.Take(py, 1)
			suspend(x)
			x.Bound(cs, 9)
			x.Upsert(inPy("b", "r2", 10))
		}, "a d", "c b a d"},
		"one was taken, with news": {func(x *Index) {
			cs := x.Take(py, 1)
			suspend(x)
			x.Upsert(inPy("b", "r1", 9))
			x.Release(cs)
		}, "b a d", "c b a d"},
		"a list without them": {func(x *Index) {
			suspend(x)
			x.Retain(func(_, name string) bool { return name == "a" }, 9)
		}, "a", ""},
		// A revision without a sandbox is forgotten, and found out about again.
		"emptied, and one comes": {func(x *Index) {
			suspend(x)
			x.Remove("ns", "b", 9)
			x.Remove("ns", "c", 9)
			x.Upsert(inPy("e", "r2", 10))
		}, "e a d", ""},
		"all taken before": {func(x *Index) { cs := x.Take(py, 2); suspend(x); x.Release(cs) }, "b c a d", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			begin := func() *Index {
				x := indexOf(inPy("a", "r1", 1), inPy("b", "r2", 2), inPy("c", "r2", 3), inPy("d", "r1", 4))
				tc.do(x)
				return x
			}
			mustHandOut(t, begin(), tc.want)
			x := begin()
			if got := x.Suspensions.Suspended(py); got != (tc.resumed != "") {
				t.Errorf("Suspended() = %t", got)
			}
			var pools []Pool
			if tc.resumed == "" {
				tc.resumed = tc.want
			} else {
				pools = append(pools, py)
			}
			if diff := cmp.Diff(pools, x.Suspensions.ResumeAll()); diff != "" {
				t.Errorf("resumed pools (-want +got):\n%s", diff)
			}
			if x.Suspensions.Suspended(py) {
				t.Error("Suspended() after Resume")
			}
			x.Discard(mustHandOut(t, x, tc.resumed)...)
			x.Retain(func(_, _ string) bool { return false }, 99)
			x.MarkTarget(py, "")
			mustBeEmpty(t, x)
		})
	}
}

// mustHandOut fails unless those sandboxes, in that order, are what py has.
func mustHandOut(t *testing.T, x *Index, want string) []Candidate {
	t.Helper()
	if got := names(peek(x, py, 9)); got != want {
		t.Errorf("Peek() shows %q, want %q", got, want)
	}
	n, depth := x.Available(py), x.Depths()[py]
	cs := x.Take(py, 9)
	if got := names(cs); got != want {
		t.Errorf("Take() hands out %q, want %q", got, want)
	}
	if n != len(cs) || depth.Available != len(cs) {
		t.Errorf("Available() = %d and Depths() has %d of %d", n, depth.Available, len(cs))
	}
	return cs
}

// TestResumeLooksAtOneNamespace checks that what is resumed in a namespace costs nothing by
// the suspended pools of others, and that nothing is left of those that are resumed.
func TestResumeLooksAtOneNamespace(t *testing.T) {
	x := New()
	for _, namespace := range []string{"ns", "other-1", "other-2"} {
		for _, name := range []string{"a", "b"} {
			p := Pool{Namespace: namespace, Name: name}
			x.Upsert(Candidate{Pool: p, Name: name, ResourceVersion: 1, Revision: "r"})
			x.Suspensions.Suspend(p, "r", 0)
		}
	}
	looks := 0
	resumed := x.Suspensions.Resume("ns", func(p Pool) bool {
		looks++
		return p.Name == "a"
	})
	if looks != 2 || len(resumed) != 1 {
		t.Errorf("looks at %d pools, and resumes %v", looks, resumed)
	}
	if x.Suspensions.Suspended(resumed[0]) || !x.Suspensions.Suspended(Pool{Namespace: "ns", Name: "b"}) {
		t.Error("another pool is resumed")
	}
	if all := x.Suspensions.ResumeAll(); len(all) != 5 || len(x.pools.suspended) != 0 {
		t.Errorf("resumes %v, left %v", all, x.pools.suspended)
	}
}

// TestSuspendReports is about what Suspend returns: whether nothing was resumed since.
func TestSuspendReports(t *testing.T) {
	x := indexOf(at(5))
	asOf := x.Suspensions.Resumes()
	for _, p := range []Pool{py, {Name: "unknown"}} {
		if !x.Suspensions.Suspend(p, "r1", asOf) {
			t.Errorf("Suspend() of %v = false, and nothing was resumed", p)
		}
	}
	x.Suspensions.Resume("ns", func(Pool) bool { return false })
	for _, p := range []Pool{py, {Name: "unknown"}} {
		if x.Suspensions.Suspend(p, "r1", asOf) {
			t.Errorf("Suspend() of %v = true after a Resume, even of other pools", p)
		}
	}
	if got := x.Suspensions.Resumes(); got != asOf+1 {
		t.Errorf("Resumes() = %d after one more than %d", got, asOf)
	}
}

// TestUpsertIntoSuspended: what comes into stock is what can be taken, and could not be.
func TestUpsertIntoSuspended(t *testing.T) {
	js := Pool{Namespace: "ns", Name: "js"}
	tests := map[string]struct {
		c    Candidate
		want bool
	}{
		"one more":               {inPy("e", "r2", 9), false},
		"one more that is not":   {inPy("e", "r1", 9), true},
		"written":                {inPy("b", "r2", 9), false},
		"relabelled to it":       {inPy("a", "r2", 9), false},
		"relabelled from it":     {inPy("b", "r1", 9), true},
		"from it to a third":     {inPy("b", "r3", 9), true},
		"from it to another set": {Candidate{Pool: js, Name: "b", Revision: "r2", ResourceVersion: 9}, true},
		"spent before":           {inPy("s", "r2", 9), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := indexOf(inPy("s", "r2", 1))
			x.Discard(x.Take(py, 1)...)
			for _, c := range []Candidate{inPy("a", "r1", 1), inPy("b", "r2", 2), inPy("c", "r2", 3)} {
				x.Upsert(c)
			}
			x.Suspensions.Suspend(py, "r2", 0)
			before := x.Available(py) + x.Available(js)
			if got := x.Upsert(tc.c); got != tc.want {
				t.Errorf("Upsert() = %t, want %t", got, tc.want)
			}
			if came := x.Available(py)+x.Available(js) > before; came != tc.want {
				t.Errorf("more are available: %t, want %t", came, tc.want)
			}
		})
	}
}

// TestSetMadeAgain: the sandboxes of a deleted set are not those of the set that was
// created under its name.
func TestSetMadeAgain(t *testing.T) {
	x := New()
	before, after := py, py
	after.UID = "another"
	x.MarkTarget(before, "r1")
	x.Upsert(Candidate{Pool: before, Name: "a", ResourceVersion: 1, Revision: "r1"})
	x.MarkTarget(after, "r1")
	if n := x.Available(after); n != 0 {
		t.Errorf("%d of the deleted set's sandboxes are the new set's", n)
	}
	x.Upsert(Candidate{Pool: after, Name: "b", ResourceVersion: 2, Revision: "r1"})
	x.Suspensions.Suspend(before, "r1", 0)
	if x.Suspensions.Suspended(after) || !x.Suspensions.Suspended(before) {
		t.Error("the same revision of the new set is suspended, or not that of the deleted set")
	}
	if got := names(peek(x, after, 9)) + "," + names(peek(x, before, 9)); got != "b," {
		t.Errorf("the new set and the deleted one have %q", got)
	}
	x.Suspensions.Resume("ns", func(p Pool) bool { return p == after })
	if !x.Suspensions.Suspended(before) {
		t.Error("news of the new set resumed the deleted one")
	}
	x.Suspensions.Resume("ns", func(p Pool) bool { return p == before })
	x.MarkTarget(before, "")
	if got := names(x.Take(after, 9)) + "," + names(x.Take(before, 9)); got != "b,a" {
		t.Errorf("Take() hands out %q", got)
	}
}
