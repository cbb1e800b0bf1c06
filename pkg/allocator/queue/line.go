// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"maps"
	"time"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// line has the claims that wait for a pool. Requesters have turns, and the claims of one requester
// are served in the order in which they came. No operation costs more than the logarithm of its
// length.
//
// Requesters are ordered by their turn, which is a number: it goes up by one for each
// sandbox that a claim of theirs in this line gets. A requester that comes to the line, or comes
// back to it, begins with the lowest turn of those that wait, and not before the next round. So it
// waits for one turn of each of the others, and any number of new requesters does not keep the
// others from their turns. Among requesters with the same turn, the one with the oldest claim is
// first.
type line struct {
	pool poolindex.Pool
	// looks counts comparisons of waiters, for tests.
	looks *int
	// members are all that wait, and seats their requesters, and those who were served
	// ahead of others that still wait.
	members map[*Waiter]struct{}
	seats   map[string]*seat
	// demand is the demand of the members whose claims this server works on.
	demand Demand
	// sweepAt is the number of seats at which those are removed that are not needed any more.
	sweepAt int
	// lanes order the seats of those who take what there is, and of those who need all
	// at once.
	lanes [2]*btree.BTree[*seat]
	// byNeed are those who need all at once, the most modest first, also those who
	// yield, who are in no lane.
	byNeed *btree.BTree[*Waiter]
	// aside are those who did not take what they could have had, by when they came.
	aside *btree.BTree[*Waiter]
	// round is the last turn that there was.
	round int
	// offered is the waiter that was woken last.
	offered   *Waiter
	gathering gathering
}

// gathering is what there is in a pool being kept for a claim although it is not enough.
type gathering struct {
	// waiter is the claim; nil if there is none. restUntil is until when nothing is kept for
	// another in this way.
	waiter    *Waiter
	restUntil time.Time
}

const (
	parts  = iota // the lane of those who take what there is
	wholes        // the lane of those who need all at once
)

// seat is a requester in a line.
type seat struct {
	turn int
	// members is how many claims of the requester wait.
	members int
	// of are its claims in the lanes.
	of [2]*btree.BTree[*Waiter]
}

const degree = 8 // of the trees: their nodes have up to 15 items

func newLine(p poolindex.Pool, looks *int) *line {
	l := &line{
		pool: p, looks: looks, sweepAt: 64,
		members: map[*Waiter]struct{}{}, seats: map[string]*seat{},
	}
	l.aside = btree.New(degree, func(a, b *Waiter) bool { return l.compareAge(a, b) < 0 })
	for lane := range l.lanes {
		l.lanes[lane] = btree.New(degree, func(a, b *seat) bool {
			return cmp.Or(cmp.Compare(a.turn, b.turn), l.compareAge(a.first(lane), b.first(lane))) < 0
		})
	}
	l.byNeed = btree.New(degree, func(a, b *Waiter) bool {
		return cmp.Or(cmp.Compare(a.wants.Need, b.wants.Need), l.compareAge(a, b)) < 0
	})
	return l
}

func (l *line) compareAge(a, b *Waiter) int {
	*l.looks++
	return a.compare(b)
}

// isBefore reports whether the turn of a, which waits, comes before that of b; nil
// comes last.
func (l *line) isBefore(a, b *Waiter) bool {
	return b == nil || a != b && cmp.Or(cmp.Compare(l.seats[a.Requester].turn, l.seats[b.Requester].turn), l.compareAge(a, b)) < 0
}

// first is the first claim of a requester in a lane; nil if there is none.
func (s *seat) first(lane int) *Waiter {
	if s.of[lane] == nil {
		return nil
	}
	w, _ := s.of[lane].Min()
	return w
}

// first is the first claim in a lane; nil if there is none.
func (l *line) first(lane int) *Waiter {
	*l.looks++
	if s, ok := l.lanes[lane].Min(); ok {
		return s.first(lane)
	}
	return nil
}

// smallest is the claim that needs the least at once; nil if there is none.
func (l *line) smallest() *Waiter {
	*l.looks++
	w, _ := l.byNeed.Min()
	return w
}

// enter adds a claim to the line.
func (l *line) enter(w *Waiter) {
	l.members[w] = struct{}{}
	s := l.seats[w.Requester]
	if s == nil {
		s = &seat{}
		l.seats[w.Requester] = s
	}
	if s.members == 0 {
		s.turn = max(s.turn, l.joinsAt())
	}
	s.members++
	l.place(w)
}

// exit takes a claim out of the line.
func (l *line) exit(w *Waiter) {
	l.displace(w)
	delete(l.members, w)
	l.aside.Delete(w)
	s := l.seats[w.Requester]
	if s.members--; s.members == 0 && s.turn <= l.round+1 {
		delete(l.seats, w.Requester)
	}
	if l.offered == w {
		l.offered = nil
	}
	if l.gathering.waiter == w {
		l.gathering.waiter = nil
	}
}

// joinsAt is the turn of a requester that joins the line now.
func (l *line) joinsAt() int {
	turn := 0
	for _, lane := range l.lanes {
		if s, ok := lane.Min(); ok && (turn == 0 || s.turn < turn) {
			turn = s.turn
		}
	}
	return max(turn, l.round+1)
}

// rejoin sets the turn of the requester of a claim that was aside to joinsAt, if it has no other
// claim in the lanes: it does not catch up the turns that it has missed.
func (l *line) rejoin(w *Waiter) {
	if s := l.seats[w.Requester]; s.first(parts) == nil && s.first(wholes) == nil {
		s.turn = max(s.turn, l.joinsAt())
	}
}

// place puts a claim of the line into its lane, or to those that are aside.
func (l *line) place(w *Waiter) {
	if w.aside {
		l.aside.ReplaceOrInsert(w)
		return
	}
	l.aside.Delete(w)
	if w.wants.isWhole() {
		l.byNeed.ReplaceOrInsert(w)
	}
	if lane, ok := laneOf(w); ok {
		s := l.seats[w.Requester]
		l.reseat(s, func() {
			if s.of[lane] == nil {
				s.of[lane] = btree.New(degree, func(a, b *Waiter) bool { return l.compareAge(a, b) < 0 })
			}
			s.of[lane].ReplaceOrInsert(w)
		})
	}
}

// displace undoes place.
func (l *line) displace(w *Waiter) {
	if w.aside {
		return
	}
	if w.wants.isWhole() {
		l.byNeed.Delete(w)
	}
	if lane, ok := laneOf(w); ok {
		s := l.seats[w.Requester]
		l.reseat(s, func() { s.of[lane].Delete(w) })
	}
}

// laneOf is the lane in which a claim stands, if it does.
func laneOf(w *Waiter) (int, bool) {
	if w.wants.isWhole() {
		return wholes, !w.wants.Yields
	}
	return parts, true
}

// reseat changes a seat that may be in the lanes.
func (l *line) reseat(s *seat, change func()) {
	for lane, seats := range l.lanes {
		if s.first(lane) != nil {
			seats.Delete(s)
		}
	}
	change()
	for lane, seats := range l.lanes {
		if s.first(lane) != nil {
			seats.ReplaceOrInsert(s)
		}
	}
}

// charge notes that a claim that waits got n sandboxes, or had its turn in vain.
func (l *line) charge(w *Waiter, n int) {
	s := l.seats[w.Requester]
	l.round = max(l.round, s.turn)
	l.reseat(s, func() { s.turn += n })
	if len(l.seats) >= l.sweepAt {
		maps.DeleteFunc(l.seats, func(_ string, s *seat) bool { return s.members == 0 && s.turn <= l.round+1 })
		l.sweepAt = max(64, 2*len(l.seats))
	}
}

// share is how much of what is there the first claim of those who take what there is may
// have in one turn: all of it if no other requester waits, else its share of it, or what
// it takes to come even with the next, and one at least.
func (l *line) share(available int) int {
	mine, _ := l.lanes[parts].Min()
	requesters, next := 0, 0
	for _, lane := range l.lanes {
		requesters += lane.Len()
		lane.Ascend(func(s *seat) bool {
			if s != mine && (next == 0 || s.turn < next) {
				next = s.turn
			}
			return s == mine // there is one of it
		})
	}
	if mine.first(wholes) != nil {
		requesters-- // it is in both
	}
	if requesters == 1 {
		return available
	}
	return max(1, available/requesters, next-mine.turn)
}

// at is for whom stock is gathered at a time; nil if for none.
func (g *gathering) at(now time.Time) *Waiter {
	if g.waiter == nil || now.Sub(g.waiter.gatherSince) > gatherWithin {
		return nil
	}
	return g.waiter
}

// isResting reports whether nothing is to be gathered at a time, because it was for long.
func (g *gathering) isResting(now time.Time) bool {
	until := g.restUntil
	if of := g.waiter; of != nil && g.at(now) == nil {
		until = of.gatherSince.Add(2 * gatherWithin)
	}
	return now.Before(until)
}
