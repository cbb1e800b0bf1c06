// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// TestAhead: within a requester it is the number of those that came before; requesters take
// turns.
func TestAhead(t *testing.T) {
	q := New(poolindex.New(), clocktesting.NewFakePassiveClock(time.Unix(1000, 0)))
	pool := poolindex.Pool{Namespace: "ns", Name: "pool"}
	sources := []Source{{Pool: pool}}
	var woken []string
	waiter := func(requester string, number int) *Waiter {
		name := fmt.Sprintf("%s%02d", requester, number)
		return NewWaiter(q, Place{Namespace: "ns", Requester: requester, Since: time.Unix(int64(number), 0), UID: types.UID(name)},
			func() { woken = append(woken, name) })
	}
	stands := func(w *Waiter) *Waiter {
		w.Wait(Wants{Need: 1, Sources: sources, Asked: "pool/"})
		return w
	}
	check := func(what string, w *Waiter, most, want int) {
		t.Helper()
		if got, ok := w.Ahead(most); got != want || !ok {
			t.Errorf("%s: %d before it, %t, want %d", what, got, ok, want)
		}
	}
	if n, ok := waiter("a", 0).Ahead(100); ok {
		t.Errorf("%d are before one that is not in line", n)
	}
	var a []*Waiter
	for i := range 30 {
		a = append(a, stands(waiter("a", i)))
	}
	check("the first", a[0], 11, 0)
	check("the sixth", a[5], 11, 5)
	check("the last, as far as is asked for", a[29], 11, 11)
	check("the last", a[29], 100, 29)
	b := stands(waiter("b", 40))
	check("it stands in line", b, 100, 1)
	check("the sixth, after a turn of the other", a[5], 100, 6)

	a[0].Leave()
	check("the next", a[1], 11, 0)
	q.WakeFront(3)
	if len(woken) > 0 {
		t.Errorf("without WakeFrontLater, woken are %v", woken)
	}
	q.WakeFrontLater(pool)
	q.WakeFront(3)
	if slices.Sort(woken); !slices.Equal(woken, []string{"a01", "a02", "a03"}) {
		t.Errorf("after WakeFrontLater, woken are %v", woken)
	}
	woken = nil
	if q.WakeFront(3); len(woken) > 0 {
		t.Errorf("a second time, woken are %v", woken)
	}
}
