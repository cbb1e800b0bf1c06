// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"sync"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// aside keeps candidates that are as good as ever but for the template that they
// refer to, which is missing. To the index they stay taken, so that nobody is
// dealt them again and again, until there is news that may bring the template back.
type aside struct {
	mu    sync.Mutex
	pools map[poolindex.Pool][]poolindex.Candidate
	// told counts the news.
	told uint64
}

// asOf is to be read before a template is looked for, for put.
func (s *aside) asOf() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

// put keeps a candidate whose template was looked for after asOf was read. It
// returns false, and does not, if there has been news since.
func (s *aside) put(c poolindex.Candidate, asOf uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told != asOf {
		return false
	}
	if s.pools == nil {
		s.pools = map[poolindex.Pool][]poolindex.Candidate{}
	}
	s.pools[c.Pool] = append(s.pools[c.Pool], c)
	return true
}

// has says whether something of one of these pools is kept.
func (s *aside) has(of []source) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, from := range of {
		if len(s.pools[from.pool]) > 0 {
			return true
		}
	}
	return false
}

// news returns what is no longer to be kept, because there is news of the templates
// of these pools.
func (s *aside) news(of func(poolindex.Pool) bool) []poolindex.Candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told++
	var back []poolindex.Candidate
	for p, cs := range s.pools {
		if of(p) {
			back = append(back, cs...)
			delete(s.pools, p)
		}
	}
	return back
}

// bringBack lets the candidates of some pools be taken again that were put aside.
func (a *Allocator) bringBack(of func(poolindex.Pool) bool) {
	a.queue.release(a.aside.news(of))
}

// bringBackIn is bringBack for all pools of a namespace.
func (a *Allocator) bringBackIn(namespace string) {
	a.bringBack(func(p poolindex.Pool) bool { return p.Namespace == namespace })
}
