// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import "sync"

// Suspensions keep revisions of an Index from being taken from for which no pod
// template can be found. A suspended revision that has no sandbox left is forgotten.
//
// Who looks for a template reads Resumes first, and passes it to Suspend when there
// is none. Events of templates call Resume, so that Suspend does nothing when there was
// one in between:
//
//	asOf := s.Resumes()
//	(the template is not found)
//	                              s.Resume(...): the template was created
//	s.Suspend(p, "r1", asOf): false, sandboxes of r1 can still be taken
type Suspensions struct {
	mu      *sync.Mutex // of the Index
	pools   *pools
	resumed uint64 // calls of Resume
}

// Resumes counts the calls of Resume, for Suspend.
func (s *Suspensions) Resumes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumed
}

// Suspend keeps the available sandboxes of a revision, and those that come, from being
// taken or counted until Resume. It does nothing if Resume was called since the count
// asOf, and reports whether it was not.
func (s *Suspensions) Suspend(p Pool, revisionName string, asOf uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resumed != asOf {
		return false
	}
	if pl := s.pools.byKey[p]; pl != nil {
		pl.suspend(revisionName)
		if pl.suspended > 0 {
			s.pools.suspend(p, pl)
		}
	}
	return true
}

// Resume lets the suspended revisions of those pools of a namespace be taken from again
// for which of holds, and returns the pools that had one. Pools of other namespaces are
// not looked at.
func (s *Suspensions) Resume(namespace string, of func(Pool) bool) []Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumed++
	return s.pools.resume(namespace, of)
}

// ResumeAll does so for all pools of all namespaces.
func (s *Suspensions) ResumeAll() []Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumed++
	var resumed []Pool
	for namespace := range s.pools.suspended {
		resumed = append(resumed, s.pools.resume(namespace, func(Pool) bool { return true })...)
	}
	return resumed
}

// Suspended reports whether a revision of the pool is suspended.
func (s *Suspensions) Suspended(p Pool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pools.suspended[p.Namespace][p] != nil
}
