// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// bench is a queue before an index that a test stocks.
type bench struct {
	*testing.T
	index *poolindex.Index
	queue *Queue
	clock *clocktesting.FakePassiveClock
	next  uint64
	// woken counts the wakes of each waiter.
	woken map[*Waiter]int
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, index: poolindex.New(), clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), woken: map[*Waiter]int{}}
	b.queue = New(b.index, b.clock)
	return b
}

func named(pool string) poolindex.Pool { return poolindex.Pool{Namespace: "ns", Name: pool} }

// from lists sources of rank 0 and, after a "/", of rank 1.
func from(pools ...string) []Source {
	var sources []Source
	rank := 0
	for _, pool := range pools {
		if pool == "/" {
			rank++
			continue
		}
		sources = append(sources, Source{Pool: named(pool), Rank: rank})
	}
	return sources
}

// stock adds n sandboxes to a pool one after the other, as the feed does.
func (b *bench) stock(pool string, n int) {
	for range n {
		b.next++
		b.index.Upsert(poolindex.Candidate{Pool: named(pool), Name: fmt.Sprintf("sb-%03d", b.next), ResourceVersion: b.next})
		b.queue.Stocked(named(pool))
	}
}

// waiter is the place of a claim that came at since seconds, not queued yet.
func (b *bench) waiter(since int64, uid types.UID) *Waiter {
	var w *Waiter
	w = NewWaiter(b.queue, Place{Namespace: "ns", Requester: "one", Since: time.Unix(since, 0), UID: uid}, func() { b.woken[w]++ })
	return w
}

// waits queues a claim that came at since seconds.
func (b *bench) waits(since, n int, atOnce bool, sources []Source) *Waiter {
	w := b.waiter(int64(since), types.UID(fmt.Sprint(since)))
	w.Wait(Wants{Need: n, Sources: sources, AtOnce: atOnce})
	return w
}

// takes is what a queued claim does in its turn.
func (b *bench) takes(w *Waiter) []poolindex.Candidate {
	return w.Take(w.wants.Need)
}

func (b *bench) pass(d time.Duration) {
	b.clock.SetTime(b.clock.Now().Add(d))
	b.queue.Tick()
}

func (b *bench) expect(what string, got []poolindex.Candidate, want int) {
	b.Helper()
	if len(got) != want {
		b.Errorf("%s: got %d candidates, want %d", what, len(got), want)
	}
}

func (b *bench) expectFrom(what string, got []poolindex.Candidate, want map[string]int) {
	b.Helper()
	counts := map[string]int{}
	for _, c := range got {
		counts[c.Pool.Name]++
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// expectWoken expects that a waiter was woken since it was last asked, or was not.
func (b *bench) expectWoken(what string, w *Waiter, want bool) {
	b.Helper()
	if got := b.woken[w] > 0; got != want {
		b.Errorf("%s: woken %t, want %t", what, got, want)
	}
	b.woken[w] = 0
}

func (b *bench) expectNoLines() {
	b.Helper()
	for _, sh := range b.queue.shards {
		if len(sh.lines)+len(sh.waiting)+len(sh.stocked) > 0 {
			b.Errorf("lines are left: %v, %v, %v", sh.lines, sh.waiting, sh.stocked)
		}
	}
}

func TestServesInOrder(t *testing.T) {
	b := newBench(t)
	pool := from("pool")
	late := b.waits(2, 1, false, pool)
	early := b.waits(1, 2, false, pool)

	b.stock("pool", 1)
	b.expectWoken("the early one, after one came", early, true)
	b.expectWoken("the late one, after one came", late, false)
	b.expect("the late one, after one came", b.takes(late), 0)
	b.expect("the early one, after one came", b.takes(early), 1)
	b.stock("pool", 1)
	b.expect("the early one, after another came", b.takes(early), 1)
	b.stock("pool", 1)
	b.expectWoken("the late one, when the early one has all", late, true)
	b.expect("the late one, when the early one has all", b.takes(late), 1)
	b.stock("pool", 1)
	b.expect("a newcomer, when none waits", b.queue.TakeFree(pool, 5, false), 1)
	b.expectNoLines()
}

// TestServesInOrderOfUIDs: claims of the same time are ordered alike by all servers.
func TestServesInOrderOfUIDs(t *testing.T) {
	for _, uids := range [][2]types.UID{{"a", "b"}, {"b", "a"}} {
		b := newBench(t)
		waiters := map[types.UID]*Waiter{}
		for _, uid := range uids {
			w := b.waiter(1, uid)
			w.Wait(Wants{Need: 1, Sources: from("pool")})
			waiters[uid] = w
		}
		b.stock("pool", 1)
		b.expectWoken("b", waiters["b"], false)
		b.expectWoken("a", waiters["a"], true)
		b.expect("b", b.takes(waiters["b"]), 0)
		b.expect("a", b.takes(waiters["a"]), 1)
	}
}

// TestEachWakesTheNext: one that has taken what it needs leaves the rest to the next.
func TestEachWakesTheNext(t *testing.T) {
	b := newBench(t)
	first, second := b.waits(1, 1, false, from("pool")), b.waits(2, 2, true, from("pool"))
	b.stock("pool", 3)
	b.expectWoken("the second, while the first may take", second, false)
	b.expect("the first", b.takes(first), 1)
	b.expectWoken("the second", second, true)
	b.expect("the second", b.takes(second), 2)
	if got := b.queue.Demands(); len(got) != 0 {
		t.Errorf("demands are left: %v", got)
	}
}

func TestNewcomersDoNotOvertake(t *testing.T) {
	b := newBench(t)
	pool := from("pool")
	w := b.waits(1, 3, true, pool)
	b.stock("pool", 2)
	b.expectWoken("who waits for three, of two", w, false)
	b.expect("a newcomer, while one waits for three", b.queue.TakeFree(pool, 1, false), 0)
	b.expect("a preview, while one waits for three", b.queue.Peek(pool, 1), 0)
	if free, stock := b.queue.Free(pool), b.index.Available(pool[0].Pool); free != 0 || stock != 2 {
		t.Errorf("%d of %d are free", free, stock)
	}
	if got := b.queue.Before(pool, 5); !slices.Equal(got, []types.UID{"1"}) {
		t.Errorf("before a newcomer are %v", got)
	}
	b.stock("pool", 1)
	b.expectWoken("who waits for three", w, true)
	b.expect("who waits for three", b.takes(w), 3)
}

// TestBefore: those for which stock is kept, each once, and only where there is some.
func TestBefore(t *testing.T) {
	b := newBench(t)
	b.waits(1, 5, true, from("x", "y"))
	b.waits(2, 1, false, from("y"))
	b.waits(3, 1, false, from("z"))
	sources := from("x", "y", "z", "free")
	if got := b.queue.Before(sources, 9); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
	b.stock("x", 1)
	b.stock("y", 1)
	b.stock("free", 1)
	if got := b.queue.Before(sources, 9); !slices.Equal(got, []types.UID{"1", "2"}) {
		t.Errorf("before a newcomer are %v", got)
	}
	if got := b.queue.Before(sources, 1); !slices.Equal(got, []types.UID{"1"}) {
		t.Errorf("the first of them is %v", got)
	}
	if free := b.queue.Free(sources); free != 1 {
		t.Errorf("%d are free", free)
	}
}

func TestAtOnce(t *testing.T) {
	b := newBench(t)
	pool := from("pool")
	b.stock("pool", 3)
	b.expect("four of three at once", b.queue.TakeFree(pool, 4, true), 0)
	if got := b.index.Available(named("pool")); got != 3 {
		t.Errorf("%d available after a take that got nothing, want 3", got)
	}
	b.expect("three of three at once", b.queue.TakeFree(pool, 3, true), 3)
}

func TestBeyondThePoolYields(t *testing.T) {
	b := newBench(t)
	huge := b.waiter(1, "huge")
	huge.Wait(Wants{Need: 100, Sources: from("pool"), AtOnce: true, Yields: true})
	small := b.waits(2, 1, false, from("pool"))
	b.stock("pool", 1)
	b.expectWoken("the small one behind one that can never be served", small, true)
	b.expect("the small one behind one that can never be served", b.takes(small), 1)
	b.expectWoken("the huge one", huge, false)
}

// TestYieldingKeepsOnlyWhatItCanHave: what is kept for another is not stock that who
// yields waits for.
func TestYieldingKeepsOnlyWhatItCanHave(t *testing.T) {
	b := newBench(t)
	first := b.waits(1, 3, true, from("y"))
	yields := b.waiter(2, "yields")
	yields.Wait(Wants{Need: 3, Sources: from("x", "y"), AtOnce: true, Yields: true})
	b.stock("y", 2)
	b.stock("x", 1)
	b.expect("a newcomer to y", b.queue.TakeFree(from("y"), 1, false), 0)
	b.expectFrom("a newcomer to x", b.queue.TakeFree(from("x"), 1, false), map[string]int{"x": 1})
	first.Leave()
	b.stock("x", 1)
	behind := b.waits(3, 1, false, from("x"))
	b.expect("a newcomer, when it can be served", b.queue.TakeFree(from("x"), 1, false), 0)
	b.expect("who stands behind it then", b.takes(behind), 0)
	b.expectWoken("who yields", yields, true)
	b.expectFrom("who yields", b.takes(yields), map[string]int{"x": 1, "y": 2})
}

func TestLeaveLetsTheNext(t *testing.T) {
	b := newBench(t)
	gone, next := b.waits(1, 2, false, from("pool")), b.waits(2, 2, false, from("pool"))
	b.stock("pool", 1)
	gone.Leave()
	b.expectWoken("the next in line", next, true)
	b.expect("the one who left", b.takes(gone), 0)
	b.expect("the next in line", b.takes(next), 1)
	b.stock("pool", 1)
	b.expect("the next in line, again", b.takes(next), 1)
	b.expectNoLines()
}

// TestAnswersServeWhoWaits: what is given back is for who waits, and so is what the
// feed has reported of a sandbox while it was taken.
func TestAnswersServeWhoWaits(t *testing.T) {
	answers := map[string]func(*Queue, []poolindex.Candidate){
		"released":  func(q *Queue, cs []poolindex.Candidate) { q.Release(cs) },
		"discarded": func(q *Queue, cs []poolindex.Candidate) { q.Discard(cs...) },
		"bound":     func(q *Queue, cs []poolindex.Candidate) { q.Bound(cs, 50) },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.stock("pool", 2)
			taken := b.queue.TakeFree(from("pool"), 2, false)
			w := b.waits(1, 1, false, from("pool"))
			for _, c := range taken {
				c.ResourceVersion = 100 // it was released again, by its claim or by another server's
				b.index.Upsert(c)
			}
			b.expectWoken("who waits, before the answer", w, false)
			answer(b.queue, taken)
			b.expectWoken("who waits", w, true)
			b.expect("who waits", b.takes(w), 1)
			if got := b.index.Available(named("pool")); got != 1 {
				t.Errorf("%d available, want the other one", got)
			}
		})
	}
}

// TestDemandsOfThisServer checks that the demand is of the claims that this server works
// on, and goes with them.
func TestDemandsOfThisServer(t *testing.T) {
	b := newBench(t)
	mine, others := b.waits(1, 3, false, from("pool")), b.waiter(2, "2")
	expect := func(what string, want Demand) {
		t.Helper()
		if got := b.queue.Demands()[named("pool")]; got != want {
			t.Errorf("%s: the demand is %+v, want %+v", what, got, want)
		}
	}
	wants := func(need int) Wants { return Wants{Need: need, Sources: from("pool")} }
	others.Watch(wants(5))
	expect("one of each", Demand{1, 3})
	mine.Watch(wants(2))
	expect("another server takes over", Demand{})
	others.Wait(wants(4))
	expect("this one takes over", Demand{1, 4})
	mine.Wait(wants(1))
	expect("both are of this server", Demand{2, 5})
	others.Leave()
	expect("one leaves", Demand{1, 1})
	mine.Served(1)
	expect("none is left", Demand{})
}

// TestTakeCounts: what a waiter takes it needs no longer, and it stays in its place for
// the rest.
func TestTakeCounts(t *testing.T) {
	b := newBench(t)
	w := b.waits(1, 3, false, from("pool"))
	b.stock("pool", 2)
	b.expect("who needs three", b.takes(w), 2)
	if d := b.queue.Demands()[named("pool")]; d != (Demand{Claims: 1, Sandboxes: 1}) {
		t.Errorf("the demand is %+v", d)
	}
	b.stock("pool", 5)
	b.expect("who needs one more", w.Take(1), 1)
	b.expectNoLines()
	b.expect("a newcomer", b.queue.TakeFree(from("pool"), 10, false), 4)
}

func TestTakesInOrderOfPreference(t *testing.T) {
	b := newBench(t)
	b.stock("a", 2)
	b.stock("b", 3)
	b.stock("c", 9)
	sources := from("a", "b", "/", "c")
	b.expectFrom("a preview", b.queue.Peek(sources, 6), map[string]int{"a": 2, "b": 3, "c": 1})
	b.expectFrom("the first", b.queue.TakeFree(sources, 2, false), map[string]int{"b": 2})
	b.expectFrom("the next", b.queue.TakeFree(sources, 4, true), map[string]int{"a": 2, "b": 1, "c": 1})
	b.expect("more than there is, at once", b.queue.TakeFree(sources, 9, true), 0)
	b.expectFrom("more than there is", b.queue.TakeFree(sources, 9, false), map[string]int{"c": 8})
}

func TestInOrder(t *testing.T) {
	stock := map[string]int{"a": 1, "b": 3, "c": 9, "d": 9, "e": 3}
	var got []string
	var open []supply
	for _, s := range from("a", "b", "e", "/", "c", "d") {
		open = append(open, supply{Source: s, available: stock[s.Pool.Name]})
	}
	for _, s := range inOrder(open) {
		got = append(got, s.Pool.Name)
	}
	if want := []string{"b", "e", "a", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSeveralPools(t *testing.T) {
	b := newBench(t)
	either := b.waits(1, 2, false, from("a", "b"))
	onlyB := b.waits(2, 1, false, from("b"))
	b.stock("b", 1)
	b.expect("who came last", b.takes(onlyB), 0)
	b.expectFrom("who came first", b.takes(either), map[string]int{"b": 1})
	b.expect("a newcomer", b.queue.TakeFree(from("a", "b"), 1, false), 0)
	b.expect("a newcomer to another pool", b.queue.TakeFree(from("c"), 1, false), 0)
	b.stock("a", 1)
	b.expectFrom("who came first, again", b.takes(either), map[string]int{"a": 1})
	b.stock("a", 1) // none waits for it any more
	b.expect("who waits for the other pool", b.takes(onlyB), 0)
	b.stock("b", 1)
	b.expect("who waits for the other pool", b.takes(onlyB), 1)
	b.expectFrom("a newcomer at last", b.queue.TakeFree(from("a", "b"), 2, false), map[string]int{"a": 1})
}

// TestWorkedExample is the one of the package's description.
func TestWorkedExample(t *testing.T) {
	b := newBench(t)
	first := b.waits(1, 2, true, from("y"))
	last := b.waits(2, 3, true, from("x", "y"))
	b.stock("x", 2)
	b.stock("y", 1)
	b.expect("who came last, of what is kept for another", b.takes(last), 0)
	b.expect("a newcomer", b.queue.TakeFree(from("x"), 1, false), 0)
	b.stock("y", 2)
	b.expectWoken("who came first", first, true)
	b.expectFrom("who came first", b.takes(first), map[string]int{"y": 2})
	b.expectWoken("who came last", last, true)
	b.expectFrom("who came last", b.takes(last), map[string]int{"x": 2, "y": 1})

	alone := newBench(t)
	alone.waits(1, 2, true, from("y"))
	last = alone.waits(2, 3, true, from("x", "y"))
	alone.stock("x", 3)
	alone.expectWoken("who came last, of what x has alone", last, true)
	alone.expectFrom("who came last, of what x has alone", alone.takes(last), map[string]int{"x": 3})
}

func TestLeavingSeveralLines(t *testing.T) {
	b := newBench(t)
	first := b.waits(1, 5, true, from("x", "y"))
	inX, inY := b.waits(2, 1, false, from("x")), b.waits(3, 1, false, from("y"))
	b.stock("x", 1)
	b.stock("y", 1)
	b.expect("behind who needs five", append(b.takes(inX), b.takes(inY)...), 0)
	first.Leave()
	b.expectWoken("in x, when it has left", inX, true)
	b.expectWoken("in y, when it has left", inY, true)
	b.expect("in x, when it has left", b.takes(inX), 1)
	b.expect("in y, when it has left", b.takes(inY), 1)
	b.expectNoLines()
}

// TestChangesLines: the sets of a template may change while a claim waits.
func TestChangesLines(t *testing.T) {
	b := newBench(t)
	w := b.waits(1, 2, false, nil)
	behind := b.waits(2, 1, false, from("a"))
	if got := b.queue.Demands(); len(got) != 2 || got[poolindex.Pool{Namespace: "ns"}].Claims != 1 {
		t.Errorf("demands are %v, want one of no pool and one of a", got)
	}
	b.stock("b", 1)
	w.Wait(Wants{Need: 2, Sources: from("a", "b")})
	b.expectWoken("who asks and takes for itself", w, false)
	b.expectFrom("of the pool that was added", b.takes(w), map[string]int{"b": 1})
	b.stock("a", 1)
	b.expectWoken("who is behind it", behind, false)
	w.Wait(Wants{Need: 1, Sources: from("b")})
	b.expectWoken("who is first where the other has left", behind, true)
	b.expect("who is first where the other has left", b.takes(behind), 1)
	w.Leave()
	b.expectNoLines()
}
