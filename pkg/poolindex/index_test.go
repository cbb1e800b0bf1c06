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

// stateOf tells what x knows of the sandbox a: "unknown", "available 5", "taken
// 5", "taken 5, then gone 7" or "spent 9".
func stateOf(t *testing.T, x *Index, namespace string) string {
	t.Helper()
	e := x.entries.byKey[entryKey{namespace, "a"}]
	if e == nil {
		return "unknown"
	}
	if queued := e.element != nil; queued != (e.state == available) {
		t.Errorf("%s/a is in state %d, in a queue: %t", namespace, e.state, queued)
	}
	if e.news != nil && e.state != taken {
		t.Errorf("%s/a keeps news in state %d", namespace, e.state)
	}
	text := fmt.Sprintf("%s %d", [...]string{"available", "taken", "spent"}[e.state], e.ResourceVersion)
	switch {
	case e.news == nil:
		return text
	case e.news.gone:
		return fmt.Sprintf("%s, then gone %d", text, e.news.candidate.ResourceVersion)
	default:
		return fmt.Sprintf("%s, then available %d", text, e.news.candidate.ResourceVersion)
	}
}

// mustBeEmpty fails if x holds on to anything.
func mustBeEmpty(t *testing.T, x *Index) {
	t.Helper()
	entries, pools, suspended := x.entries.byKey, x.pools.byKey, x.pools.suspended
	if len(entries) != 0 || len(pools) != 0 || len(suspended) != 0 {
		t.Errorf("%d entries, %d pools and %d suspended ones are left behind: %v", len(entries), len(pools), len(suspended), pools)
	}
}

func names(cs []Candidate) string {
	all := make([]string, 0, len(cs))
	for _, c := range cs {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}

// states makes an index in which ns/a is in each of the states that it can be in.
var states = map[string]func() *Index{
	"unknown":     New,
	"available 5": func() *Index { return indexOf(at(5)) },
	"taken 5":     takenAt5,
	"taken 5, then available 7": func() *Index {
		x := takenAt5()
		x.Upsert(at(7))
		return x
	},
	"taken 5, then gone 7": func() *Index {
		x := takenAt5()
		x.Remove("ns", "a", 7)
		return x
	},
	"spent 9": func() *Index {
		x := takenAt5()
		x.Bound([]Candidate{at(5)}, 9)
		return x
	},
}

func indexOf(cs ...Candidate) *Index {
	x := New()
	for _, c := range cs {
		x.Upsert(c)
	}
	return x
}

func takenAt5() *Index {
	x := indexOf(at(5))
	x.Take(py, 1)
	return x
}

func TestNews(t *testing.T) {
	type news struct {
		gone    bool
		version uint64
	}
	available := func(version uint64) news { return news{version: version} }
	gone := func(version uint64) news { return news{gone: true, version: version} }
	type outcome struct {
		state   string
		stocked bool
	}
	tests := map[string]map[news]outcome{
		"unknown": {
			available(5): {"available 5", true},
			gone(5):      {"unknown", false},
		},
		"available 5": {
			available(4): {"available 5", false},
			available(5): {"available 5", false},
			available(7): {"available 7", false},
			gone(4):      {"available 5", false},
			gone(5):      {"unknown", false}, // its shutdownTime has passed
			gone(7):      {"unknown", false},
		},
		"taken 5": {
			available(4): {"taken 5", false},
			available(5): {"taken 5", false},
			available(7): {"taken 5, then available 7", false},
			gone(4):      {"taken 5", false},
			gone(5):      {"taken 5, then gone 5", false},
			gone(7):      {"taken 5, then gone 7", false},
		},
		"taken 5, then available 7": {
			available(6): {"taken 5, then available 7", false},
			available(7): {"taken 5, then available 7", false},
			available(8): {"taken 5, then available 8", false},
			gone(6):      {"taken 5, then available 7", false},
			gone(7):      {"taken 5, then gone 7", false},
			gone(8):      {"taken 5, then gone 8", false},
		},
		"taken 5, then gone 7": {
			available(6): {"taken 5, then gone 7", false},
			available(7): {"taken 5, then gone 7", false},
			available(8): {"taken 5, then available 8", false},
			gone(6):      {"taken 5, then gone 7", false},
			gone(8):      {"taken 5, then gone 8", false},
		},
		"spent 9": {
			available(8):  {"spent 9", false},
			available(9):  {"spent 9", false},
			available(10): {"available 10", true},
			gone(8):       {"spent 9", false},
			gone(9):       {"unknown", false},
			gone(10):      {"unknown", false},
		},
	}
	for before, all := range tests {
		for n, want := range all {
			t.Run(fmt.Sprintf("%s, gone %t at %d", before, n.gone, n.version), func(t *testing.T) {
				x := states[before]()
				if got := stateOf(t, x, "ns"); got != before {
					t.Fatalf("begins as %q, want %q", got, before)
				}
				stocked := false
				if n.gone {
					x.Remove("ns", "a", n.version)
				} else {
					stocked = x.Upsert(at(n.version))
				}
				if diff := cmp.Diff(want, outcome{stateOf(t, x, "ns"), stocked}, cmp.AllowUnexported(outcome{})); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if got, want := x.Available(py), strings.Count(want.state, "available")-strings.Count(want.state, "then available"); got != want {
					t.Errorf("Available() = %d, want %d", got, want)
				}
			})
		}
	}
}

func TestAnswers(t *testing.T) {
	bound := func(version uint64) func(*Index) {
		return func(x *Index) { x.Bound([]Candidate{at(5)}, version) }
	}
	discard := func(x *Index) { x.Discard(at(5)) }
	release := func(x *Index) { x.Release([]Candidate{at(5)}) }
	tests := map[string]struct {
		before string
		answer func(*Index)
		want   string
	}{
		"bound":                           {"taken 5", bound(9), "spent 9"},
		"bound below what it was":         {"taken 5", bound(3), "spent 5"},
		"bound after older good news":     {"taken 5, then available 7", bound(9), "spent 9"},
		"bound after good news of it":     {"taken 5, then available 7", bound(7), "spent 7"},
		"bound after newer good news":     {"taken 5, then available 7", bound(6), "available 7"},
		"bound after older bad news":      {"taken 5, then gone 7", bound(9), "spent 9"},
		"bound after the watch showed it": {"taken 5, then gone 7", bound(7), "unknown"},
		"bound and deleted since":         {"taken 5, then gone 7", bound(6), "unknown"},
		"bound, unknown":                  {"unknown", bound(9), "unknown"},
		"bound, not taken":                {"available 5", bound(9), "available 5"},
		"bound twice":                     {"spent 9", bound(11), "spent 9"},

		"discarded":                 {"taken 5", discard, "spent 5"},
		"discarded after good news": {"taken 5, then available 7", discard, "available 7"},
		"discarded after bad news":  {"taken 5, then gone 7", discard, "unknown"},
		"discarded, unknown":        {"unknown", discard, "unknown"},
		"discarded, not taken":      {"available 5", discard, "available 5"},
		"discarded after bound":     {"spent 9", discard, "spent 9"},

		"released":                 {"taken 5", release, "available 5"},
		"released after good news": {"taken 5, then available 7", release, "available 7"},
		"released after bad news":  {"taken 5, then gone 7", release, "unknown"},
		"released, unknown":        {"unknown", release, "unknown"},
		"released, not taken":      {"available 5", release, "available 5"},
		"released after bound":     {"spent 9", release, "spent 9"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := states[tc.before]()
			tc.answer(x)
			if got := stateOf(t, x, "ns"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if got, want := len(x.Take(py, 9)), strings.Count(tc.want, "available"); got != want {
				t.Errorf("Take() hands out %d, want %d", got, want)
			}
		})
	}
}

// TestWorkedExample is the one in the doc comment of Index.
func TestWorkedExample(t *testing.T) {
	x := New()
	expect := func(after, want string) {
		t.Helper()
		if got := stateOf(t, x, "ns"); got != want {
			t.Fatalf("after %s: %q, want %q", after, got, want)
		}
	}
	take := func(version uint64) []Candidate {
		t.Helper()
		cs := x.Take(py, 1)
		if diff := cmp.Diff([]Candidate{at(version)}, cs); diff != "" {
			t.Fatalf("taken (-want +got):\n%s", diff)
		}
		return cs
	}
	x.Upsert(at(5))
	expect("Upsert(5)", "available 5")
	cs := take(5)
	expect("Take", "taken 5")
	x.Bound(cs, 9)
	expect("Bound(9)", "spent 9")
	x.Upsert(at(5))
	expect("a late Upsert(5)", "spent 9")
	x.Remove("ns", "a", 9)
	expect("Remove(9)", "unknown")
	mustBeEmpty(t, x)

	x.Upsert(at(5))
	x.Discard(take(5)...)
	expect("Discard", "spent 5")
	x.Upsert(at(7))
	expect("Upsert(7)", "available 7")
	take(7)
}

func TestTakeOrder(t *testing.T) {
	c := func(name, revision string, version uint64) Candidate {
		return Candidate{Pool: py, Name: name, Revision: revision, ResourceVersion: version}
	}
	// r1, r2 and r3 appear in this order.
	stock := []Candidate{
		c("a1", "r1", 1), c("b2", "r2", 2), c("a2", "r2", 3), c("c1", "r1", 4), c("z3", "r3", 5), c("b1", "r1", 6), c("c3", "r3", 7),
	}
	tests := map[string]struct {
		do   func(*Index)
		want string
	}{
		"no current revision":       {func(*Index) {}, "z3 c3 b2 a2 a1 c1 b1"},
		"newest is current":         {func(x *Index) { x.SetCurrent(py, "r3") }, "z3 c3 b2 a2 a1 c1 b1"},
		"middle is current":         {func(x *Index) { x.SetCurrent(py, "r2") }, "b2 a2 z3 c3 a1 c1 b1"},
		"rolled back to the oldest": {func(x *Index) { x.SetCurrent(py, "r1") }, "a1 c1 b1 z3 c3 b2 a2"},
		"none of the current yet":   {func(x *Index) { x.SetCurrent(py, "r4") }, "z3 c3 b2 a2 a1 c1 b1"},
		"switched twice":            {func(x *Index) { x.SetCurrent(py, "r1"); x.SetCurrent(py, "r2") }, "b2 a2 z3 c3 a1 c1 b1"},
		"set forgotten":             {func(x *Index) { x.SetCurrent(py, "r1"); x.ForgetPool(py) }, "z3 c3 b2 a2 a1 c1 b1"},
		"current of another pool":   {func(x *Index) { x.SetCurrent(Pool{Namespace: "other", Name: "py"}, "r1") }, "z3 c3 b2 a2 a1 c1 b1"},
		"news keeps the place":      {func(x *Index) { x.Upsert(c("b2", "r2", 20)) }, "z3 c3 b2 a2 a1 c1 b1"},
		"relabelled goes to the back": {
			func(x *Index) { x.Upsert(c("a1", "r3", 20)) }, "z3 c3 a1 b2 a2 c1 b1",
		},
		"first of a new revision": {func(x *Index) { x.Upsert(c("a4", "r4", 20)) }, "a4 z3 c3 b2 a2 a1 c1 b1"},
		"released in front, in order": {
			func(x *Index) { x.Release(x.Take(py, 4)) }, "z3 c3 b2 a2 a1 c1 b1",
		},
		"released in part": {
			func(x *Index) { cs := x.Take(py, 4); x.Discard(cs[0], cs[2]); x.Release([]Candidate{cs[1], cs[3]}) }, "c3 a2 a1 c1 b1",
		},
		"released in front of later arrivals": {
			func(x *Index) {
				x.SetCurrent(py, "r3")
				cs := x.Take(py, 2)
				x.Upsert(c("d3", "r3", 21))
				x.Release(cs)
			}, "z3 c3 d3 b2 a2 a1 c1 b1",
		},
		"released with news in front": {
			func(x *Index) {
				cs := x.Take(py, 1)
				x.Upsert(c("z3", "r3", 22))
				x.Release(cs)
			}, "z3 c3 b2 a2 a1 c1 b1",
		},
		"released with news of another revision": {
			func(x *Index) {
				cs := x.Take(py, 1)
				x.Upsert(c("z3", "r1", 22))
				x.Release(cs)
			}, "c3 b2 a2 z3 a1 c1 b1",
		},
		"removed from the middle": {func(x *Index) { x.Remove("ns", "a2", 23); x.Remove("ns", "c1", 24) }, "z3 c3 b2 a1 b1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := indexOf(stock...)
			tc.do(x)
			peeked := x.Peek(py, 100)
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
			x.SetCurrent(Pool{Namespace: "ns", Name: "empty"}, "r1")
			for i, name := range []string{"a", "b", "c"} {
				x.Upsert(Candidate{Pool: py, Name: name, ResourceVersion: uint64(i + 1)})
			}
			for range 2 { // peeking takes nothing
				if got := names(x.Peek(tc.pool, tc.n)); got != tc.want {
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

func TestRetain(t *testing.T) {
	named := func(name string, version uint64) Candidate {
		return Candidate{Pool: py, Name: name, ResourceVersion: version}
	}
	take := func(x *Index, cs ...Candidate) {
		for _, c := range cs {
			x.Upsert(c)
			if got := x.Take(py, 1); len(got) != 1 || got[0] != c {
				t.Fatalf("taken %v, want %v", got, c)
			}
		}
	}
	// The list is of version 10.
	prepare := map[string]func(x *Index, name string){
		"available 5":  func(x *Index, name string) { x.Upsert(named(name, 5)) },
		"available 10": func(x *Index, name string) { x.Upsert(named(name, 10)) },
		"available 20": func(x *Index, name string) { x.Upsert(named(name, 20)) },
		"taken 5":      func(x *Index, name string) { take(x, named(name, 5)) },
		"taken 20":     func(x *Index, name string) { take(x, named(name, 20)) },
		"taken 5, then available 20": func(x *Index, name string) {
			take(x, named(name, 5))
			x.Upsert(named(name, 20))
		},
		"taken 5, then available 7": func(x *Index, name string) {
			take(x, named(name, 5))
			x.Upsert(named(name, 7))
		},
		"taken 5, then gone 20": func(x *Index, name string) {
			take(x, named(name, 5))
			x.Remove("ns", name, 20)
		},
		"spent 5":  func(x *Index, name string) { take(x, named(name, 5)); x.Discard(named(name, 5)) },
		"spent 20": func(x *Index, name string) { take(x, named(name, 5)); x.Bound([]Candidate{named(name, 5)}, 20) },
	}
	tests := map[string]struct {
		before string
		listed bool
		want   string
	}{
		"listed":                 {"available 5", true, "available 5"},
		"not listed":             {"available 5", false, "unknown"},
		"not listed, same":       {"available 10", false, "unknown"},
		"newer than the list":    {"available 20", false, "available 20"},
		"taken, listed":          {"taken 5", true, "taken 5"},
		"taken, not listed":      {"taken 5", false, "taken 5, then gone 10"},
		"taken, newer":           {"taken 20", false, "taken 20"},
		"taken with newer news":  {"taken 5, then available 20", false, "taken 5, then available 20"},
		"taken with older news":  {"taken 5, then available 7", false, "taken 5, then gone 10"},
		"taken with newer end":   {"taken 5, then gone 20", false, "taken 5, then gone 20"},
		"spent, listed":          {"spent 5", true, "spent 5"},
		"spent, not listed":      {"spent 5", false, "unknown"},
		"bound since the list":   {"spent 20", false, "spent 20"},
		"bound since, is listed": {"spent 20", true, "spent 20"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := New()
			prepare[tc.before](x, "a")
			x.Upsert(Candidate{Pool: Pool{Namespace: "other", Name: "py"}, Name: "a", ResourceVersion: 1})
			var asked []string
			x.Retain(func(namespace, name string) bool {
				asked = append(asked, namespace+"/"+name)
				return tc.listed || namespace == "other"
			}, 10)
			if got := stateOf(t, x, "ns"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if got := stateOf(t, x, "other"); got != "available 1" {
				t.Errorf("the same name in another namespace: %q", got)
			}
			slices.Sort(asked)
			if diff := cmp.Diff([]string{"ns/a", "other/a"}, asked); diff != "" {
				t.Errorf("keep was asked for (-want +got):\n%s", diff)
			}
		})
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
			x.SetCurrent(py, "r1")
			x.Upsert(at(5))
			x.Remove("ns", "a", 7)
			x.ForgetPool(py)
		},
		"set deleted first": func(x *Index) {
			x.SetCurrent(py, "r1")
			x.Upsert(at(5))
			x.ForgetPool(py)
			x.Remove("ns", "a", 7)
		},
		"set deleted while taken": func(x *Index) {
			x.SetCurrent(py, "r1")
			x.Upsert(at(5))
			cs := x.Take(py, 1)
			x.ForgetPool(py)
			x.Bound(cs, 9)
			x.Remove("ns", "a", 9)
		},
		"set without status":       func(x *Index) { x.SetCurrent(py, "") },
		"set that was never there": func(x *Index) { x.ForgetPool(py) },
		"asked for":                func(x *Index) { x.Available(py); x.Peek(py, 1); x.Take(py, 1) },
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
		x.SetCurrent(py, "r9")
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

func TestUpsertMovesBetweenPools(t *testing.T) {
	js := Pool{Namespace: "ns", Name: "js"}
	tests := map[string]struct {
		to      Candidate
		stocked bool
		py, js  int
	}{
		"other pool":           {Candidate{Pool: js, Name: "a", ResourceVersion: 6, Revision: "r1"}, true, 0, 1},
		"other pool, old news": {Candidate{Pool: js, Name: "a", ResourceVersion: 5, Revision: "r1"}, false, 1, 0},
		"other revision":       {Candidate{Pool: py, Name: "a", ResourceVersion: 6, Revision: "r2"}, false, 1, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := indexOf(at(5))
			if got := x.Upsert(tc.to); got != tc.stocked {
				t.Errorf("Upsert() = %t, want %t", got, tc.stocked)
			}
			if py, js := x.Available(py), x.Available(js); py != tc.py || js != tc.js {
				t.Errorf("available in py, js = %d, %d, want %d, %d", py, js, tc.py, tc.js)
			}
			if got := len(x.pools.byKey); got != 1 {
				t.Errorf("%d pools with one sandbox", got)
			}
		})
	}
}
