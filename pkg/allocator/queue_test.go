// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

var (
	somePool = poolindex.Pool{Namespace: "ns", Name: "pool"}
	fromPool = []source{{pool: somePool}}
)

type line struct {
	*testing.T
	index *poolindex.Index
	queue *queue
	next  uint64
}

func newLine(t *testing.T) *line {
	index := poolindex.New()
	return &line{T: t, index: index, queue: newQueue(index)}
}

// stock adds n sandboxes to the pool, as the feed does.
func (l *line) stock(n int) {
	for range n {
		l.next++
		l.index.Upsert(poolindex.Candidate{Pool: somePool, Name: fmt.Sprintf("sb-%03d", l.next), ResourceVersion: l.next})
		l.queue.Stocked(somePool)
	}
}

func (l *line) waiter(since int, atomic bool) (*waiter, chan struct{}) {
	wake := make(chan struct{}, 1)
	return &waiter{
		demanded: demanded{sources: fromPool, atomic: atomic}, wake: wake,
		ticket: ticket{since: time.Unix(int64(since), 0), uid: types.UID(fmt.Sprint(since))},
	}, wake
}

func (l *line) need(w *waiter, n int, yields bool) {
	l.queue.need(w, demanded{need: n, sources: w.sources, atomic: w.atomic, yields: yields})
}

func (l *line) expect(what string, got []poolindex.Candidate, want int) {
	l.Helper()
	if len(got) != want {
		l.Errorf("%s: got %d candidates, want %d", what, len(got), want)
	}
}

func TestQueueServesInOrderOfTickets(t *testing.T) {
	l := newLine(t)
	late, lateWake := l.waiter(2, false)
	early, earlyWake := l.waiter(1, false)
	l.need(late, 1, false)
	l.need(early, 2, false)

	l.stock(1)
	l.expect("the late one, after one came", l.queue.collect(late), 0)
	l.expect("the early one, after one came", l.queue.collect(early), 1)
	<-earlyWake
	l.stock(1)
	l.expect("the early one, after another came", l.queue.collect(early), 1)
	l.stock(1)
	l.expect("the late one, when the early one has all", l.queue.collect(late), 1)
	<-lateWake
	l.stock(1)
	l.expect("a newcomer, when nobody waits", l.queue.take(fromPool, 5, false), 1)
}

func TestQueueNewcomersDoNotOvertake(t *testing.T) {
	l := newLine(t)
	w, _ := l.waiter(1, true)
	l.need(w, 3, false)
	l.stock(2)
	l.expect("a newcomer, while one waits for three", l.queue.take(fromPool, 1, false), 0)
	l.expect("a preview, while one waits for three", l.queue.peek(fromPool, 1), 0)
	l.stock(1)
	l.expect("the one who waits for three", l.queue.collect(w), 3)
}

func TestQueueAtomic(t *testing.T) {
	l := newLine(t)
	l.stock(3)
	l.expect("four of three at once", l.queue.take(fromPool, 4, true), 0)
	if got := l.index.Available(somePool); got != 3 {
		t.Errorf("%d available after a take that got nothing, want 3", got)
	}
	l.expect("three of three at once", l.queue.take(fromPool, 3, true), 3)
}

func TestQueueAtomicBeyondThePoolYields(t *testing.T) {
	l := newLine(t)
	huge, _ := l.waiter(1, true)
	small, _ := l.waiter(2, false)
	l.need(huge, 100, true)
	l.need(small, 1, false)
	l.stock(1)
	l.expect("the small one behind one that can never be served", l.queue.collect(small), 1)
}

func TestQueueLeaveGivesBack(t *testing.T) {
	l := newLine(t)
	gone, _ := l.waiter(1, false)
	next, _ := l.waiter(2, false)
	l.need(gone, 2, false)
	l.need(next, 2, false)
	l.stock(1) // dealt to gone, not collected
	l.queue.leave(gone)
	l.expect("the next in line", l.queue.collect(next), 1)
	l.expect("the one who left", l.queue.collect(gone), 0)
	l.stock(1)
	l.expect("the next in line, again", l.queue.collect(next), 1)
}

func TestQueueReleaseServesWhoWaits(t *testing.T) {
	l := newLine(t)
	l.stock(2)
	taken := l.queue.take(fromPool, 2, false)
	w, _ := l.waiter(1, false)
	l.need(w, 1, false)
	l.queue.release(taken)
	l.expect("who waits", l.queue.collect(w), 1)
	if got := l.index.Available(somePool); got != 1 {
		t.Errorf("%d available, want the other one", got)
	}
}

func TestQueueNeedCountsWhatWasDealt(t *testing.T) {
	l := newLine(t)
	w, _ := l.waiter(1, false)
	l.need(w, 3, false)
	l.stock(2)
	l.need(w, 3, false) // two are dealt and not collected: one is missing
	l.stock(5)
	l.expect("who needs three", l.queue.collect(w), 3)
	if l.queue.inLine(w) {
		t.Error("still in line with all it needs")
	}
	l.need(w, 0, false)
	l.expect("a newcomer", l.queue.take(fromPool, 10, false), 4)
}
