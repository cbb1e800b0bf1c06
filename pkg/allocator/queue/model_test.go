// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
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
// clock do, and checks after each, by looking at every claim in every line, that the claim whose
// turn it is was woken, that nothing was taken that is kept for another, and that nothing
// is lost or handed out twice.
func TestQueueAtRandom(t *testing.T) {
	seeds := []uint64{*queueSeed}
	if *queueSeed == 0 {
		seeds = seeds[:0]
		for range 30 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, seed := range seeds {
		c := newCrowd(t, rand.NewPCG(seed, 0))
		for step := range 1000 {
			if what, err := c.step(); err != nil {
				t.Fatalf("after step %d, %s: %v\nrun again with -queue-seed=%d", step, what, err, seed)
			}
		}
	}
}

// FuzzQueue does so for the sequences that a fuzzer finds.
func FuzzQueue(f *testing.F) {
	f.Add([]byte("some claims, some stock, some time, and some more of each"))
	f.Fuzz(func(t *testing.T, choices []byte) {
		choice := tape(choices)
		c := newCrowd(t, &choice)
		for step := 0; len(choice) > 0 && step < 300; step++ {
			if what, err := c.step(); err != nil {
				t.Fatalf("after step %d, %s: %v", step, what, err)
			}
		}
	})
}

// tape is a source of random numbers that were written down before.
type tape []byte

func (t *tape) Uint64() uint64 {
	const odd = 12345 // or rand would ask again for a number that it does not like
	if len(*t) == 0 {
		return odd
	}
	next := uint64((*t)[0])
	*t = (*t)[1:]
	return next*0x0101010101010101 + odd
}

// crowd is all who use a queue.
type crowd struct {
	*bench
	rand    *rand.Rand
	waiters []*Waiter
	// woken are the waiters that were woken and have not tried to take since.
	woken map[*Waiter]bool
	// held are with claims and newcomers, gone are those that were bound or removed.
	held map[string]poolindex.Candidate
	gone map[string]bool
	// taker took these in the last step; nil is a newcomer.
	taker            *Waiter
	took             []poolindex.Candidate
	atOnce, wasAside bool
}

func newCrowd(t *testing.T, source rand.Source) *crowd {
	return &crowd{
		bench: newBench(t), rand: rand.New(source),
		woken: map[*Waiter]bool{}, held: map[string]poolindex.Candidate{}, gone: map[string]bool{},
	}
}

var crowdPools = []string{"a", "b", "c"}

func (c *crowd) some() []Source {
	pools := slices.Clone(crowdPools)
	c.rand.Shuffle(len(pools), func(i, j int) { pools[i], pools[j] = pools[j], pools[i] })
	return from(pools[:1+c.rand.IntN(len(pools))]...)
}

func (c *crowd) one() *Waiter { return c.waiters[c.rand.IntN(len(c.waiters))] }

// step does one thing, and finds out whether that was right.
func (c *crowd) step() (string, error) {
	before := c.look()
	what := c.something()
	return what, c.check(before)
}

func (c *crowd) something() string {
	c.taker, c.took = nil, nil
	switch n := c.rand.IntN(100); {
	case n < 30:
		pool := crowdPools[c.rand.IntN(len(crowdPools))]
		c.stock(pool, 1)
		return "stock of " + pool
	case n < 42:
		return c.joins()
	case n < 51 && len(c.waiters) > 0:
		w := c.one()
		wants := w.wants
		wants.Need = max(0, wants.Need-1+c.rand.IntN(3))
		wants.Has += c.rand.IntN(2)
		switch c.rand.IntN(4) {
		case 0:
			wants.Sources = c.some()
		case 1:
			wants.Asked = fmt.Sprint(c.rand.IntN(2))
		}
		if c.rand.IntN(2) == 0 {
			w.Wait(wants)
		} else {
			w.Watch(wants)
		}
		c.woken[w] = true // who asks looks for itself
		return fmt.Sprintf("%s now waits for %+v", w.UID, wants)
	case n < 73 && len(c.waiters) > 0:
		w := c.one()
		n := w.wants.Need
		if n > 1 && c.rand.IntN(3) == 0 {
			n--
		}
		c.woken[w] = false
		c.taker, c.atOnce, c.wasAside = w, w.wants.isWhole(), w.aside
		c.took = w.Take(n)
		return fmt.Sprintf("%s takes %d and gets %d", w.UID, n, len(c.took))
	case n < 83 && len(c.waiters) > 0:
		i := c.rand.IntN(len(c.waiters))
		c.waiters[i].Leave()
		c.waiters = slices.Delete(c.waiters, i, i+1)
		return "one leaves"
	case n < 87:
		c.took = c.queue.TakeFree(c.some(), 1+c.rand.IntN(3), c.rand.IntN(2) == 0)
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
	place := Place{
		Namespace: "ns", Requester: fmt.Sprint("user-", c.rand.IntN(4)), UID: types.UID(fmt.Sprintf("w%d", c.next)),
		Since: time.Unix(c.rand.Int64N(50), 0),
	}
	var w *Waiter
	w = NewWaiter(c.queue, place, func() { c.woken[w] = true })
	wants := Wants{Need: 1 + c.rand.IntN(4), Sources: c.some(), AtOnce: c.rand.IntN(2) == 0, Asked: "0"}
	wants.Yields = wants.AtOnce && c.rand.IntN(3) == 0
	c.waiters = append(c.waiters, w)
	w.Wait(wants)
	c.woken[w] = true // who asks looks for itself
	return fmt.Sprintf("%s of %s at %s waits for %+v", w.UID, w.Requester, w.Since, wants)
}

// removes takes away an available sandbox, as the feed does when another server has
// bound it.
func (c *crowd) removes() string {
	pool := crowdPools[c.rand.IntN(len(crowdPools))]
	for _, one := range c.index.Peek(named(pool), 1, false) {
		c.next++
		c.gone[one.Name], c.gone[fmt.Sprint("not a sandbox ", c.next)] = true, true
		c.index.Remove(one.Pool.Namespace, one.Name, c.next)
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

// standing is what is true of a line, found out by looking at every claim in it.
type standing struct {
	available int
	// first is whose turn it is, and can reports whether it could take.
	first *Waiter
	can   bool
	// part and whole are the first of each kind, and gatherer for whom stock is gathered.
	part, whole, gatherer *Waiter
	rests                 bool
	turns                 map[string]int
	requesters            map[string]bool
}

// look works out by the rules whose turn it is in each line, whatever the lines think.
func (c *crowd) look() map[string]*standing {
	sh, now := c.queue.shardOf("ns"), c.clock.Now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	all := map[string]*standing{}
	for _, pool := range crowdPools {
		s := &standing{available: c.index.Available(named(pool)), turns: map[string]int{}, requesters: map[string]bool{}}
		all[pool] = s
		l := sh.lines[named(pool)]
		if l == nil {
			continue
		}
		for requester, seat := range l.seats {
			s.turns[requester] = seat.turn
		}
		until := l.gathering.restUntil
		if g := l.gathering.waiter; g != nil && now.Sub(g.gatherSince) <= gatherWithin {
			s.gatherer = g
		} else if g != nil {
			until = g.gatherSince.Add(2 * gatherWithin)
		}
		s.rests = now.Before(until)
		for _, w := range c.inLine(pool) {
			if w.aside || w.wants.isWhole() && w.wants.Yields {
				continue
			}
			s.requesters[w.Requester] = true
			switch {
			case w.wants.isWhole() && s.whole == nil:
				s.whole = w
			case !w.wants.isWhole() && s.part == nil:
				s.part = w
			}
		}
	}
	for pool, s := range all {
		s.first, s.can = c.firstOf(all, pool)
	}
	return all
}

// inLine returns who waits for a pool, in the order of their turns.
func (c *crowd) inLine(pool string) []*Waiter {
	l := c.queue.shards[slices.IndexFunc(c.queue.shards[:], func(sh *shard) bool { return sh.lines[named(pool)] != nil })].lines[named(pool)]
	var line []*Waiter
	for _, w := range c.waiters {
		if w.wants.Need > 0 && slices.ContainsFunc(w.wants.Sources, func(s Source) bool { return s.Pool.Name == pool }) {
			line = append(line, w)
		}
	}
	slices.SortFunc(line, func(a, b *Waiter) int {
		return cmp.Or(l.seats[a.Requester].turn-l.seats[b.Requester].turn, a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID))
	})
	return line
}

// comesBefore reports whether a, who may be nil, comes before b in a line.
func (s *standing) comesBefore(a, b *Waiter) bool {
	if a == nil || b == nil {
		return a != nil
	}
	return cmp.Or(s.turns[a.Requester]-s.turns[b.Requester], a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID)) < 0
}

// enough reports whether there is enough for a claim that needs all at once.
func enough(all map[string]*standing, w *Waiter) bool {
	total := 0
	for _, from := range w.wants.Sources {
		if s := all[from.Pool.Name]; s.letsTake(w) {
			total += s.available
		}
	}
	return total >= w.wants.Need
}

// letsTake reports whether nothing in a line is kept from a claim that needs all at once.
func (s *standing) letsTake(w *Waiter) bool {
	if s.gatherer != nil {
		return s.gatherer == w
	}
	return !s.comesBefore(s.part, w) && (s.rests || !s.comesBefore(s.whole, w))
}

// share is how much the first who takes what there is may have.
func (s *standing) share() int {
	others := maps.Clone(s.requesters)
	delete(others, s.part.Requester)
	if len(others) == 0 {
		return s.available
	}
	next := slices.Min(slices.Collect(func(yield func(int) bool) {
		for requester := range others {
			if !yield(s.turns[requester]) {
				return
			}
		}
	}))
	return max(1, s.available/len(s.requesters), next-s.turns[s.part.Requester])
}

func (c *crowd) firstOf(all map[string]*standing, pool string) (*Waiter, bool) {
	s := all[pool]
	switch {
	case s.gatherer != nil:
		return s.gatherer, enough(all, s.gatherer)
	case s.comesBefore(s.whole, s.part) && enough(all, s.whole):
		return s.whole, true
	case s.comesBefore(s.whole, s.part) && !s.rests:
		return s.whole, false
	}
	var smallest *Waiter
	if len(s.turns) > 0 {
		for _, w := range c.inLine(pool) {
			if w.wants.isWhole() && !w.aside && (smallest == nil || cmp.Or(w.wants.Need-smallest.wants.Need, w.compare(smallest)) < 0) {
				smallest = w
			}
		}
	}
	if smallest != nil && s.comesBefore(smallest, s.part) && enough(all, smallest) {
		return smallest, true
	}
	return s.part, s.part != nil
}

func (c *crowd) check(before map[string]*standing) error {
	from := map[string]int{}
	for _, one := range c.took {
		if _, twice := c.held[one.Name]; twice || c.gone[one.Name] {
			return fmt.Errorf("%s is handed out and was not there", one.Name)
		}
		c.held[one.Name] = one
		from[one.Pool.Name]++
	}
	for pool, n := range from {
		s := before[pool]
		switch {
		case c.taker == nil && s.first != nil:
			return fmt.Errorf("a newcomer got %d of %s, which were kept for %s", n, pool, s.first.UID)
		case c.taker == nil || c.wasAside: // whose place was not in a line before
		case c.atOnce && !s.letsTake(c.taker), !c.atOnce && s.first != c.taker:
			return fmt.Errorf("%d of %s were not for %s to take, but for %s", n, pool, c.taker.UID, s.first.UID)
		case !c.atOnce && n > s.share():
			return fmt.Errorf("%s took %d of %d in %s, and %d wait", c.taker.UID, n, s.available, pool, len(s.requesters))
		}
	}
	everything := len(c.held) + len(c.gone)
	for _, pool := range crowdPools {
		everything += c.index.Available(named(pool))
	}
	if everything != int(c.next) {
		return fmt.Errorf("%d sandboxes are somewhere, of %d", everything, c.next)
	}
	c.queue.Tick()
	return c.checkWoken()
}

// checkWoken requires, after a tick, that each claim that can take was woken, and that the lines
// hold who waits.
func (c *crowd) checkWoken() error {
	demands := map[poolindex.Pool]Demand{}
	for _, w := range c.waiters {
		for _, p := range w.pools(&w.wants) {
			if d := demands[p]; !w.watched {
				demands[p] = Demand{d.Claims + 1, d.Sandboxes + w.wants.Need}
			}
		}
	}
	if got := c.queue.Demands(); !maps.Equal(got, demands) {
		return fmt.Errorf("the demands are %v, want %v", got, demands)
	}
	waiting := 0
	for _, w := range c.waiters {
		if w.wants.Need > 0 {
			waiting++
		}
	}
	if got := waitingIn(c.queue, "ns"); got != waiting {
		return fmt.Errorf("%d wait, it says %d", waiting, got)
	}
	for pool, s := range c.look() {
		if s.available > 0 && s.first != nil && s.can && !c.woken[s.first] {
			return fmt.Errorf("it is the turn of %s in %s, which was not woken", s.first.UID, pool)
		}
		sh := c.queue.shardOf("ns")
		sh.mu.Lock()
		members := 0
		if l := sh.lines[named(pool)]; l != nil {
			members = len(l.members)
		}
		sh.mu.Unlock()
		want := 0
		if members > 0 {
			want = len(c.inLine(pool))
		}
		if members != want {
			return fmt.Errorf("%d are in the line of %s, want %d", members, pool, want)
		}
	}
	return nil
}
