// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// shard has the lines of some namespaces. Its methods are called with its lock held. This file puts
// waiters into lines; take.go takes sandboxes for them, and turns.go finds whose turn it is.
type shard struct {
	index *poolindex.Index
	clock clock.PassiveClock

	mu    sync.Mutex
	lines map[poolindex.Pool]*line
	// waiting are the counts of the claims that wait, by namespace.
	waiting map[string]*waitingCounts
	// stocked are the lines of pools that have something. In them the passing of time
	// may change who is next.
	stocked map[*line]struct{}
	// frontsToWake are the lines of which the next WakeFront wakes the first claims.
	frontsToWake map[*line]struct{}
	// looks counts how often a waiter was looked at, for tests.
	looks int
}

func newShard(index *poolindex.Index, c clock.PassiveClock) *shard {
	return &shard{index: index, clock: c, lines: map[poolindex.Pool]*line{}, waiting: map[string]*waitingCounts{}, stocked: map[*line]struct{}{}}
}

// wait says what a waiter wants from now on, and puts it into its lines, or takes it out,
// accordingly. watched is set if another server works on its claim, and served is how much it
// has got elsewhere, if that is more than 0.
func (sh *shard) wait(w *Waiter, wants Wants, watched bool, served int) {
	before, after := w.pools(&w.wants), w.pools(&wants)
	sh.addDemand(w, before, -1)
	w.watched = watched
	if served > 0 {
		for _, p := range before {
			sh.lines[p].charge(w, served)
		}
	}
	less, stays := wants.Need < w.wants.Need, slices.Equal(before, after)
	if less || !stays { // another server may have taken for it
		w.couldSince = time.Time{}
		w.readmit()
	}
	if less || len(before) == 0 {
		w.endGathering(false) // and not by changing lines
	}
	sh.count(w, min(1, len(after))-min(1, len(before)))
	switch {
	case w.wants.Asked != "" && w.wants.Asked != wants.Asked && len(after) > 0:
		sh.move(w, before, nil, wants)
		w.Since = toSecond(sh.clock.Now())
		sh.move(w, nil, after, wants)
	case stays && isSamePlace(&w.wants, &wants):
		w.wants = wants
	default:
		sh.move(w, before, after, wants)
	}
	sh.addDemand(w, after, 1)
	sh.wakeNext(w, append(before, after...)...)
}

// addDemand adds the need of a waiter to the demand of the lines of these pools, or subtracts
// it if sign is -1. A waiter whose claim another server works on is not counted.
func (sh *shard) addDemand(w *Waiter, pools []poolindex.Pool, sign int) {
	if w.watched {
		return
	}
	for _, p := range pools {
		d := &sh.lines[p].demand
		d.Claims += sign
		d.Sandboxes += sign * w.wants.Need
	}
}

// count adds n to the number of waiting claims of the namespace and requester of a waiter.
func (sh *shard) count(w *Waiter, n int) {
	p := sh.waiting[w.Namespace]
	if p == nil {
		p = &waitingCounts{of: map[string]int{}}
		sh.waiting[w.Namespace] = p
	}
	p.all += n
	if p.of[w.Requester] += n; p.of[w.Requester] == 0 {
		delete(p.of, w.Requester)
	}
	if p.all == 0 {
		delete(sh.waiting, w.Namespace)
	}
}

// move takes a waiter from the lines of some pools to those of others. In a line that it stays in,
// its requester keeps its turn.
func (sh *shard) move(w *Waiter, before, after []poolindex.Pool, wants Wants) {
	stands := make(map[poolindex.Pool]bool, len(after))
	for _, p := range after {
		stands[p] = true
	}
	stood := make(map[poolindex.Pool]bool, len(before))
	for _, p := range before {
		if l := sh.lines[p]; stands[p] {
			stood[p] = true
			l.displace(w)
		} else if l.exit(w); len(l.members) == 0 {
			delete(sh.lines, p)
			delete(sh.stocked, l)
			delete(sh.frontsToWake, l)
		}
	}
	w.wants = wants
	for _, p := range after {
		l := sh.lines[p]
		if l == nil {
			l = newLine(p, &sh.looks)
			sh.lines[p] = l
		}
		if stood[p] {
			l.place(w)
		} else {
			l.enter(w)
		}
	}
}
