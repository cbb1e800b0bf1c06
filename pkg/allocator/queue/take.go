// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"slices"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// supply is a pool from which something may be taken.
type supply struct {
	Source
	available, most int
}

// openTo returns the pools from which a waiter may take now.
func (sh *shard) openTo(w *Waiter) []supply {
	now := sh.clock.Now()
	var open []supply
	if w.wants.isWhole() && !w.isEnough(now) {
		return nil
	}
	for _, s := range w.wants.Sources {
		l, available := sh.lines[s.Pool], sh.index.Available(s.Pool)
		switch {
		case available == 0:
		case w.wants.isWhole() && sh.isAhead(w, l, now):
			open = append(open, supply{s, available, available})
		case !w.wants.isWhole():
			if first, _ := sh.first(l, now); first == w {
				open = append(open, supply{s, available, l.share(available)})
			}
		}
	}
	return open
}

// openToNewcomers returns the pools from which a newcomer may take: those of which nothing is
// kept for a claim.
func (sh *shard) openToNewcomers(sources []Source) []supply {
	free := make([]supply, 0, len(sources))
	for _, s := range sources {
		if available := sh.index.Available(s.Pool); available > 0 && !sh.isKept(s.Pool) {
			free = append(free, supply{s, available, available})
		}
	}
	return free
}

// isKept reports whether the stock of a pool is kept for a waiter.
func (sh *shard) isKept(p poolindex.Pool) bool {
	l := sh.lines[p]
	if l == nil {
		return false
	}
	first, _ := sh.first(l, sh.clock.Now())
	return first != nil
}

// takeOpen takes up to n sandboxes of pools, or with atOnce n or none.
func (sh *shard) takeOpen(open []supply, n int, atOnce bool) []poolindex.Candidate {
	total := 0
	for _, s := range open {
		total += s.most
	}
	if n <= 0 || atOnce && total < n {
		return nil
	}
	var taken []poolindex.Candidate
	if len(open) > 1 { // what is on nodes that take no pods comes last, whatever its pool
		taken = takeFrom(inOrder(open), n, taken, sh.index.TakeRegular)
	}
	taken = takeFrom(open, n, taken, sh.index.Take)
	if atOnce && len(taken) < n { // the feed took some away in between
		sh.index.Release(taken)
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

// inOrder puts pools into the order in which they are to be taken from now.
func inOrder(open []supply) []supply {
	if len(open) > 1 {
		slices.SortStableFunc(open, func(a, b supply) int {
			return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(b.available, a.available))
		})
	}
	return open
}
