// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"
	"time"
)

// TestWhoDoesNotTakeBlocksNone: the server that works on a claim may be gone.
func TestWhoDoesNotTakeBlocksNone(t *testing.T) {
	b := newBench(t)
	pool := from("pool")
	silent, next := b.waits(1, 1, false, pool), b.waits(2, 1, false, pool)
	b.stock("pool", 3)
	b.pass(takeWithin)
	b.expectWoken("the next in line, while it may be taken", next, false)
	b.expect("a newcomer, while it may be taken", b.queue.TakeFree(pool, 1, false), 0)
	b.pass(time.Millisecond)
	b.expectWoken("the next in line", next, true)
	b.woken[silent] = 0
	b.expect("a newcomer, before the next in line", b.queue.TakeFree(pool, 1, false), 0)
	b.expect("the next in line", b.takes(next), 1)
	b.expect("a newcomer", b.queue.TakeFree(pool, 1, false), 1)
	b.pass(0)
	b.expectWoken("who could have had something for long, when none is before it", silent, true)
	b.expect("who could have had something for long", b.takes(silent), 1)
	b.expectNoLines()
}

// TestTimeToTake begins anew with whatever shows that a waiter is served.
func TestTimeToTake(t *testing.T) {
	pool := from("pool")
	again := map[string]func(b *bench, w *Waiter){
		"it takes": func(b *bench, w *Waiter) { w.Take(1) },
		"it needs less, because another server has taken for it": func(b *bench, w *Waiter) {
			w.Wait(Wants{Need: 2, Sources: pool})
		},
		"there was nothing in between": func(b *bench, _ *Waiter) {
			for _, name := range []string{"sb-001", "sb-002"} {
				b.index.Remove("ns", name, 90)
			}
			b.stock("pool", 1)
		},
		"there was nothing at a tick, and then much at once": func(b *bench, _ *Waiter) {
			cs := b.index.Take(named("pool"), 2)
			b.pass(0)
			b.index.Release(cs)
			b.queue.Stocked(named("pool"))
		},
		"it stands in other lines": func(b *bench, w *Waiter) {
			w.Wait(Wants{Need: 3, Sources: from("other")})
			w.Wait(Wants{Need: 3, Sources: pool})
		},
	}
	for name, tc := range again {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			w := b.waits(1, 3, false, pool)
			b.stock("pool", 2)
			b.pass(takeWithin)
			tc(b, w)
			b.pass(takeWithin)
			b.expect("a newcomer", b.queue.TakeFree(pool, 1, false), 0)
			b.pass(time.Millisecond)
			b.expect("a newcomer, after that time again", b.queue.TakeFree(pool, 1, false), 1)
		})
	}
	t.Run("it was not enough any more", func(t *testing.T) {
		b := newBench(t)
		b.waits(1, 2, true, pool)
		b.stock("pool", 2)
		b.pass(takeWithin)
		b.index.Remove("ns", "sb-001", 90)
		b.pass(time.Second)
		b.stock("pool", 1)
		b.expect("a newcomer", b.queue.TakeFree(pool, 1, false), 0)
	})
}

// TestWhoGathersForLongLetsOthersPass: it may never have enough, and when it has it
// comes first again.
func TestWhoGathersForLongLetsOthersPass(t *testing.T) {
	b := newBench(t)
	pool := from("pool")
	gathers, next := b.waits(1, 3, true, pool), b.waits(2, 1, false, pool)
	b.stock("pool", 2)
	b.pass(gatherWithin)
	b.expectWoken("the next in line, while it gathers", next, false)
	b.expect("the next in line, while it gathers", b.takes(next), 0)
	b.pass(time.Millisecond)
	b.expectWoken("the next in line", next, true)
	b.expect("the next in line", b.takes(next), 1)
	b.expect("a newcomer", b.queue.TakeFree(pool, 1, false), 1)

	behind := b.waits(3, 1, false, pool)
	b.stock("pool", 1)
	b.expectWoken("another behind it, of what is not enough", behind, true)
	b.stock("pool", 2)
	b.expectWoken("who gathered, when there is enough", gathers, true)
	b.expect("a newcomer then", b.queue.TakeFree(pool, 1, false), 0)
	b.expect("another behind it then", b.takes(behind), 0)
	b.expect("who gathered", b.takes(gathers), 3)
}

// TestGatheringBeginsAnew with what a waiter gets.
func TestGatheringBeginsAnew(t *testing.T) {
	b := newBench(t)
	pool := from("pool")
	w := b.waits(1, 3, true, pool)
	b.stock("pool", 1)
	b.pass(gatherWithin)
	w.Watch(Wants{Need: 2, Has: 1, Sources: pool, AtOnce: true})
	b.pass(gatherWithin)
	b.expect("a newcomer, while it gathers again", b.queue.TakeFree(pool, 1, false), 0)
	b.pass(time.Millisecond)
	b.expect("a newcomer, after that time again", b.queue.TakeFree(pool, 1, false), 1)
}

// TestHungClaimsCostLittle: claims whose servers are gone do not have what comes one
// after the other, each time that there is something again.
func TestHungClaimsCostLittle(t *testing.T) {
	b := newBench(t)
	pool := from("pool")
	const hung = 5
	for i := range hung {
		b.waits(i, 1, false, pool)
	}
	b.stock("pool", 1)
	for range hung {
		b.pass(takeWithin + time.Millisecond)
	}
	b.expect("a newcomer, when all are aside", b.queue.TakeFree(pool, 1, false), 1)

	b.stock("pool", 1)
	b.expect("a newcomer, while the oldest may take again", b.queue.TakeFree(pool, 1, false), 0)
	b.pass(takeWithin + time.Millisecond)
	b.expect("a newcomer after that", b.queue.TakeFree(pool, 1, false), 1)

	live := b.waits(hung, 2, false, pool)
	for range 2 {
		b.stock("pool", 1)
		b.expectWoken("one whose server is there", live, true)
		b.expect("one whose server is there", b.takes(live), 1)
	}
}

// TestComesBackWithoutArrears: who was aside has turns like the others from then on, and
// not at once all that it missed.
func TestComesBackWithoutArrears(t *testing.T) {
	b := newBench(t)
	pool := from("pool")
	silent := b.waits(1, 100, false, pool)
	b.stock("pool", 1)
	b.pass(takeWithin + time.Millisecond)
	busy := NewWaiter(b.queue, Place{Namespace: "ns", Requester: "two", Since: time.Unix(2, 0), UID: "busy"}, func() {})
	busy.Wait(Wants{Need: 100, Sources: pool})
	b.stock("pool", 49)
	b.expect("who takes while the other is aside", b.takes(busy), 50)

	b.takes(silent)
	b.stock("pool", 20)
	for b.index.Available(named("pool")) > 0 {
		silent.Take(1)
		busy.Take(1)
	}
	if got := 100 - silent.wants.Need; got < 9 || got > 11 {
		t.Errorf("of 20 it got %d when it was back", got)
	}
}
