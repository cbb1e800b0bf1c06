// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"sync"
)

// Shares let a number of calls run at a time, and share them out among namespaces: one
// may have as many as it leaves free for others. What becomes free goes to the namespace
// that has the fewest. So a namespace of runtimes that do not answer slows down no other
// one. They are safe for concurrent use.
type Shares struct {
	mu   sync.Mutex
	free int
	// all are the namespaces that have calls, running or waiting.
	all map[string]*share
}

// share is one namespace's.
type share struct {
	running int
	// waiting are the calls that may not run yet, oldest first. Closing one lets it run.
	waiting []chan struct{}
}

// NewShares returns the shares of a number of calls.
func NewShares(calls int) *Shares { return &Shares{free: calls, all: map[string]*share{}} }

// Begin waits until a call of a namespace may run, or ctx is done, which is the error.
// After nil, the call must be ended by End.
func (s *Shares) Begin(ctx context.Context, namespace string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	turn := s.enter(namespace)
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !s.leave(namespace, turn) {
		s.End(namespace) // it had just been let run
	}
	return ctx.Err()
}

// enter puts a call at the end of its namespace's, and lets run what may.
func (s *Shares) enter(namespace string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[namespace] == nil {
		s.all[namespace] = &share{}
	}
	turn := make(chan struct{})
	s.all[namespace].waiting = append(s.all[namespace].waiting, turn)
	s.let()
	return turn
}

// leave reports whether a call was still waiting, and then takes it out.
func (s *Shares) leave(namespace string, turn chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	its := s.all[namespace]
	for i, waiting := range its.waiting {
		if waiting == turn {
			its.waiting = append(its.waiting[:i:i], its.waiting[i+1:]...)
			s.forget(namespace)
			return true
		}
	}
	return false
}

// End ends a call of a namespace.
func (s *Shares) End(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	s.all[namespace].running--
	s.forget(namespace)
	s.let()
}

// let lets calls run for as long as there is room, of the namespace with the fewest first.
func (s *Shares) let() {
	for s.free > 0 {
		var next *share
		for _, its := range s.all {
			if len(its.waiting) > 0 && (next == nil || its.running < next.running) {
				next = its
			}
		}
		if next == nil || next.running > 0 && next.running >= s.free {
			return
		}
		close(next.waiting[0])
		next.waiting = next.waiting[1:]
		next.running++
		s.free--
	}
}

func (s *Shares) forget(namespace string) {
	if its := s.all[namespace]; its.running == 0 && len(its.waiting) == 0 {
		delete(s.all, namespace)
	}
}
