// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestExpectations(t *testing.T) {
	tests := map[string]struct {
		do               func(*expectations)
		after            time.Duration
		creates, deletes []types.UID
	}{
		"nothing": {do: func(*expectations) {}},
		"answer, then event": {do: func(e *expectations) {
			e.expectCreate()
			e.created("a", current, epoch)
			e.createObserved("a")
		}},
		"answer, no event yet": {do: func(e *expectations) {
			e.expectCreate()
			e.created("a", current, epoch)
		}, creates: []types.UID{"a"}},
		"event, then answer": {do: func(e *expectations) {
			e.expectCreate()
			e.createObserved("a")
			e.created("a", current, epoch)
		}},
		"event, delete event, then answer": {do: func(e *expectations) {
			e.expectCreate()
			e.createObserved("a")
			e.deleteObserved("a")
			e.created("a", current, epoch)
		}},
		"events of others do not count": {do: func(e *expectations) {
			e.expectCreate()
			e.createObserved("other")
			e.created("a", current, epoch)
		}, creates: []types.UID{"a"}},
		"early ones are forgotten when nothing is in flight": {do: func(e *expectations) {
			e.expectCreate()
			e.createObserved("a")
			e.createFailed()
			e.expectCreate()
			e.created("a", current, epoch)
		}, creates: []types.UID{"a"}},
		"created and deleted by others before it was observed": {do: func(e *expectations) {
			e.expectCreate()
			e.created("a", current, epoch)
			e.deleteObserved("a")
		}},
		"failed": {do: func(e *expectations) {
			e.expectCreate()
			e.createFailed()
		}},
		"never observed": {do: func(e *expectations) {
			e.expectCreate()
			e.created("a", current, epoch)
			e.expectDelete("b", epoch)
		}, after: expectationTTL + time.Second},
		"not observed for long": {do: func(e *expectations) {
			e.expectCreate()
			e.created("a", current, epoch)
			e.expectDelete("b", epoch)
		}, after: expectationTTL, creates: []types.UID{"a"}, deletes: []types.UID{"b"}},
		"deleting": {do: func(e *expectations) { e.expectDelete("a", epoch) }, deletes: []types.UID{"a"}},
		"deleted, or the delete failed": {do: func(e *expectations) {
			e.expectDelete("a", epoch)
			e.deleteObserved("a")
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newExpectations()
			test.do(&e)
			creates, deletes := e.snapshot(epoch.Add(test.after))
			if got := slices.Sorted(maps.Keys(creates)); !slices.Equal(got, test.creates) {
				t.Errorf("creates %v, want %v", got, test.creates)
			}
			if got := slices.Sorted(maps.Keys(deletes)); !slices.Equal(got, test.deletes) {
				t.Errorf("deletes %v, want %v", got, test.deletes)
			}
			if len(e.creates) != len(creates) || len(e.deletes) != len(deletes) {
				t.Errorf("remembers %v, %v", e.creates, e.deletes)
			}
		})
	}
}

// Answers and events of many creates in any order leave nothing behind.
func TestExpectationsConcurrently(t *testing.T) {
	states, set := newSetStates(time.Second), makeSet(0)
	states.track(set)
	do := func(f func(*expectations)) {
		states.withState(types.NamespacedName{Namespace: set.Namespace, Name: set.Name}, func(s *setState) { f(&s.expectations) })
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				uid := types.UID(fmt.Sprintf("%d-%d", i, j))
				do(func(e *expectations) { e.expectCreate() })
				event := make(chan struct{})
				go func() {
					defer close(event)
					do(func(e *expectations) { e.createObserved(uid) })
				}()
				do(func(e *expectations) { e.created(uid, current, epoch) })
				<-event
				do(func(e *expectations) { e.expectDelete(uid, epoch) })
				do(func(e *expectations) { e.snapshot(epoch) })
				do(func(e *expectations) { e.deleteObserved(uid) })
			}
		})
	}
	wg.Wait()
	do(func(e *expectations) {
		if len(e.creates)+len(e.deletes)+len(e.early)+e.inFlight != 0 {
			t.Errorf("left: %+v", *e)
		}
	})
}
