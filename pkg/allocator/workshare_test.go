// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// woken are the turns that a workShare has woken, in order.
type woken []types.UID

func (w *woken) add(uid types.UID) { *w = append(*w, uid) }

// TestOneNamespaceLeavesWorkers checks that turns that do not end leave workers to others,
// and that what was put off comes when they end.
func TestOneNamespaceLeavesWorkers(t *testing.T) {
	var again woken
	s := newWorkShare(16, again.add)
	begins := func(namespace string) (n int) {
		for i := range 16 {
			if s.begin(namespace, types.UID(fmt.Sprint(namespace, i))) {
				n++
			}
		}
		return n
	}
	for _, tc := range []struct {
		namespace string
		want      int
	}{{"a", 8}, {"b", 4}, {"c", 2}, {"d", 1}} {
		if got := begins(tc.namespace); got != tc.want {
			t.Errorf("%s has %d turns at a time, want %d", tc.namespace, got, tc.want)
		}
	}
	for range 8 {
		s.end("a")
	}
	if first := again[0]; first[0] != 'd' {
		t.Errorf("%s is woken first, and d has the fewest turns", first)
	}
	for len(again) > 0 {
		uid := again[0]
		again = again[1:]
		s.begin(string(uid[0]), uid)
	}
	if free := s.workers - s.busy; free > 4 {
		t.Errorf("%d of %d workers are idle, and turns of four namespaces wait", free, s.workers)
	}
	for namespace, of := range s.shares {
		if s.mayBegin(of, s.busy) && len(of.putOff) > 0 {
			t.Errorf("%d turns of %s wait that may begin", len(of.putOff), namespace)
		}
	}
}

// TestTurnWaitsForNoOtherOfItsNamespace checks that a turn that was put off while all were
// busy begins when others are done, although a slow one of its namespace is not.
func TestTurnWaitsForNoOtherOfItsNamespace(t *testing.T) {
	var again woken
	s := newWorkShare(workers, again.add)
	if !s.begin("a", "slow") {
		t.Fatal("the first turn of a namespace does not begin")
	}
	other := func(i int) string { return fmt.Sprint("other-", i) }
	for i := range workers - 3 {
		s.begin(other(i), "x")
	}
	if s.begin("a", "quick") {
		t.Fatal("a has more than its share")
	}
	for i := range workers - 3 {
		s.end(other(i))
	}
	if !slices.Equal(again, woken{"quick"}) {
		t.Errorf("%v are woken, and %d of %d workers are idle", again, s.workers-s.busy, s.workers)
	}
}

// TestPutOffTurnsAtRandom checks that a turn that may begin does not stay put off, also if turns
// that were woken are not needed any more, and that all turns begin in the end.
func TestPutOffTurnsAtRandom(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var due woken
		s := newWorkShare(2+random.IntN(14), due.add)
		const turns = 100
		namespaceOf := func(uid types.UID) string { return string(uid[:1]) }
		var running []types.UID
		gone, ended := map[types.UID]bool{}, 0
		for i := range turns {
			due.add(types.UID(fmt.Sprint(string(rune('a'+random.IntN(5))), i)))
		}
		for len(due)+len(running) > 0 {
			if len(due) > 0 && (len(running) == 0 || random.IntN(3) > 0) && s.busy < s.workers {
				uid := due[0]
				due = due[1:]
				switch {
				case gone[uid]:
					ended++
					s.wake()
				case s.begin(namespaceOf(uid), uid):
					running = append(running, uid)
				case random.IntN(4) == 0:
					gone[uid] = true
				}
			} else {
				at := random.IntN(len(running))
				uid := running[at]
				running = slices.Delete(running, at, at+1)
				ended++
				s.end(namespaceOf(uid))
			}
			for namespace, of := range s.shares {
				if len(due) == 0 && len(of.putOff) > 0 && s.mayBegin(of, s.busy) {
					t.Fatalf("seed %d: of %d workers %d are busy, %s has %d, and %v wait", seed, s.workers, s.busy, namespace, of.turns, of.putOff)
				}
			}
		}
		if ended != turns || s.busy != 0 || len(s.shares) != 0 || s.waiting.Len() != 0 {
			t.Fatalf("seed %d: %d of %d turns came; %d are busy, left %v", seed, ended, turns, s.busy, s.shares)
		}
	}
}

// TestWorkLimit: there are no more turns than workers, of however many namespaces.
func TestWorkLimit(t *testing.T) {
	var again woken
	s := newWorkLimit(2, again.add)
	if !s.begin("a", "a") || !s.begin("b", "b") || s.begin("c", "c") {
		t.Fatal("there are not two turns")
	}
	s.end("a")
	if !slices.Equal(again, woken{"c"}) || !s.begin("c", "c") {
		t.Errorf("woken are %v", again)
	}
}

// TestReconcileCallsAll: the error of one subreconciler does not keep a claim from the others.
func TestReconcileCallsAll(t *testing.T) {
	d := newDesk(t)
	var called []string
	sub := func(name string, err error) subreconciler {
		return stubSubreconciler(func() (time.Duration, error) { called = append(called, name); return 0, err })
	}
	d.reconciler.subreconcilers = []subreconciler{sub("first", errDown), sub("second", nil)}
	d.reconciler.queue.Add("claim")
	d.reconciler.next(t.Context())
	if !slices.Equal(called, []string{"first", "second"}) || d.reconciler.queue.NumRequeues("claim") != 1 {
		t.Errorf("called %v, tried again %d times", called, d.reconciler.queue.NumRequeues("claim"))
	}
}

// stubSubreconciler has work on each claim.
type stubSubreconciler func() (time.Duration, error)

func (stubSubreconciler) namespaceOf(types.UID) string { return "ns" }

func (s stubSubreconciler) reconcile(context.Context, types.UID) (time.Duration, error) { return s() }

// TestDeletedClaimPassesTurnOn checks for each workShare that a claim that was put off, and that is
// gone when it is woken, leaves its turn to another claim.
func TestDeletedClaimPassesTurnOn(t *testing.T) {
	d := newDesk(t)
	for name, of := range map[string]struct {
		share *workShare
	}{
		"claims":   {d.reconciler.share},
		"setups":   {d.finisher.setupShare},
		"metadata": {d.reconciler.subreconcilers[2].(limited).share},
		"rebinds":  {d.reconciler.subreconcilers[1].(limited).share},
	} {
		t.Run(name, func(t *testing.T) {
			s := of.share
			s.workers = 4
			for _, other := range []string{"a", "b", "c"} {
				if !s.begin(other, "x") {
					t.Fatal("the first turn of a namespace does not begin")
				}
			}
			for _, uid := range []types.UID{"gone-1", "gone-2", "gone-3"} {
				if s.begin("a", uid) {
					t.Fatal("a has more than its share")
				}
			}
			s.end("b")
			s.end("c")
			if d.reconciler.queue.Len() == 0 {
				t.Fatal("none is woken")
			}
			for d.reconciler.queue.Len() > 0 {
				d.reconciler.next(t.Context())
			}
			if left := s.shares["a"].putOff; len(left) > 0 {
				t.Errorf("%v still wait, and %d of %d workers are idle", left, s.workers-s.busy, s.workers)
			}
		})
	}
}
