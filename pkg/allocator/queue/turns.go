// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"
	"time"

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

// first returns the claim in a line whose turn it is, and for whom the stock of the pool
// is kept from others; nil if there is none. It also reports whether that claim could take now.
//
// If there is not enough for an all-or-nothing claim, it keeps what there is only while it gathers.
// Otherwise others are served before it, also all-or-nothing claims that need less.
func (sh *shard) first(l *line, now time.Time) (*Waiter, bool) {
	if g := l.gathering.at(now); g != nil {
		return g, g.isEnough(now)
	}
	part, whole := l.first(parts), l.first(wholes)
	if whole != nil && l.isBefore(whole, part) {
		if whole.isEnough(now) {
			return whole, true
		}
		if !l.gathering.isResting(now) {
			return whole, false
		}
	}
	if smallest := l.smallest(); smallest != nil && smallest != whole && l.isBefore(smallest, part) && smallest.isEnough(now) {
		return smallest, true
	}
	return part, part != nil
}

// canHave reports whether there is anything in the pools of a waiter.
func (sh *shard) canHave(w *Waiter) bool {
	return slices.ContainsFunc(w.wants.Sources, func(s Source) bool { return sh.index.Available(s.Pool) > 0 })
}

// isAhead reports whether no claim in a line keeps the stock from an all-or-nothing claim.
func (sh *shard) isAhead(w *Waiter, l *line, now time.Time) bool {
	if g := l.gathering.at(now); g != nil {
		return g == w
	}
	whole := l.first(wholes)
	return l.isBefore(w, l.first(parts)) && (w == whole || l.gathering.isResting(now) || l.isBefore(w, whole))
}

// wakeNext finds out whose turn it is in the lines of pools, and wakes them, but not the
// caller.
func (sh *shard) wakeNext(caller *Waiter, pools ...poolindex.Pool) {
	now := sh.clock.Now()
	for i := 0; i < len(pools); i++ { // which grow
		if l := sh.lines[pools[i]]; l != nil {
			pools = append(pools, sh.wakeNextIn(l, caller, now)...)
		}
	}
}

// wakeNextIn is wakeNext for one line. It returns the pools in whose lines it may be the turn of
// another claim because of that.
func (sh *shard) wakeNextIn(l *line, caller *Waiter, now time.Time) []poolindex.Pool {
	if sh.index.Available(l.pool) == 0 {
		delete(sh.stocked, l)
		if w := l.offered; w != nil && !sh.canHave(w) {
			w.couldSince = time.Time{}
		}
		return nil
	}
	sh.stocked[l] = struct{}{}
	if g := l.gathering.waiter; g != nil && l.gathering.at(now) == nil {
		g.endGathering(true)
		return g.pools(&g.wants)
	}
	w, can := sh.first(l, now)
	if l.offered != nil && l.offered != w {
		l.offered.couldSince = time.Time{} // it has to wait, and is not late
	}
	if l.offered = w; w == nil {
		return nil
	}
	var others []poolindex.Pool
	if !can && l.gathering.waiter != w {
		others = w.pools(&w.wants)
		w.gather(now)
		can = w.isEnough(now)
	}
	switch {
	case !can:
		w.couldSince = time.Time{}
		return others
	case w.couldSince.IsZero():
		w.couldSince = now
	case now.Sub(w.couldSince) > takeWithin:
		w.setAside()
		return w.pools(&w.wants)
	}
	if w != caller {
		w.wake()
	}
	return others
}

// isEnough reports whether there is enough for an all-or-nothing claim in the pools in
// whose lines no claim is ahead of it.
func (w *Waiter) isEnough(now time.Time) bool {
	total := 0
	for _, s := range w.wants.Sources {
		w.shard.looks++
		if available := w.shard.index.Available(s.Pool); available > 0 && w.shard.isAhead(w, w.shard.lines[s.Pool], now) {
			total += available
		}
	}
	return total >= w.wants.Need
}

// gather keeps what there is for an all-or-nothing claim, in those of its lines where that is
// possible. It comes before a claim that is first in one of them and came later, so that no two
// claims keep from each other what either needs.
func (w *Waiter) gather(now time.Time) {
	if w.gatherSince.IsZero() {
		w.gatherSince = now
	}
	for _, s := range w.wants.Sources {
		l := w.shard.lines[s.Pool]
		if l.gathering.at(now) != nil || l.gathering.isResting(now) || !l.isBefore(w, l.first(parts)) {
			continue
		}
		if first := l.first(wholes); first != w && !l.isBefore(w, first) && first.compare(w) < 0 {
			continue
		}
		if g := l.gathering.waiter; g != nil {
			g.endGathering(true)
		}
		l.gathering.waiter = w
	}
}

// endGathering ends the gathering of a claim. If that was in vain, its requester has
// had a turn, and the lines rest, so that others are served.
func (w *Waiter) endGathering(vain bool) {
	if w.gatherSince.IsZero() {
		return
	}
	for _, p := range w.pools(&w.wants) {
		if l := w.shard.lines[p]; l.gathering.waiter == w {
			l.gathering.waiter = nil
			if vain {
				l.gathering.restUntil = w.gatherSince.Add(2 * gatherWithin)
				l.charge(w, 1)
			}
		}
	}
	w.gatherSince = time.Time{}
}

// setAside takes a waiter out of the order of its lines, so that it keeps nothing from others. It
// stays a member of them, and readmit puts it back when it takes again.
func (w *Waiter) setAside() {
	w.endGathering(false)
	for _, p := range w.pools(&w.wants) {
		w.shard.lines[p].displace(w)
	}
	w.aside = true
	for _, p := range w.pools(&w.wants) {
		w.shard.lines[p].place(w)
	}
}

// readmit undoes setAside.
func (w *Waiter) readmit() {
	if !w.aside {
		return
	}
	w.aside, w.couldSince = false, time.Time{}
	for _, p := range w.pools(&w.wants) {
		w.shard.lines[p].rejoin(w)
		w.shard.lines[p].place(w)
	}
}

// stockedAgain is called when a pool that had nothing has something again. If all waiters in its
// line are aside, the oldest has its turn again. It is only the oldest: if the servers of all of
// them are gone, new sandboxes would be unused for takeWithin of each.
func (sh *shard) stockedAgain(p poolindex.Pool) {
	l := sh.lines[p]
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
		oldest.readmit()
	}
}

// tick is Queue.Tick for one shard.
func (sh *shard) tick() {
	for l := range sh.stocked {
		sh.wakeNext(nil, l.pool)
		if sh.index.Available(l.pool) > 0 && !sh.isKept(l.pool) {
			l.aside.Ascend(func(w *Waiter) bool {
				w.wake()
				return true
			})
		}
	}
}
