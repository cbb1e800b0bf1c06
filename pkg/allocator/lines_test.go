// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

func named(pool string) poolindex.Pool { return poolindex.Pool{Namespace: "ns", Name: pool} }

// from lists sources of rank 0 and, after a "/", of rank 1.
func from(pools ...string) []source {
	var sources []source
	rank := 0
	for _, pool := range pools {
		if pool == "/" {
			rank++
			continue
		}
		sources = append(sources, source{pool: named(pool), rank: rank})
	}
	return sources
}

func (l *line) stockOf(pool string, n int) {
	for range n {
		l.next++
		l.index.Upsert(poolindex.Candidate{Pool: named(pool), Name: fmt.Sprintf("%s-%03d", pool, l.next), ResourceVersion: l.next})
		l.queue.Stocked(named(pool))
	}
}

func (l *line) waits(since, n int, atomic bool, sources []source) *waiter {
	w := &waiter{ticket: ticket{since: time.Unix(int64(since), 0)}, wake: make(chan struct{}, 1)}
	l.queue.need(w, demanded{need: n, sources: sources, atomic: atomic})
	return w
}

func (l *line) expectFrom(what string, got []poolindex.Candidate, want map[string]int) {
	l.Helper()
	counts := map[string]int{}
	for _, c := range got {
		counts[c.Pool.Name]++
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		l.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestQueueTakesInOrderOfPreference(t *testing.T) {
	l := newLine(t)
	l.stockOf("a", 2)
	l.stockOf("b", 3)
	l.stockOf("c", 9)
	sources := from("a", "b", "/", "c")
	l.expectFrom("a preview", l.queue.peek(sources, 6), map[string]int{"a": 2, "b": 3, "c": 1})
	l.expectFrom("the first", l.queue.take(sources, 2, false), map[string]int{"b": 2})
	l.expectFrom("the next", l.queue.take(sources, 4, true), map[string]int{"a": 2, "b": 1, "c": 1})
	l.expect("more than there is, at once", l.queue.take(sources, 9, true), 0)
	l.expectFrom("more than there is", l.queue.take(sources, 9, false), map[string]int{"c": 8})
}

func TestQueueOfSeveralPools(t *testing.T) {
	l := newLine(t)
	either := l.waits(1, 2, false, from("a", "b"))
	onlyB := l.waits(2, 1, false, from("b"))
	l.stockOf("b", 1)
	l.expectFrom("who came first", l.queue.collect(either), map[string]int{"b": 1})
	l.expect("a newcomer", l.queue.take(from("a", "b"), 1, false), 0)
	l.expect("a newcomer to another pool", l.queue.take(from("c"), 1, false), 0)
	l.stockOf("a", 1)
	l.expectFrom("who came first, again", l.queue.collect(either), map[string]int{"a": 1})
	l.stockOf("a", 1) // nobody waits for it any more
	l.expect("who waits for the other pool", l.queue.collect(onlyB), 0)
	l.stockOf("b", 1)
	l.expect("who waits for the other pool", l.queue.collect(onlyB), 1)
	l.expectFrom("a newcomer at last", l.queue.take(from("a", "b"), 2, false), map[string]int{"a": 1})
}

// TestQueueWorkedExample is the one of the queue's description.
func TestQueueWorkedExample(t *testing.T) {
	l := newLine(t)
	a := l.waits(1, 2, true, from("y"))
	b := l.waits(2, 3, true, from("x", "y"))
	l.stockOf("x", 2)
	l.stockOf("y", 1)
	l.expect("who came last, of what is kept for another", l.queue.collect(b), 0)
	l.expect("a newcomer", l.queue.take(from("x"), 1, false), 0)
	l.stockOf("y", 2)
	l.expectFrom("who came first", l.queue.collect(a), map[string]int{"y": 2})
	l.expectFrom("who came last", l.queue.collect(b), map[string]int{"x": 2, "y": 1})
}

func TestQueueLeavingSeveralLines(t *testing.T) {
	l := newLine(t)
	first := l.waits(1, 5, true, from("x", "y"))
	inX, inY := l.waits(2, 1, false, from("x")), l.waits(3, 1, false, from("y"))
	l.stockOf("x", 1)
	l.stockOf("y", 1)
	l.expect("behind who needs five", append(l.queue.collect(inX), l.queue.collect(inY)...), 0)
	l.queue.leave(first)
	l.expect("in x, when it has left", l.queue.collect(inX), 1)
	l.expect("in y, when it has left", l.queue.collect(inY), 1)
	if len(l.queue.waiting) != 0 {
		t.Errorf("lines are left: %v", l.queue.waiting)
	}
}

// TestQueueChangesLines: the sets of a template may change while a claim waits.
func TestQueueChangesLines(t *testing.T) {
	l := newLine(t)
	w := l.waits(1, 2, false, nil)
	behind := l.waits(2, 1, false, from("a"))
	if got := l.queue.demands(); len(got) != 2 || got[poolindex.Pool{}].claims != 1 {
		t.Errorf("demands are %v, want one of no pool and one of a", got)
	}
	l.stockOf("b", 1)
	l.queue.need(w, demanded{need: 2, sources: from("a", "b")})
	l.expectFrom("of the pool that was added", l.queue.collect(w), map[string]int{"b": 1})
	l.queue.need(w, demanded{need: 1, sources: from("b")})
	l.stockOf("a", 1)
	l.expect("who is first where the other has left", l.queue.collect(behind), 1)
	l.queue.need(w, demanded{})
	if len(l.queue.waiting) != 0 {
		t.Errorf("lines are left: %v", l.queue.waiting)
	}
}

var queueSeed = flag.Uint64("queue-seed", 0, "run TestQueueAtRandom with this seed alone")

// TestQueueAtRandom does long random sequences of all that claims and the feed do,
// and checks after each that nobody waits for what could be had, that nobody was
// passed in a line, and that nothing is lost or dealt twice.
func TestQueueAtRandom(t *testing.T) {
	seeds := []uint64{*queueSeed}
	if *queueSeed == 0 {
		seeds = seeds[:0]
		for range 30 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, seed := range seeds {
		c := &crowd{line: newLine(t), rand: rand.New(rand.NewPCG(seed, 0))}
		for step := range 1500 {
			before := maps.Clone(c.queue.waiting)
			for p := range before {
				before[p] = slices.Clone(before[p])
			}
			had := c.dealt()
			what := c.step()
			if err := c.check(before, had); err != nil {
				t.Fatalf("after step %d, %s: %v\nrun again with -queue-seed=%d", step, what, err, seed)
			}
		}
	}
}

type crowd struct {
	*line
	rand    *rand.Rand
	waiters []*waiter
	held    []poolindex.Candidate // with claims and newcomers
	out     int                   // bound, and so gone for good
}

var crowdPools = []string{"a", "b", "c"}

func (c *crowd) some() []source {
	pools := slices.Clone(crowdPools)
	c.rand.Shuffle(len(pools), func(i, j int) { pools[i], pools[j] = pools[j], pools[i] })
	return from(pools[:1+c.rand.IntN(len(pools))]...)
}

func (c *crowd) step() string {
	switch n := c.rand.IntN(100); {
	case n < 35:
		pool := crowdPools[c.rand.IntN(len(crowdPools))]
		c.stockOf(pool, 1)
		return "stock of " + pool
	case n < 55:
		w := &waiter{ticket: ticket{since: time.Unix(c.rand.Int64N(50), 0), uid: types.UID(fmt.Sprint(c.next, len(c.waiters), n))}, wake: make(chan struct{}, 1)}
		wants := demanded{need: 1 + c.rand.IntN(4), sources: c.some(), atomic: c.rand.IntN(2) == 0}
		wants.yields = wants.atomic && c.rand.IntN(3) == 0
		c.waiters = append(c.waiters, w)
		c.queue.need(w, wants)
		return fmt.Sprintf("a waiter for %+v", wants)
	case n < 65 && len(c.waiters) > 0:
		w := c.waiters[c.rand.IntN(len(c.waiters))]
		wants := w.demanded
		wants.need += len(w.dealt) + c.rand.IntN(2)
		wants.sources = c.some()
		c.queue.need(w, wants)
		return fmt.Sprintf("a waiter now for %+v", wants)
	case n < 80 && len(c.waiters) > 0:
		i := c.rand.IntN(len(c.waiters))
		c.held = append(c.held, c.queue.collect(c.waiters[i])...)
		return "collect"
	case n < 85 && len(c.waiters) > 0:
		i := c.rand.IntN(len(c.waiters))
		c.queue.leave(c.waiters[i])
		c.waiters = slices.Delete(c.waiters, i, i+1)
		return "leave"
	case n < 92:
		c.held = append(c.held, c.queue.take(c.some(), 1+c.rand.IntN(3), c.rand.IntN(2) == 0)...)
		return "a newcomer takes"
	default:
		k := min(len(c.held), c.rand.IntN(4))
		some := c.held[:k]
		c.held = slices.Clone(c.held[k:])
		if n < 96 {
			c.queue.release(some)
			return "release"
		}
		c.out += k
		c.queue.bound(some, c.next)
		return "bound"
	}
}

func (c *crowd) dealt() map[*waiter]int {
	had := map[*waiter]int{}
	for _, w := range c.waiters {
		had[w] = len(w.dealt)
	}
	return had
}

// lets says whether a waiter lets those behind it in line pass.
func lets(w *waiter) bool { return w.atomic && w.yields }

func (c *crowd) check(before map[poolindex.Pool][]*waiter, had map[*waiter]int) error {
	everything := len(c.held) + c.out
	for _, w := range c.waiters {
		everything += len(w.dealt)
		for _, d := range w.dealt[min(had[w], len(w.dealt)):] {
			for _, other := range before[d.Pool] {
				if other == w || other.ticket.compare(w.ticket) > 0 {
					break
				}
				if still := slices.Contains(c.queue.waiting[d.Pool], other); still && !lets(other) {
					return fmt.Errorf("%v was passed in the line of %s by %v", other.ticket, d.Pool.Name, w.ticket)
				}
			}
		}
	}
	for _, pool := range crowdPools {
		everything += c.index.Available(named(pool))
	}
	if everything != int(c.next) {
		return fmt.Errorf("%d sandboxes are somewhere, of %d", everything, c.next)
	}
	for _, w := range c.waiters {
		if w.need == 0 {
			continue
		}
		could := 0
		for _, s := range w.sources {
			line := c.queue.waiting[s.pool]
			at := slices.Index(line, w)
			if at < 0 {
				return fmt.Errorf("%v needs %d and is not in the line of %s", w.ticket, w.need, s.pool.Name)
			}
			if !slices.ContainsFunc(line[:at], func(other *waiter) bool { return !lets(other) }) {
				could += c.index.Available(s.pool)
			}
		}
		if could >= w.need || could > 0 && !w.atomic {
			return fmt.Errorf("%v waits for %d, atomic %t, and could have %d", w.ticket, w.need, w.atomic, could)
		}
	}
	return nil
}

// TestQueueYieldingKeepsOnlyWhatItCanHave: what is kept for another is not stock
// that who yields waits for.
func TestQueueYieldingKeepsOnlyWhatItCanHave(t *testing.T) {
	l := newLine(t)
	first := l.waits(1, 3, true, from("y"))
	yields := &waiter{ticket: ticket{since: time.Unix(2, 0)}, wake: make(chan struct{}, 1)}
	l.queue.need(yields, demanded{need: 3, sources: from("x", "y"), atomic: true, yields: true})
	l.stockOf("y", 2)
	l.stockOf("x", 1)
	l.expect("a newcomer to y", l.queue.take(from("y"), 1, false), 0)
	l.expectFrom("a newcomer to x", l.queue.take(from("x"), 1, false), map[string]int{"x": 1})
	l.queue.leave(first)
	l.stockOf("x", 1)
	l.expectFrom("who yields", l.queue.collect(yields), map[string]int{"x": 1, "y": 2})
}
