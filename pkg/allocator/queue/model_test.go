// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

var queueSeed = flag.Uint64("queue-seed", 0, "run TestQueueAtRandom with this seed alone")

// TestQueueAtRandom does long random sequences of all that claims, the feed and the
// clock do, and checks after each that whoever can be served was told, that nothing was
// taken that is kept for one who came before, and that nothing is lost or handed out
// twice.
func TestQueueAtRandom(t *testing.T) {
	seeds := []uint64{*queueSeed}
	if *queueSeed == 0 {
		seeds = seeds[:0]
		for range 20 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, seed := range seeds {
		c := &crowd{
			bench: newBench(t), rand: rand.New(rand.NewPCG(seed, 0)),
			told: map[*Waiter]bool{}, held: map[string]poolindex.Candidate{}, gone: map[string]bool{},
		}
		for step := range 1000 {
			before := c.look()
			what := c.step()
			if err := c.check(before); err != nil {
				t.Fatalf("after step %d, %s: %v\nrun again with -queue-seed=%d", step, what, err, seed)
			}
		}
	}
}

// crowd is all who use a queue.
type crowd struct {
	*bench
	rand    *rand.Rand
	waiters []*Waiter
	// told are the waiters that were woken and have not tried to take since.
	told map[*Waiter]bool
	// held are with claims and newcomers, gone are those that were bound or removed.
	held map[string]poolindex.Candidate
	gone map[string]bool
	// taker took these in the last step; nil is a newcomer.
	taker *Waiter
	took  []poolindex.Candidate
	// removed: the feed has just taken away what others may count on. Time tells.
	removed bool
}

var crowdPools = []string{"a", "b", "c"}

func (c *crowd) some() []Source {
	pools := slices.Clone(crowdPools)
	c.rand.Shuffle(len(pools), func(i, j int) { pools[i], pools[j] = pools[j], pools[i] })
	return from(pools[:1+c.rand.IntN(len(pools))]...)
}

func (c *crowd) one() *Waiter { return c.waiters[c.rand.IntN(len(c.waiters))] }

func (c *crowd) step() string {
	c.taker, c.took, c.removed = nil, nil, false
	switch n := c.rand.IntN(100); {
	case n < 30:
		pool := crowdPools[c.rand.IntN(len(crowdPools))]
		c.stock(pool, 1)
		return "stock of " + pool
	case n < 42:
		return c.joins()
	case n < 51 && len(c.waiters) > 0:
		w := c.one()
		wants := w.Wants
		wants.Need = max(0, wants.Need-1+c.rand.IntN(3))
		if c.rand.IntN(2) == 0 {
			wants.Sources = c.some()
		}
		c.queue.Wait(w, wants)
		return fmt.Sprintf("%s now waits for %+v", w.uid, wants)
	case n < 73 && len(c.waiters) > 0:
		w := c.one()
		c.takes(w)
		return fmt.Sprintf("%s takes", w.uid)
	case n < 83 && len(c.waiters) > 0:
		i := c.rand.IntN(len(c.waiters))
		c.queue.Leave(c.waiters[i])
		c.waiters = slices.Delete(c.waiters, i, i+1)
		return "one leaves"
	case n < 87:
		c.took = c.queue.Take(nil, c.some(), 1+c.rand.IntN(3), c.rand.IntN(2) == 0)
		return "a newcomer takes"
	case n < 92:
		c.pass([]time.Duration{time.Second, takeWithin + 1, gatherWithin + 1}[c.rand.IntN(3)])
		return "time passes"
	case n < 94:
		return c.removes()
	default:
		return c.answers()
	}
}

func (c *crowd) joins() string {
	c.next++ // so that no two have the same UID
	c.gone[fmt.Sprint("not a sandbox ", c.next)] = true
	var w *Waiter
	w = NewWaiter(time.Unix(c.rand.Int64N(50), 0), types.UID(fmt.Sprintf("w%d", c.next)), func() { c.told[w] = true })
	wants := Wants{Need: 1 + c.rand.IntN(4), Sources: c.some(), AtOnce: c.rand.IntN(2) == 0}
	wants.Yields = wants.AtOnce && c.rand.IntN(3) == 0
	c.waiters = append(c.waiters, w)
	c.queue.Wait(w, wants)
	return fmt.Sprintf("%s at %s waits for %+v", w.uid, w.since, wants)
}

// takes is the turn of a claim, which takes what it needs or only a part of it.
func (c *crowd) takes(w *Waiter) {
	n := w.Need
	if n > 1 && !w.AtOnce && c.rand.IntN(3) == 0 {
		n--
	}
	c.told[w] = false
	c.taker, c.took = w, c.queue.Take(w, w.Sources, n, w.AtOnce)
}

// removes takes away an available sandbox, as the feed does when another server has
// bound it.
func (c *crowd) removes() string {
	pool := crowdPools[c.rand.IntN(len(crowdPools))]
	for _, one := range c.index.Peek(named(pool), 1) {
		c.next++
		c.gone[one.Name], c.gone[fmt.Sprint("not a sandbox ", c.next)] = true, true
		c.index.Remove(one.Pool.Namespace, one.Name, c.next)
		c.removed = true
	}
	return "one of " + pool + " is gone"
}

func (c *crowd) answers() string {
	var some []poolindex.Candidate
	for _, name := range slices.Sorted(maps.Keys(c.held)) {
		if c.rand.IntN(3) == 0 {
			some = append(some, c.held[name])
		}
	}
	bound := c.rand.IntN(2) == 0
	for _, one := range some {
		delete(c.held, one.Name)
		if bound {
			c.gone[one.Name] = true
		}
	}
	if bound {
		c.queue.Bound(some, c.next)
		return "bound"
	}
	c.queue.Release(some)
	return "released"
}

// seen is what is true of a waiter before a step.
type seen struct {
	*Waiter
	wants Wants
	// can reports whether it can be served, passes whether it lets others be while it
	// cannot, and keeps whether it keeps the stock of its pools from those who came after
	// it.
	can, passes, keeps bool
}

// stands reports whether it stands in the line of a pool.
func (s *seen) stands(p poolindex.Pool) bool {
	return s.wants.Need > 0 && slices.ContainsFunc(s.wants.Sources, func(from Source) bool { return from.Pool == p })
}

// look works out by the rules what is true of each waiter, in the order in which they
// came: whether it can be served depends on those before it alone.
func (c *crowd) look() []seen {
	all := make([]seen, 0, len(c.waiters))
	for _, w := range c.waiters {
		all = append(all, seen{Waiter: w, wants: w.Wants})
	}
	slices.SortFunc(all, func(a, b seen) int {
		if a.since.Equal(b.since) {
			return slices.Compare([]byte(a.uid), []byte(b.uid))
		}
		return a.since.Compare(b.since)
	})
	for i := range all {
		w := &all[i]
		if w.wants.Need == 0 {
			continue
		}
		could := 0
		for _, from := range w.wants.Sources {
			if !slices.ContainsFunc(all[:i], func(other seen) bool { return other.keeps && other.stands(from.Pool) }) {
				could += c.index.Available(from.Pool)
			}
		}
		w.can = could >= w.wants.Need || could > 0 && !w.wants.AtOnce
		late := !w.couldSince.IsZero() && c.clock.Since(w.couldSince) > takeWithin
		w.passes = w.wants.AtOnce && (w.wants.Yields || !w.gatherSince.IsZero() && c.clock.Since(w.gatherSince) > gatherWithin)
		w.keeps = !late && (!w.passes || w.can)
	}
	return all
}

func (c *crowd) check(before []seen) error {
	for _, one := range c.took {
		if _, twice := c.held[one.Name]; twice || c.gone[one.Name] {
			return fmt.Errorf("%s is handed out and was not there", one.Name)
		}
		c.held[one.Name] = one
		for _, other := range before {
			if other.Waiter == c.taker {
				break
			}
			if other.keeps && other.stands(one.Pool) {
				return fmt.Errorf("one of %s was kept for %s", one.Pool.Name, other.uid)
			}
		}
	}
	everything := len(c.held) + len(c.gone)
	for _, pool := range crowdPools {
		everything += c.index.Available(named(pool))
	}
	if everything != int(c.next) {
		return fmt.Errorf("%d sandboxes are somewhere, of %d", everything, c.next)
	}
	now := c.look()
	for i, w := range now {
		// Whether one that lets others pass can be served may change by what becomes of
		// another pool than theirs.
		passed := slices.ContainsFunc(now[:i], func(other seen) bool { return other.wants.Need > 0 && other.passes })
		if w.can && !c.told[w.Waiter] && !passed && !c.removed {
			return fmt.Errorf("%s waits for %+v, can be served, and was not told", w.uid, w.wants)
		}
	}
	c.queue.Tick()
	for _, w := range c.look() {
		if w.can && !c.told[w.Waiter] {
			return fmt.Errorf("%s waits for %+v, can be served, and was not told with the next tick", w.uid, w.wants)
		}
		for _, p := range crowdPools {
			if inLine := slices.Contains(c.queue.lines.byPool[named(p)], w.Waiter); inLine != w.stands(named(p)) {
				return fmt.Errorf("%s waits for %+v, in the line of %s: %t", w.uid, w.wants, p, inLine)
			}
		}
	}
	return nil
}
