// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness

import "sync"

// Sources are slots that sources of clients share. Clients have many sources at little cost,
// so a fixed part of the slots is kept for those that have none:
//
//   - a source that has a slot leaves half of all to sources that have none;
//   - a site that has a slot leaves a quarter of all to sites that have none;
//   - a site has half of all at most, and a source of it that has a slot leaves half of
//     these to sources of the site that have none.
type Sources struct {
	total, perSource int

	lock sync.Mutex
	free int
	// held are the slots by source, and by site.
	held map[string]int
}

// NewSources returns slots. No source ever has more than perSource of them.
func NewSources(total, perSource int) *Sources {
	return &Sources{total: total, perSource: perSource, free: total, held: map[string]int{}}
}

// Take takes a slot for a source. ok is false if the source has its share. Otherwise release
// releases the slot; only the first call of it counts.
func (s *Sources) Take(source string) (release func(), ok bool) {
	site := Site(source)
	s.lock.Lock()
	defer s.lock.Unlock()
	if !s.may(source, site) {
		return nil, false
	}
	s.change(source, site, 1)
	return sync.OnceFunc(func() {
		s.lock.Lock()
		defer s.lock.Unlock()
		s.change(source, site, -1)
	}), true
}

func (s *Sources) may(source, site string) bool {
	ofSource, ofSite, left := s.held[source], s.held[site], s.free-1
	switch {
	case left < 0 || ofSource >= s.perSource:
		return false
	case ofSource > 0 && left < s.total/2, ofSite > 0 && source != site && left < s.total/4:
		return false
	case source == site:
		return true
	}
	return ofSite < s.total/2 && (ofSource == 0 || ofSite < s.total/4)
}

func (s *Sources) change(source, site string, by int) {
	s.free -= by
	s.add(source, by)
	if site != source {
		s.add(site, by)
	}
}

func (s *Sources) add(key string, by int) {
	if s.held[key] += by; s.held[key] == 0 {
		delete(s.held, key)
	}
}
