// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"fmt"
	"testing"
)

func TestShareGivesEverySandboxToOneServer(t *testing.T) {
	servers := []string{"a", "b", "c"}
	const n = 3000
	count := map[string]int{}
	for i := range n {
		name := fmt.Sprintf("pool-%05d", i)
		var by []string
		for _, server := range servers {
			if Share(server, servers)("ns", name) {
				by = append(by, server)
			}
		}
		if len(by) != 1 {
			t.Fatalf("%s is preferred by %v", name, by)
		}
		count[by[0]]++
	}
	for _, server := range servers {
		if got := count[server]; got < n/3*8/10 || got > n/3*12/10 {
			t.Errorf("server %s prefers %d of %d", server, got, n)
		}
	}
}

func TestShareMovesOnlyWhatALeavingServerPreferred(t *testing.T) {
	for i := range 1000 {
		name := fmt.Sprintf("pool-%05d", i)
		before, after := Share("a", []string{"a", "b", "c"}), Share("a", []string{"a", "b"})
		if before("ns", name) && !after("ns", name) {
			t.Fatalf("a gave %s away when c left", name)
		}
	}
}

func TestShareOfALoneServerIsEverything(t *testing.T) {
	for _, servers := range [][]string{nil, {"a"}, {"b", "c"}} {
		if Share("a", servers) != nil {
			t.Errorf("beside %v, a does not prefer everything", servers)
		}
	}
}

func TestPreferredFirst(t *testing.T) {
	p := Pool{Namespace: "ns", Name: "pool"}
	x := New()
	for i, name := range []string{"a", "b", "c", "d"} {
		x.Upsert(Candidate{Pool: p, Name: name, ResourceVersion: uint64(i + 1)})
	}
	x.Prefer(func(_, name string) bool { return name == "b" || name == "d" || name == "e" })
	x.Upsert(Candidate{Pool: p, Name: "e", ResourceVersion: 5})
	x.Upsert(Candidate{Pool: p, Name: "f", ResourceVersion: 6})

	// The preferred in their order, then the others from the far end.
	const want = "b d e f c a"
	if got := names(peek(x, p, 9)); got != want {
		t.Errorf("Peek shows %s, want %s", got, want)
	}
	taken := x.Take(p, 5)
	x.Release(taken)
	if got := names(peek(x, p, 9)); got != want {
		t.Errorf("after a Release, Peek shows %s, want %s", got, want)
	}
	if got := names(x.Take(p, 9)); got != want {
		t.Errorf("Take gives %s, want %s", got, want)
	}
	x.Release(taken)
	x.Prefer(nil)
	if got := x.Available(p); got != 5 {
		t.Errorf("%d are available after Prefer, want 5", got)
	}
}

func TestNewestRevisionBeforeThePreferred(t *testing.T) {
	p := Pool{Namespace: "ns", Name: "pool"}
	x := New()
	x.MarkTarget(p, "new")
	x.Prefer(func(_, name string) bool { return name == "old" })
	x.Upsert(Candidate{Pool: p, Name: "old", ResourceVersion: 1, Revision: "old"})
	x.Upsert(Candidate{Pool: p, Name: "new", ResourceVersion: 2, Revision: "new"})
	if got := names(x.Take(p, 2)); got != "new old" {
		t.Errorf("Take gives %s", got)
	}
}
