// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import "github.com/sandlot-io/sandlot/pkg/poolindex"

// Where a claim stands is an estimate: turns are counted as if each claim needed one sandbox, and
// who comes later with a lower turn may still be served before. Looking at a place costs no more
// than the places that are asked for.

// Ahead is how many claims have their turn before a waiter, in that of its lines in which these are
// the fewest. It counts up to most, at which there may be more. isInLine is false for a waiter that
// waits for nothing.
func (w *Waiter) Ahead(most int) (n int, isInLine bool) {
	const lines = 8 // in which it is looked
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	if w.wants.Need == 0 {
		return 0, false
	}
	fewest := most
	for _, s := range w.wants.Sources[:min(lines, len(w.wants.Sources))] {
		if l := w.shard.lines[s.Pool]; l != nil {
			fewest = min(fewest, l.ahead(w, fewest))
		}
	}
	return fewest, len(w.wants.Sources) > 0
}

// ahead is how many claims have their turn before that of a waiter, up to most.
func (l *line) ahead(w *Waiter, most int) int {
	mine, turn := l.seats[w.Requester], l.joinsAt()
	count := 0
	if mine != nil {
		if mine.members > 0 {
			turn = mine.turn
		} else {
			turn = max(turn, mine.turn)
		}
		for _, claims := range mine.of {
			if claims == nil {
				continue
			}
			claims.Ascend(func(other *Waiter) bool {
				if other == w || other.compare(w) >= 0 || count >= most {
					return false
				}
				count++
				return true
			})
		}
	}
	turn += count // that of the claim itself, after those of its requester before it
	for lane, seats := range l.lanes {
		seats.Ascend(func(s *seat) bool {
			if count >= most || s.turn > turn {
				return false
			}
			if s == mine {
				return true
			}
			turns := turn - s.turn
			if s.first(lane).compare(w) < 0 {
				turns++
			}
			if turns == 0 { // nor have those after it, which are as late and came later
				return false
			}
			count += min(turns, s.of[lane].Len())
			return true
		})
	}
	return min(count, most)
}

// WakeFrontLater lets the next WakeFront wake the first claims in the line of a pool.
func (q *Queue) WakeFrontLater(p poolindex.Pool) {
	sh := q.shardOf(p.Namespace)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if l := sh.lines[p]; l != nil {
		if sh.frontsToWake == nil {
			sh.frontsToWake = map[*line]struct{}{}
		}
		sh.frontsToWake[l] = struct{}{}
	}
}

// WakeFront wakes the first n claims of each line that WakeFrontLater was called for since it was last
// called. Other lines cost nothing.
func (q *Queue) WakeFront(n int) {
	for _, sh := range q.shards {
		sh.mu.Lock()
		for l := range sh.frontsToWake {
			l.wakeFront(n)
		}
		clear(sh.frontsToWake)
		sh.mu.Unlock()
	}
}

// wakeFront wakes n claims of a line, those of the requesters whose turns are next.
func (l *line) wakeFront(n int) {
	for lane, seats := range l.lanes {
		left := n
		seats.Ascend(func(s *seat) bool {
			s.of[lane].Ascend(func(w *Waiter) bool {
				if left == 0 {
					return false
				}
				left--
				w.wake()
				return true
			})
			return left > 0
		})
	}
}
