// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

const (
	// takeWithin is how long a waiter that could be served keeps its place before
	// others. The server that works on its claim may be gone, or in trouble.
	takeWithin = 2 * time.Second
	// gatherWithin is how long a waiter that needs all at once keeps from others what
	// is not enough for it. It may never be. For as long afterwards nothing is kept in
	// this way in the same lines.
	gatherWithin = 30 * time.Second
)

// hall has the lines of some namespaces. Who calls its methods holds its lock, but for
// those of the queue.
type hall struct {
	index *poolindex.Index
	clock clock.PassiveClock

	mu    sync.Mutex
	lines map[poolindex.Pool]*line
	// waiting are the places of the claims that wait, by namespace.
	waiting map[string]*places
	// stocked are the lines of pools that have something. In them the passing of time
	// may change who is next.
	stocked map[*line]struct{}
	// looked are the lines whose front WakeFront wakes.
	looked map[*line]struct{}
	// looks counts how often a waiter was looked at.
	looks int
}

func newHall(index *poolindex.Index, c clock.PassiveClock) *hall {
	return &hall{index: index, clock: c, lines: map[poolindex.Pool]*line{}, waiting: map[string]*places{}, stocked: map[*line]struct{}{}}
}

// wait says what a waiter wants from now on, and puts it into its lines, or takes it out,
// accordingly. served is how much it has got elsewhere, if that is more than 0.
func (h *hall) wait(w *Waiter, wants Wants, served int) {
	before, after := w.pools(&w.Wants), w.pools(&wants)
	h.addDemand(w, before, -1)
	if served > 0 {
		h.charge(w, served)
	}
	less, stays := wants.Need < w.Need, slices.Equal(before, after)
	if less || !stays { // another server may have taken for it
		w.couldSince = time.Time{}
		h.readmit(w)
	}
	if less || len(before) == 0 {
		h.gathersNoMore(w, false) // and not by changing lines
	}
	h.count(w, min(1, len(after))-min(1, len(before)))
	switch {
	case w.Asked != "" && w.Asked != wants.Asked && len(after) > 0:
		h.move(w, before, nil, wants)
		w.Since = toSecond(h.clock.Now())
		h.move(w, nil, after, wants)
	case stays && w.hasSamePlace(&wants):
		w.Wants = wants
	default:
		h.move(w, before, after, wants)
	}
	h.addDemand(w, after, 1)
	h.settle(w, append(before, after...)...)
}

// addDemand adds the need of a waiter to the demand of the lines of these pools, or subtracts
// it if sign is -1. A waiter whose claim another server works on is not counted.
func (h *hall) addDemand(w *Waiter, pools []poolindex.Pool, sign int) {
	if w.watched {
		return
	}
	for _, p := range pools {
		d := &h.lines[p].demand
		d.Claims += sign
		d.Sandboxes += sign * w.Need
	}
}

// setWatched sets whether another server works on the claim of a waiter.
func (h *hall) setWatched(w *Waiter, watched bool) {
	if w.watched != watched {
		pools := w.pools(&w.Wants)
		h.addDemand(w, pools, -1)
		w.watched = watched
		h.addDemand(w, pools, 1)
	}
}

// count adds to how many claims like a waiter's wait.
func (h *hall) count(w *Waiter, n int) {
	p := h.waiting[w.Namespace]
	if p == nil {
		p = &places{of: map[string]int{}}
		h.waiting[w.Namespace] = p
	}
	p.all += n
	if p.of[w.Requester] += n; p.of[w.Requester] == 0 {
		delete(p.of, w.Requester)
	}
	if p.all == 0 {
		delete(h.waiting, w.Namespace)
	}
}

// places are how many claims of a namespace wait; nil is none.
type places struct {
	all int
	of  map[string]int // by requester
}

func (p *places) total() int {
	if p == nil {
		return 0
	}
	return p.all
}

// hasRoom is Queue.HasRoom.
func (p *places) hasRoom(requester string, most int) bool {
	if p.total() < most/2 || p == nil {
		return true
	}
	has := p.of[requester]
	if p.all < most {
		return has < max(1, most/(len(p.of)+1))
	}
	return has == 0 && p.all/2 < most
}

// move lets a waiter that stands in the lines of some pools stand in those of others.
// Where it stays it keeps the turn of its requester.
func (h *hall) move(w *Waiter, before, after []poolindex.Pool, wants Wants) {
	stands := make(map[poolindex.Pool]bool, len(after))
	for _, p := range after {
		stands[p] = true
	}
	stood := make(map[poolindex.Pool]bool, len(before))
	for _, p := range before {
		if l := h.lines[p]; stands[p] {
			stood[p] = true
			l.displace(w)
		} else if l.exit(w); len(l.members) == 0 {
			delete(h.lines, p)
			delete(h.stocked, l)
			delete(h.looked, l)
		}
	}
	w.Wants = wants
	for _, p := range after {
		l := h.lines[p]
		if l == nil {
			l = newLine(p, &h.looks)
			h.lines[p] = l
		}
		if stood[p] {
			l.place(w)
		} else {
			l.enter(w)
		}
	}
}

// take hands out up to n sandboxes to a waiter, or as many as it needs at once.
func (h *hall) take(w *Waiter, n int) []poolindex.Candidate {
	w.couldSince = time.Time{}
	if w.Need == 0 {
		return nil
	}
	if w.aside {
		h.readmit(w)
		h.settle(w, w.pools(&w.Wants)...)
	}
	taken := h.from(h.open(w), min(n, w.Need), w.isWhole())
	if len(taken) > 0 {
		left := w.Wants
		left.Need -= len(taken)
		left.Has += len(taken)
		h.wait(w, left, len(taken))
	}
	return taken
}

// supply is a pool from which something may be taken.
type supply struct {
	Source
	available, most int
}

// open returns the pools from which a waiter may take now.
func (h *hall) open(w *Waiter) []supply {
	now := h.clock.Now()
	var open []supply
	if w.isWhole() && !h.isEnough(w, now) {
		return nil
	}
	for _, s := range w.Sources {
		l, available := h.lines[s.Pool], h.index.Available(s.Pool)
		switch {
		case available == 0:
		case w.isWhole() && h.isAhead(w, l, now):
			open = append(open, supply{s, available, available})
		case !w.isWhole():
			if first, _ := h.first(l, now); first == w {
				open = append(open, supply{s, available, l.share(available)})
			}
		}
	}
	return open
}

// unclaimed returns the pools from which a newcomer may take: those of which nothing is
// kept for a claim.
func (h *hall) unclaimed(sources []Source) []supply {
	free := make([]supply, 0, len(sources))
	for _, s := range sources {
		if available := h.index.Available(s.Pool); available > 0 && !h.isKept(s.Pool) {
			free = append(free, supply{s, available, available})
		}
	}
	return free
}

// isKept reports whether the stock of a pool is kept for a waiter.
func (h *hall) isKept(p poolindex.Pool) bool {
	l := h.lines[p]
	if l == nil {
		return false
	}
	first, _ := h.first(l, h.clock.Now())
	return first != nil
}

// from takes up to n sandboxes of pools, or with atOnce n or none.
func (h *hall) from(open []supply, n int, atOnce bool) []poolindex.Candidate {
	total := 0
	for _, s := range open {
		total += s.most
	}
	if n <= 0 || atOnce && total < n {
		return nil
	}
	var taken []poolindex.Candidate
	if len(open) > 1 { // what is on nodes that take no pods comes last, whatever its pool
		taken = takeFrom(inOrder(open), n, taken, h.index.TakeRegular)
	}
	taken = takeFrom(open, n, taken, h.index.Take)
	if atOnce && len(taken) < n { // the feed took some away in between
		h.index.Release(taken)
		return nil
	}
	return taken
}

// takeFrom adds to what was taken what take hands out of pools, in their order, until there
// are n.
func takeFrom(
	open []supply, n int, taken []poolindex.Candidate, take func(poolindex.Pool, int) []poolindex.Candidate,
) []poolindex.Candidate {
	for i := range open {
		s := &open[i]
		most := min(s.most, n-len(taken))
		if most <= 0 {
			continue
		}
		more := take(s.Pool, most)
		s.most -= len(more)
		if taken == nil {
			taken = more // the usual case: all of one pool
		} else {
			taken = append(taken, more...)
		}
	}
	return taken
}

// first returns the claim in a line whose turn it is, and for whom the stock of the pool
// is kept from others; nil if there is none. It also reports whether that claim could take now.
//
// An all-or-nothing claim that there is not enough for keeps what there is only while
// it gathers. Otherwise others are served before it, also such as need less at once.
func (h *hall) first(l *line, now time.Time) (*Waiter, bool) {
	if g := l.gathers(now); g != nil {
		return g, h.isEnough(g, now)
	}
	part, whole := l.first(parts), l.first(wholes)
	if whole != nil && l.isBefore(whole, part) {
		if h.isEnough(whole, now) {
			return whole, true
		}
		if !l.isResting(now) {
			return whole, false
		}
	}
	if modest := l.modest(); modest != nil && modest != whole && l.isBefore(modest, part) && h.isEnough(modest, now) {
		return modest, true
	}
	return part, part != nil
}

// isEnough reports whether there is enough for an all-or-nothing claim in the pools in
// whose lines no claim is ahead of it.
func (h *hall) isEnough(w *Waiter, now time.Time) bool {
	total := 0
	for _, s := range w.Sources {
		h.looks++
		if available := h.index.Available(s.Pool); available > 0 && h.isAhead(w, h.lines[s.Pool], now) {
			total += available
		}
	}
	return total >= w.Need
}

// isAhead reports whether no claim in a line keeps the stock from an all-or-nothing claim.
func (h *hall) isAhead(w *Waiter, l *line, now time.Time) bool {
	if g := l.gathers(now); g != nil {
		return g == w
	}
	whole := l.first(wholes)
	return l.isBefore(w, l.first(parts)) && (w == whole || l.isResting(now) || l.isBefore(w, whole))
}

// settle finds out whose turn it is in the lines of pools, and wakes them, but not the
// caller.
func (h *hall) settle(caller *Waiter, pools ...poolindex.Pool) {
	now := h.clock.Now()
	for i := 0; i < len(pools); i++ { // which grow
		if l := h.lines[pools[i]]; l != nil {
			pools = append(pools, h.settleLine(l, caller, now)...)
		}
	}
}

// settleLine does so for one line, and returns the lines in which it may be the turn of
// others by that.
func (h *hall) settleLine(l *line, caller *Waiter, now time.Time) []poolindex.Pool {
	if h.index.Available(l.pool) == 0 {
		delete(h.stocked, l)
		if w := l.offered; w != nil && !h.canHave(w) {
			w.couldSince = time.Time{}
		}
		return nil
	}
	h.stocked[l] = struct{}{}
	if g := l.gatherer; g != nil && l.gathers(now) == nil {
		h.gathersNoMore(g, true)
		return g.pools(&g.Wants)
	}
	w, can := h.first(l, now)
	if l.offered != nil && l.offered != w {
		l.offered.couldSince = time.Time{} // it has to wait, and is not late
	}
	if l.offered = w; w == nil {
		return nil
	}
	var others []poolindex.Pool
	if !can && l.gatherer != w {
		others = w.pools(&w.Wants)
		h.gather(w, now)
		can = h.isEnough(w, now)
	}
	switch {
	case !can:
		w.couldSince = time.Time{}
		return others
	case w.couldSince.IsZero():
		w.couldSince = now
	case now.Sub(w.couldSince) > takeWithin:
		h.setAside(w)
		return w.pools(&w.Wants)
	}
	if w != caller {
		w.wake()
	}
	return others
}

// canHave reports whether there is anything in the pools of a waiter.
func (h *hall) canHave(w *Waiter) bool {
	return slices.ContainsFunc(w.Sources, func(s Source) bool { return h.index.Available(s.Pool) > 0 })
}

// gather keeps what there is for an all-or-nothing claim in all its lines in which that
// can be. It comes before another that is first there and came later, so that no two
// keep from each other what either needs.
func (h *hall) gather(w *Waiter, now time.Time) {
	if w.gatherSince.IsZero() {
		w.gatherSince = now
	}
	for _, s := range w.Sources {
		l := h.lines[s.Pool]
		if l.gathers(now) != nil || l.isResting(now) || !l.isBefore(w, l.first(parts)) {
			continue
		}
		if first := l.first(wholes); first != w && !l.isBefore(w, first) && first.compare(w) < 0 {
			continue
		}
		if g := l.gatherer; g != nil {
			h.gathersNoMore(g, true)
		}
		l.gatherer = w
	}
}

// gathersNoMore ends the gathering of a claim. If that was in vain, its requester has
// had a turn, and the lines rest, so that others are served.
func (h *hall) gathersNoMore(w *Waiter, vain bool) {
	if w.gatherSince.IsZero() {
		return
	}
	for _, p := range w.pools(&w.Wants) {
		if l := h.lines[p]; l.gatherer == w {
			l.gatherer = nil
			if vain {
				l.restUntil = w.gatherSince.Add(2 * gatherWithin)
				l.charge(w, 1)
			}
		}
	}
	w.gatherSince = time.Time{}
}

// setAside takes from a waiter what keeps others waiting, until it shows that it is
// served.
func (h *hall) setAside(w *Waiter) {
	h.gathersNoMore(w, false)
	for _, p := range w.pools(&w.Wants) {
		h.lines[p].displace(w)
	}
	w.aside = true
	for _, p := range w.pools(&w.Wants) {
		h.lines[p].place(w)
	}
}

// readmit undoes setAside.
func (h *hall) readmit(w *Waiter) {
	if !w.aside {
		return
	}
	w.aside, w.couldSince = false, time.Time{}
	for _, p := range w.pools(&w.Wants) {
		h.lines[p].comesBack(w)
		h.lines[p].place(w)
	}
}

// charge notes that a waiter got n sandboxes, wherever from.
func (h *hall) charge(w *Waiter, n int) {
	for _, p := range w.pools(&w.Wants) {
		h.lines[p].charge(w, n)
	}
}

// stockedAgain: there was nothing in a pool that a claim could have had. If all who wait
// for it are aside, the oldest has its turn again: were it all of them, and their servers
// gone, what comes would lie idle for the time of each.
func (h *hall) stockedAgain(p poolindex.Pool) {
	l := h.lines[p]
	if l == nil {
		return
	}
	if l.offered != nil {
		l.offered.couldSince = time.Time{}
	}
	if l.first(parts) != nil || l.first(wholes) != nil {
		return
	}
	if oldest, ok := l.aside.Min(); ok {
		h.readmit(oldest)
	}
}

// tick lets the passing of time have its effect.
func (h *hall) tick() {
	for l := range h.stocked {
		h.settle(nil, l.pool)
		if h.index.Available(l.pool) > 0 && !h.isKept(l.pool) {
			l.aside.Ascend(func(w *Waiter) bool {
				w.wake()
				return true
			})
		}
	}
}

// inOrder puts pools into the order in which they are to be taken from now.
func inOrder(open []supply) []supply {
	if len(open) > 1 {
		slices.SortStableFunc(open, func(a, b supply) int {
			return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(b.available, a.available))
		})
	}
	return open
}
