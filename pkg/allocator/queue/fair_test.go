// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// market is a queue whose claims take at once when they are woken, and what each
// requester got.
type market struct {
	*bench
	// woken are to take, in the order in which they were woken.
	woken []*Waiter
	// got counts what claims of each requester have taken since they were asked last.
	got map[string]int
	// order has the claims that took something.
	order []types.UID
	came  int
}

func newMarket(t *testing.T) *market { return &market{bench: newBench(t), got: map[string]int{}} }

// claim queues a claim of a requester, younger than all others.
func (m *market) claim(requester string, need int, atOnce bool, pools ...string) *Waiter {
	m.came++
	var w *Waiter
	w = NewWaiter(m.queue, Place{
		Namespace: "ns", Requester: requester, Since: time.Unix(int64(m.came), 0), UID: types.UID(fmt.Sprint(requester, "-", m.came)),
	}, func() {
		if !slices.Contains(m.woken, w) {
			m.woken = append(m.woken, w)
		}
	})
	w.Wait(Wants{Need: need, Sources: from(pools...), AtOnce: atOnce})
	m.takeAll()
	return w
}

// arrives stocks a pool with n sandboxes that come at the same time.
func (m *market) arrives(pool string, n int) {
	for range n {
		m.next++
		m.index.Upsert(poolindex.Candidate{Pool: named(pool), Name: fmt.Sprintf("sb-%03d", m.next), ResourceVersion: m.next})
	}
	m.queue.Stocked(named(pool))
	m.takeAll()
}

// takeAll lets those who were woken have their turns, until none is woken any more.
func (m *market) takeAll() {
	for len(m.woken) > 0 {
		w := m.woken[0]
		m.woken = m.woken[1:]
		for n := len(w.Take(w.wants.Need)); n > 0; n = len(w.Take(w.wants.Need)) {
			m.got[w.Requester] += n
			m.order = append(m.order, w.UID)
		}
	}
}

func (m *market) pass(d time.Duration) {
	m.bench.pass(d)
	m.takeAll()
}

func (m *market) expectGot(what string, want map[string]int) {
	m.Helper()
	if !maps.Equal(m.got, want) {
		m.Errorf("%s: got %v, want %v", what, m.got, want)
	}
	clear(m.got)
}

// TestTurns is the worked example of the package's description.
func TestTurns(t *testing.T) {
	m := newMarket(t)
	m.claim("one", 10000, false, "pool")
	m.arrives("pool", 300)
	m.expectGot("who waits alone", map[string]int{"one": 300})
	m.claim("two", 2, false, "pool")
	m.claim("one", 1, false, "pool")
	for _, want := range []string{"one", "two", "one", "two", "one", "one"} {
		m.arrives("pool", 1)
		m.expectGot("of one at a time", map[string]int{want: 1})
	}

	m = newMarket(t)
	m.claim("one", 10000, false, "pool")
	m.claim("two", 2, false, "pool")
	m.arrives("pool", 10)
	m.expectGot("of ten", map[string]int{"one": 8, "two": 2})
	if want := []types.UID{"one-1", "two-2", "one-1"}; !slices.Equal(m.order, want) {
		t.Errorf("the turns were those of %v, want %v", m.order, want)
	}
}

// TestOneRequesterInOrder: the claims of one requester are served as they came.
func TestOneRequesterInOrder(t *testing.T) {
	m := newMarket(t)
	for range 5 {
		m.claim("one", 1, false, "pool")
	}
	m.claim("two", 1, false, "pool")
	m.arrives("pool", 6)
	if want := []types.UID{"one-1", "two-6", "one-2", "one-3", "one-4", "one-5"}; !slices.Equal(m.order, want) {
		t.Errorf("the turns were those of %v, want %v", m.order, want)
	}
}

// TestBehindAThousandClaims: a requester that has had nothing waits for one turn of
// each other requester, however many claims those have.
func TestBehindAThousandClaims(t *testing.T) {
	m := newMarket(t)
	for range 1000 {
		m.claim("one", 3, false, "pool")
	}
	m.arrives("pool", 50)
	m.claim("two", 1, false, "pool")
	clear(m.got)
	m.arrives("pool", 1)
	m.arrives("pool", 1)
	m.expectGot("of two sandboxes", map[string]int{"one": 1, "two": 1})
}

// TestNewRequestersWithoutEnd do not keep those from their turn who wait.
func TestNewRequestersWithoutEnd(t *testing.T) {
	m := newMarket(t)
	m.claim("patient", 10000, false, "pool")
	const rounds = 100
	for i := range rounds {
		m.claim(fmt.Sprint("passing-", i), 1, false, "pool")
		m.claim(fmt.Sprint("passing-too-", i), 1, false, "pool")
		m.arrives("pool", 1)
		m.arrives("pool", 1)
	}
	if m.got["patient"] < 5 {
		t.Errorf("of %d sandboxes who waits first got %d", 2*rounds, m.got["patient"])
	}
}

// TestFairShares does random sequences of claims that come and leave and of stock, and
// holds them against the promise: while two requesters wait for a pool, neither gets
// more than two sandboxes more than the other, and the share of one delivery; and nothing
// lies in a pool for which a claim waits that takes what there is.
func TestFairShares(t *testing.T) {
	for seed := range uint64(50) {
		m, random := newMarket(t), rand.New(rand.NewPCG(seed, 1))
		requesters := []string{"one", "two", "three", "four"}
		waiting := map[string][]*Waiter{}
		waits := func(r string) bool {
			return slices.ContainsFunc(waiting[r], func(w *Waiter) bool { return w.wants.Need > 0 })
		}
		// ahead is by how much the first has got more since both began to wait.
		ahead := map[[2]string]int{}
		delivery := 1 + random.IntN(5)
		for step := range 2000 {
			switch r := requesters[random.IntN(len(requesters))]; random.IntN(10) {
			case 0, 1:
				waiting[r] = append(waiting[r], m.claim(r, 1+random.IntN(40), false, "pool"))
			case 2:
				if len(waiting[r]) > 0 && random.IntN(4) == 0 {
					waiting[r][0].Leave()
					waiting[r] = waiting[r][1:]
					m.takeAll()
				}
			default:
				m.arrives("pool", 1+random.IntN(delivery))
			}
			for _, a := range requesters {
				for _, b := range requesters {
					pair := [2]string{a, b}
					if !waits(a) || !waits(b) {
						delete(ahead, pair)
						continue
					}
					if _, before := ahead[pair]; before {
						ahead[pair] += m.got[a] - m.got[b]
					} else {
						ahead[pair] = 0
					}
					if ahead[pair] > 2+delivery {
						t.Fatalf("seed %d, step %d: %s got %d more than %s while both waited", seed, step, a, ahead[pair], b)
					}
				}
			}
			clear(m.got)
			if available := m.index.Available(named("pool")); available > 0 && slices.ContainsFunc(requesters, waits) {
				t.Fatalf("seed %d, step %d: %d lie idle", seed, step, available)
			}
			if !slices.ContainsFunc(requesters, waits) { // or the stock would be there for the next
				m.queue.TakeFree(from("pool"), 100, false)
			}
		}
	}
}

// TestAllOrNothingIsServed within one turn of each of the others and as much as it
// needs, if that comes within the time for which it gathers.
func TestAllOrNothingIsServed(t *testing.T) {
	for others := range 5 {
		m := newMarket(t)
		for i := range others {
			m.claim(fmt.Sprint("other-", i), 10000, false, "pool")
		}
		m.arrives("pool", 7)
		const need = 20
		w := m.claim("whole", need, true, "pool")
		arrived := 0
		for ; w.wants.Need > 0 && arrived < 1000; arrived++ {
			m.arrives("pool", 1)
			m.pass(time.Second)
		}
		if most := 2*others + need; arrived > most {
			t.Errorf("with %d others who wait, it was served after %d sandboxes, want %d at most", others, arrived, most)
		}
		clear(m.got)
		for range need * others {
			m.arrives("pool", 1)
		}
		if others > 0 && m.got["other-0"] < need {
			t.Errorf("then others got %v, want %d each at least", m.got, need)
		}
	}
}

// TestAllOrNothingStarvesNone: however many gather for what never comes, others wait
// for the time of one.
func TestAllOrNothingStarvesNone(t *testing.T) {
	m := newMarket(t)
	for i := range 10 {
		m.claim(fmt.Sprint("whole-", i%5), 5, true, "pool")
	}
	single := m.claim("single", 1, false, "pool")
	m.arrives("pool", 3)
	m.pass(gatherWithin)
	if single.wants.Need == 0 {
		t.Error("nothing was gathered")
	}
	m.pass(time.Millisecond)
	if single.wants.Need > 0 {
		t.Error("one more claim gathers, and the others continue waiting")
	}
	m.pass(gatherWithin + time.Second) // then another may gather
	late := m.claim("late", 1, false, "pool")
	if late.wants.Need == 0 {
		t.Error("nothing is gathered a second time")
	}
	m.arrives("pool", 3)
	if got := m.got["whole-1"]; got != 5 {
		t.Errorf("the next one got %d when there was enough: %v", got, m.got)
	}
}

// TestGatheringFromSeveralPools: two whose turns are not in the same order in two pools
// do not keep from each other what either needs.
func TestGatheringFromSeveralPools(t *testing.T) {
	m := newMarket(t)
	m.claim("two", 1, false, "x")
	m.claim("one", 1, false, "y")
	first, last := m.claim("one", 3, true, "x", "y"), m.claim("two", 3, true, "x", "y")
	m.arrives("x", 1)
	m.arrives("y", 1) // now two is behind in x, and one in y
	m.arrives("x", 2)
	m.arrives("y", 1)
	if first.wants.Need > 0 {
		t.Error("with three in two pools, none of two who need three was served")
	}
	m.arrives("y", 3)
	if last.wants.Need > 0 {
		t.Error("the other was not served then")
	}
}

// TestServersDecideAlike: whatever the order in which servers hear of claims, and
// whichever of them hands out, each of them serves in the same order.
func TestServersDecideAlike(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	type claim struct {
		place Place
		wants Wants
	}
	var all []claim
	for i := range 40 {
		all = append(all, claim{
			Place{"ns", fmt.Sprint("user-", random.IntN(5)), time.Unix(int64(random.IntN(20)), 0), types.UID(fmt.Sprint(i))},
			Wants{Need: 1 + random.IntN(3), Sources: from("pool")},
		})
	}
	const servers = 3
	var benches []*bench
	waiters := make([]map[types.UID]*Waiter, servers)
	woken := make([]types.UID, servers)
	for s := range servers {
		b := newBench(t)
		benches, waiters[s] = append(benches, b), map[types.UID]*Waiter{}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, c := range all {
			place := c.place
			if random.IntN(servers) == 0 { // the one that created it
				place.Since = place.Since.Add(time.Duration(random.IntN(1e9)))
			}
			w := NewWaiter(b.queue, place, func() { woken[s] = c.place.UID })
			waiters[s][c.place.UID] = w
			w.Wait(c.wants)
		}
	}
	served := 0
	for ; waitingIn(benches[0].queue, "ns") > 0; served++ {
		for _, b := range benches {
			b.stock("pool", 1)
		}
		if woken[1] != woken[0] || woken[2] != woken[0] {
			t.Fatalf("after %d, the servers think it is the turn of %v", served, woken)
		}
		works := random.IntN(servers)
		for s, b := range benches {
			w := waiters[s][woken[works]]
			if s == works {
				b.expect("whose turn it is", w.Take(1), 1)
				continue
			}
			b.index.Remove("ns", fmt.Sprintf("sb-%03d", b.next), b.next+1)
			b.next++
			left := w.wants
			left.Need--
			left.Has++
			w.Watch(left)
		}
		benches[works].next++
	}
	if served < 40 {
		t.Errorf("%d were served", served)
	}
}

// TestChargesWhatIsGot: a requester has had what its claim has more than before, not
// what it needs less because it asks for less, or because its time is up.
func TestChargesWhatIsGot(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*bench, *Waiter, Wants)
		want   int
	}{
		"one, from another server":         {func(b *bench, w *Waiter, has Wants) { has.Need, has.Has = 9, 3; w.Watch(has) }, 1},
		"nothing, and asks for less":       {func(b *bench, w *Waiter, has Wants) { has.Need = 1; w.Watch(has) }, 0},
		"one, and asks for more":           {func(b *bench, w *Waiter, has Wants) { has.Need, has.Has = 20, 3; w.Watch(has) }, 1},
		"nothing, and its time is up":      {func(b *bench, w *Waiter, _ Wants) { w.Served(2) }, 0},
		"the rest, and is at its end":      {func(b *bench, w *Waiter, _ Wants) { w.Served(12) }, 10},
		"nothing more than what it took":   {func(b *bench, w *Waiter, has Wants) { b.stock("pool", 1); b.takes(w); w.Served(3) }, 1},
		"nothing that its server knows of": {func(b *bench, w *Waiter, has Wants) { has.Need, has.Has = 9, 3; w.Wait(has) }, 0},
		"what its server knew of, and no more": {func(b *bench, w *Waiter, has Wants) {
			has.Need, has.Has = 9, 3
			w.Wait(has)
			w.Watch(has)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			has := Wants{Need: 10, Has: 2, Sources: from("pool")}
			w := b.waiter(1, "w")
			w.Watch(has)
			b.waiter(2, "stays").Wait(Wants{Need: 1, Sources: from("pool")})
			seat := b.line("pool").seats["one"]
			before := seat.turn
			tc.change(b, w, has)
			if got := seat.turn - before; got != tc.want {
				t.Errorf("is charged %d, want %d", got, tc.want)
			}
		})
	}
}

// TestTimesOfPlaces have no reading of the monotonic clock, wherever they are from: with
// some that have one and some that do not there is no order once the wall clock was set
// back.
func TestTimesOfPlaces(t *testing.T) {
	b := newBench(t)
	now := time.Now()
	b.clock.SetTime(now.Add(time.Second))
	w := NewWaiter(b.queue, Place{Namespace: "ns", Since: now, UID: "one"}, func() {})
	expect := func(want time.Time) {
		t.Helper()
		if got := w.Since.String(); got != want.Round(0).Truncate(time.Second).String() {
			t.Errorf("its place is of %s", got)
		}
	}
	expect(now)
	w.Wait(Wants{Need: 1, Asked: "a"})
	w.Wait(Wants{Need: 1, Asked: "b"})
	expect(now.Add(time.Second))
}

// TestAsksForSomethingElse: a claim that waited for what does not exist has no place
// before those who waited for what does.
func TestAsksForSomethingElse(t *testing.T) {
	b := newBench(t)
	parked, waits := b.waiter(1, "parked"), b.waiter(2, "waits")
	parked.Wait(Wants{Need: 1, Asked: "missing"})
	waits.Wait(Wants{Need: 1, Sources: from("pool"), Asked: "pool"})
	parked.Wait(Wants{Need: 1, Sources: from("pool"), Asked: "pool"})
	b.stock("pool", 1)
	b.expect("who waited for something else", b.takes(parked), 0)
	b.expect("who waited for this", b.takes(waits), 1)
}

// TestJoin: a claim that is about to be stored waits only if there is room.
func TestJoin(t *testing.T) {
	b := newBench(t)
	pool := from("pool")
	first, second := b.waiter(1, "first"), b.waiter(2, "second")
	if !first.Join(Wants{Need: 1, Sources: pool}, 1) || !first.Join(Wants{Need: 2, Sources: pool}, 1) {
		t.Error("there was no room for the first")
	}
	if second.Join(Wants{Need: 1, Sources: pool}, 1) {
		t.Error("there was room for two")
	}
	first.Leave()
	if !second.Join(Wants{Need: 1}, 1) {
		t.Error("there was no room when the first had left")
	}
	second.Leave()
	b.expectNoLines()
}

// TestPlaces: requesters come for places one after the other, each as long as it gets
// them. However many claims one has, any other gets a place and, while there are few of
// them, a share; and there are never more than twice as many as may be.
func TestPlaces(t *testing.T) {
	const most = 120
	for _, tc := range []struct {
		requesters, all, least, one int
	}{
		{requesters: 1, all: most / 2, least: most / 2, one: most / 2},
		{requesters: 2, all: 100, least: most / 3, one: most / 2},
		{requesters: 3, all: most, least: most / 6, one: most / 2},
		{requesters: most, all: 2 * most, least: 1, one: most / 2},
		{requesters: 3 * most, all: 2 * most, least: 0, one: most / 2},
	} {
		b := newBench(t)
		has := map[string]int{}
		join := func(requester string) bool {
			b.next++
			w := NewWaiter(b.queue, Place{Namespace: "ns", Requester: requester, UID: types.UID(fmt.Sprint(b.next))}, func() {})
			room := b.queue.HasRoom("ns", requester, most)
			if joined := w.Join(Wants{Need: 1}, most); joined != room {
				t.Fatalf("there is room: %t, joins: %t", room, joined)
			}
			if room {
				has[requester]++
			}
			return room
		}
		least := most
		for i := range tc.requesters {
			requester := fmt.Sprint(i)
			for join(requester) { // as many as it gets, before the next comes
			}
			least = min(least, has[requester])
		}
		all := waitingIn(b.queue, "ns")
		if all > tc.all || least < tc.least || slices.Max(slices.Collect(maps.Values(has))) > tc.one {
			t.Errorf("with %d requesters, %d wait, %d of one at least: %v", tc.requesters, all, least, has)
		}
	}
}

// line returns the line of a pool.
func (b *bench) line(pool string) *line {
	sh := b.queue.shardOf("ns")
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.lines[named(pool)]
}

// looked returns how often a waiter was looked at in all.
func (q *Queue) looked() int {
	total := 0
	for _, sh := range q.shards {
		total += sh.looks
	}
	return total
}

// full is a queue in which n claims of a kind wait.
func full(n int, atOnce bool) *bench {
	b := &bench{index: poolindex.New(), clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), woken: map[*Waiter]int{}}
	b.queue = New(b.index, b.clock)
	for i := range n {
		w := NewWaiter(b.queue, Place{"ns", fmt.Sprint("user-", i%100), time.Unix(int64(i), 0), types.UID(fmt.Sprint(i))}, func() {})
		w.Wait(Wants{Need: 5 + i%3, Sources: from("x", "y"), AtOnce: atOnce})
	}
	return b
}

// TestWorkDoesNotGrowWithTheLine: an event, a newcomer, a tick, and a claim that comes
// and goes look at no more claims than a logarithm.
func TestWorkDoesNotGrowWithTheLine(t *testing.T) {
	for _, atOnce := range []bool{false, true} {
		for _, n := range []int{100, 10000} {
			b := full(n, atOnce)
			for what, do := range map[string]func(){
				"stock":      func() { b.stock("x", 1) },
				"a newcomer": func() { b.queue.TakeFree(from("x", "y"), 1, false) },
				"a tick":     func() { b.queue.Tick() },
				"a claim that waits": func() {
					w := b.waits(1<<20, 3, atOnce, from("x", "y"))
					w.Take(1)
					w.Leave()
				},
				"the end of gathering": func() { b.pass(gatherWithin + time.Second) },
			} {
				before := b.queue.looked()
				do()
				if looks := b.queue.looked() - before; looks > 500 {
					t.Errorf("with %d in line (at once: %t), %s looked at %d", n, atOnce, what, looks)
				}
			}
		}
	}
}

// BenchmarkLine is what things cost while many claims wait for two sets of a template.
func BenchmarkLine(b *testing.B) {
	for _, atOnce := range []bool{false, true} {
		for _, n := range []int{100, 1000, 10000} {
			line := full(n, atOnce)
			name := fmt.Sprintf("atOnce=%t/waiting=%d/", atOnce, n)
			b.Run(name+"event", func(b *testing.B) {
				line.index.Upsert(poolindex.Candidate{Pool: named("x"), Name: "sb", ResourceVersion: 1})
				for b.Loop() {
					line.queue.Stocked(named("x"))
				}
			})
			b.Run(name+"newcomer", func(b *testing.B) {
				for b.Loop() {
					line.queue.TakeFree(from("x", "y"), 1, false)
				}
			})
			b.Run(name+"claim", func(b *testing.B) {
				w := NewWaiter(line.queue, Place{"ns", "late", time.Unix(1<<20, 0), "late"}, func() {})
				for b.Loop() {
					w.Wait(Wants{Need: 2, Sources: from("x", "y"), AtOnce: atOnce})
					w.Leave()
				}
			})
		}
	}
}

// waitingIn is how many claims of a namespace wait.
func waitingIn(q *Queue, namespace string) int {
	sh := q.shardOf(namespace)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.waiting[namespace].total()
}
