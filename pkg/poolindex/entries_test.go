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

// stateOf is what x knows of the sandbox a: "unknown", "available 5", "taken
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
	if e.pending != nil && e.state != taken {
		t.Errorf("%s/a keeps an update in state %d", namespace, e.state)
	}
	text := fmt.Sprintf("%s %d", [...]string{"available", "taken", "spent"}[e.state], e.ResourceVersion)
	switch {
	case e.pending == nil:
		return text
	case e.pending.gone:
		return fmt.Sprintf("%s, then gone %d", text, e.pending.candidate.ResourceVersion)
	default:
		return fmt.Sprintf("%s, then available %d", text, e.pending.candidate.ResourceVersion)
	}
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

func takenAt5() *Index {
	x := indexOf(at(5))
	x.Take(py, 1)
	return x
}

func TestFeedUpdates(t *testing.T) {
	type update struct {
		gone    bool
		version uint64
	}
	available := func(version uint64) update { return update{version: version} }
	gone := func(version uint64) update { return update{gone: true, version: version} }
	type outcome struct {
		state   string
		stocked bool
	}
	tests := map[string]map[update]outcome{
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

func TestUpsertListed(t *testing.T) {
	p := Pool{Namespace: "ns", Name: "pool"}
	c := Candidate{Pool: p, Name: "a", ResourceVersion: 5}
	tests := map[string]struct {
		before func(x *Index)
		asOf   uint64
		stocks bool
		want   int
	}{
		"the list is ahead of the feed":         {func(*Index) {}, 6, true, 1},
		"the feed has heard of it":              {func(x *Index) { x.Upsert(c) }, 6, false, 1},
		"the feed has seen it go":               {func(x *Index) { x.Upsert(c); x.Remove("ns", "a", 9) }, 6, false, 0},
		"the feed is ahead, if not about it":    {func(x *Index) { x.Remove("ns", "other", 9) }, 6, false, 0},
		"the feed is as far as the list":        {func(x *Index) { x.Remove("ns", "other", 6) }, 6, true, 1},
		"it is bound by a transaction after it": {func(x *Index) { x.Upsert(c); x.Bound(x.Take(p, 1), 9) }, 10, false, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x := New()
			tt.before(x)
			if got := x.UpsertListed([]Candidate{c}, tt.asOf); got != tt.stocks {
				t.Errorf("UpsertListed() = %t, want %t", got, tt.stocks)
			}
			if got := x.Available(p); got != tt.want {
				t.Errorf("%d available, want %d", got, tt.want)
			}
		})
	}
}
