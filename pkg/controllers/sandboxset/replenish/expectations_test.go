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
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

var pool1, pool2 = types.NamespacedName{Namespace: "ns", Name: "1"}, types.NamespacedName{Namespace: "ns", Name: "2"}

func TestExpectations(t *testing.T) {
	tests := map[string]struct {
		do      func(x *expectations, c *clocktesting.FakePassiveClock)
		creates []types.UID
		deletes []types.UID
	}{
		"nothing": {do: func(*expectations, *clocktesting.FakePassiveClock) {}},
		"answer, then event": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.begin(pool1)
				x.created(pool1, "a", current)
				x.seen(pool1, "a")
			},
		},
		"answer, no event yet": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.begin(pool1)
				x.created(pool1, "a", current)
			},
			creates: []types.UID{"a"},
		},
		"event, then answer": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.begin(pool1)
				x.seen(pool1, "a")
				x.created(pool1, "a", current)
			},
		},
		"event, delete event, then answer": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.begin(pool1)
				x.seen(pool1, "a")
				x.gone("a")
				x.created(pool1, "a", current)
			},
		},
		"events of others do not count": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.begin(pool1)
				x.begin(pool1)
				x.seen(pool1, "other")
				x.created(pool1, "a", current)
				x.seen(pool2, "b")
				x.created(pool1, "b", current)
			},
			creates: []types.UID{"a", "b"},
		},
		"early ones are forgotten when nothing is on its way": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.begin(pool1)
				x.seen(pool1, "a")
				x.failed(pool1)
				x.begin(pool1)
				x.created(pool1, "a", current)
			},
			creates: []types.UID{"a"},
		},
		"created and deleted by others before it was seen": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.begin(pool1)
				x.created(pool1, "a", current)
				x.gone("a")
			},
		},
		"failed": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.begin(pool1)
				x.failed(pool1)
			},
		},
		"never seen": {
			do: func(x *expectations, c *clocktesting.FakePassiveClock) {
				x.begin(pool1)
				x.created(pool1, "a", current)
				x.deleting(pool1, "b")
				c.SetTime(c.Now().Add(expectationTTL + time.Second))
			},
		},
		"not seen for long": {
			do: func(x *expectations, c *clocktesting.FakePassiveClock) {
				x.begin(pool1)
				x.created(pool1, "a", current)
				x.deleting(pool1, "b")
				c.SetTime(c.Now().Add(expectationTTL))
			},
			creates: []types.UID{"a"}, deletes: []types.UID{"b"},
		},
		"deleting": {
			do:      func(x *expectations, _ *clocktesting.FakePassiveClock) { x.deleting(pool1, "a") },
			deletes: []types.UID{"a"},
		},
		"deleted": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.deleting(pool1, "a")
				x.gone("a")
			},
		},
		"kept": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.deleting(pool1, "a")
				x.kept("a")
			},
		},
		"another set": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.begin(pool2)
				x.created(pool2, "a", current)
				x.deleting(pool2, "b")
			},
		},
		"set gone": {
			do: func(x *expectations, _ *clocktesting.FakePassiveClock) {
				x.begin(pool1)
				x.created(pool1, "a", current)
				x.deleting(pool1, "b")
				x.forget(pool1)
				x.gone("a")
				x.seen(pool1, "a")
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakePassiveClock(epoch)
			x := newExpectations(c)
			test.do(x, c)
			creates, deletes := x.snapshot(pool1)
			if got := slices.Sorted(maps.Keys(creates)); !slices.Equal(got, test.creates) {
				t.Errorf("creates %v, want %v", got, test.creates)
			}
			if got := slices.Sorted(maps.Keys(deletes)); !slices.Equal(got, test.deletes) {
				t.Errorf("deletes %v, want %v", got, test.deletes)
			}
			if n, want := len(x.setOf), len(creates)+len(deletes); n != want && name != "another set" {
				t.Errorf("remembers %d sandboxes, want %d", n, want)
			}
		})
	}
}

// Answers and events of many creates in any order leave nothing behind.
func TestExpectationsConcurrently(t *testing.T) {
	x := newExpectations(clock.RealClock{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				uid := types.UID(fmt.Sprintf("%d-%d", i, j))
				x.begin(pool1)
				event := make(chan struct{})
				go func() {
					defer close(event)
					x.seen(pool1, uid)
				}()
				x.created(pool1, uid, current)
				<-event
				x.deleting(pool1, uid)
				x.snapshot(pool1)
				x.gone(uid)
			}
		})
	}
	wg.Wait()
	creates, deletes := x.snapshot(pool1)
	e := x.sets[pool1]
	if len(creates)+len(deletes)+len(x.setOf)+len(e.early)+e.onTheWay != 0 {
		t.Errorf("left: %v %v %v %v %d", creates, deletes, x.setOf, e.early, e.onTheWay)
	}
}
