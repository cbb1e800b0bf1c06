// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// woken are the tasks that a WorkShare has woken, in order.
type woken []types.UID

func (w *woken) add(uid types.UID) { *w = append(*w, uid) }

// TestOneNamespaceLeavesWorkers checks that tasks that do not end leave workers to others,
// and that what was deferred comes when they end.
func TestOneNamespaceLeavesWorkers(t *testing.T) {
	var again woken
	s := NewWorkShare(16, again.add)
	begins := func(namespace string) (n int) {
		for i := range 16 {
			if s.Begin(namespace, types.UID(fmt.Sprint(namespace, i))) {
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
			t.Errorf("%s has %d tasks at a time, want %d", tc.namespace, got, tc.want)
		}
	}
	for range 8 {
		s.End("a")
	}
	if first := again[0]; first[0] != 'd' {
		t.Errorf("%s is woken first, and d has the fewest tasks", first)
	}
	for len(again) > 0 {
		uid := again[0]
		again = again[1:]
		s.Begin(string(uid[0]), uid)
	}
	if free := s.workers - s.busy; free > 4 {
		t.Errorf("%d of %d workers are idle, and tasks of four namespaces wait", free, s.workers)
	}
	for namespace, of := range s.shares {
		if s.mayBegin(of, s.busy) && len(of.deferred) > 0 {
			t.Errorf("%d tasks of %s wait that may begin", len(of.deferred), namespace)
		}
	}
}

// TestTaskWaitsForNoOtherOfItsNamespace checks that a task that was deferred while all
// were busy begins when others are done, although a slow one of its namespace is not.
func TestTaskWaitsForNoOtherOfItsNamespace(t *testing.T) {
	const workers = 512
	var again woken
	s := NewWorkShare(workers, again.add)
	if !s.Begin("a", "slow") {
		t.Fatal("the first task of a namespace does not begin")
	}
	other := func(i int) string { return fmt.Sprint("other-", i) }
	for i := range workers - 3 {
		s.Begin(other(i), "x")
	}
	if s.Begin("a", "quick") {
		t.Fatal("a has more than its share")
	}
	for i := range workers - 3 {
		s.End(other(i))
	}
	if !slices.Equal(again, woken{"quick"}) {
		t.Errorf("%v are woken, and %d of %d workers are idle", again, s.workers-s.busy, s.workers)
	}
}

// TestDeferredTasksAtRandom checks that a task that may begin does not stay deferred, also if tasks
// that were woken are not needed any more, and that all tasks begin in the end.
func TestDeferredTasksAtRandom(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var due woken
		s := NewWorkShare(2+random.IntN(14), due.add)
		const tasks = 100
		namespaceOf := func(uid types.UID) string { return string(uid[:1]) }
		var running []types.UID
		gone, ended := map[types.UID]bool{}, 0
		for i := range tasks {
			due.add(types.UID(fmt.Sprint(string(rune('a'+random.IntN(5))), i)))
		}
		for len(due)+len(running) > 0 {
			if len(due) > 0 && (len(running) == 0 || random.IntN(3) > 0) && s.busy < s.workers {
				uid := due[0]
				due = due[1:]
				switch {
				case gone[uid]:
					ended++
					s.Wake()
				case s.Begin(namespaceOf(uid), uid):
					running = append(running, uid)
				case random.IntN(4) == 0:
					gone[uid] = true
				}
			} else {
				at := random.IntN(len(running))
				uid := running[at]
				running = slices.Delete(running, at, at+1)
				ended++
				s.End(namespaceOf(uid))
			}
			for namespace, of := range s.shares {
				if len(due) == 0 && len(of.deferred) > 0 && s.mayBegin(of, s.busy) {
					t.Fatalf("seed %d: of %d workers %d are busy, %s has %d, and %v wait", seed, s.workers, s.busy, namespace, of.running, of.deferred)
				}
			}
		}
		if ended != tasks || s.busy != 0 || len(s.shares) != 0 || s.waiting.Len() != 0 {
			t.Fatalf("seed %d: %d of %d tasks came; %d are busy, left %v", seed, ended, tasks, s.busy, s.shares)
		}
	}
}

// TestWorkLimit: there are no more tasks than workers, of however many namespaces.
func TestWorkLimit(t *testing.T) {
	var again woken
	s := NewWorkLimit(2, again.add)
	if !s.Begin("a", "a") || !s.Begin("b", "b") || s.Begin("c", "c") {
		t.Fatal("there are not two tasks")
	}
	s.End("a")
	if !slices.Equal(again, woken{"c"}) || !s.Begin("c", "c") {
		t.Errorf("woken are %v", again)
	}
}
