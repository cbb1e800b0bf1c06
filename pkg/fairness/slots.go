// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fairness shares slots and rates fairly among keys, such as teams, and among sources of clients.
package fairness

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Slots are a number of slots that keys share. A key may hold as many as stay free for others: alone it
// gets at most half of all, two that want everything get a third each, and as many stay free for the next
// key. They are safe for concurrent use.
type Slots struct {
	perKey int

	lock sync.Mutex
	free int
	// keys are those that hold slots or wait for them.
	keys map[string]*holder
	// waits counts the calls that have waited, and serves those that were given slots.
	waits, serves uint64
}

// holder is what a key holds.
type holder struct {
	held int
	// served is when it was last given slots that it waited for, as a number of the order of that; 0 is never.
	served uint64
	// waiting are the calls that wait for a slot, the oldest first.
	waiting []*waiter
}

// waiter is a call that waits for a slot.
type waiter struct {
	// number is the order of waiters.
	number uint64
	// slots is how many it waits for.
	slots int
	// given is closed when it has its slot.
	given chan struct{}
}

// NewSlots returns a number of slots. No key ever holds more than perKey of them.
func NewSlots(total, perKey int) *Slots {
	return &Slots{perKey: perKey, free: total, keys: map[string]*holder{}}
}

// Take takes a slot for a key. ok is false if the key has its share. Otherwise release
// releases the slot; only the first call of it counts.
func (s *Slots) Take(key string) (release func(), ok bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	h := s.of(key)
	if !s.canTake(h, 1) {
		s.forget(key)
		return nil, false
	}
	s.take(h, 1)
	return s.release(key, 1), true
}

// Wait takes a slot for a key, and waits for it if the key has its share. A slot that becomes free goes to
// the key that holds the fewest, of several to the one that was given one the longest ago or never, and of several
// to the one that has waited longest. The error is that of ctx.
func (s *Slots) Wait(ctx context.Context, key string) (release func(), err error) {
	return s.WaitFor(ctx, key, 1)
}

// WaitFor is Wait for several slots at once, which are released together. They may not be more than a key may ever have.
func (s *Slots) WaitFor(ctx context.Context, key string, slots int) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := s.enter(key, slots)
	select {
	case <-w.given:
		return s.release(key, slots), nil
	case <-ctx.Done():
	}
	if !s.leave(key, w) {
		s.give(key, slots) // it was given meanwhile
	}
	return nil, ctx.Err()
}

// Held returns how many slots are taken.
func (s *Slots) Held() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	n := 0
	for _, h := range s.keys {
		n += h.held
	}
	return n
}

// of returns the holder of a key. forget removes it when it holds nothing.
func (s *Slots) of(key string) *holder {
	if s.keys[key] == nil {
		s.keys[key] = &holder{}
	}
	return s.keys[key]
}

func (s *Slots) forget(key string) {
	if h := s.keys[key]; h.held == 0 && len(h.waiting) == 0 {
		delete(s.keys, key)
	}
}

// canTake reports whether a key gets more slots. It does only if at least as many slots stay free as the
// key then holds. It gets its first slots as long as there are as many.
func (s *Slots) canTake(h *holder, slots int) bool {
	return s.free >= slots && h.held+slots <= s.perKey && (h.held == 0 || h.held+slots <= s.free-slots)
}

func (s *Slots) take(h *holder, slots int) {
	s.free -= slots
	h.held += slots
}

// release returns a function that releases slots of a key.
func (s *Slots) release(key string, slots int) func() {
	return sync.OnceFunc(func() { s.give(key, slots) })
}

func (s *Slots) give(key string, slots int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.free += slots
	s.keys[key].held -= slots
	s.forget(key)
	s.serve()
}

// enter adds a waiter for a key, and gives slots to the waiters that get one.
func (s *Slots) enter(key string, slots int) *waiter {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.waits++
	w := &waiter{number: s.waits, slots: slots, given: make(chan struct{})}
	h := s.of(key)
	h.waiting = append(h.waiting, w)
	s.serve()
	return w
}

// leave removes a waiter. It returns false if the waiter has got its slot.
func (s *Slots) leave(key string, w *waiter) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	h := s.keys[key]
	i := slices.Index(h.waiting, w)
	if i < 0 {
		return false
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	s.forget(key)
	s.serve() // those behind it may wait for fewer
	return true
}

// serve gives slots to the waiters that get some. If too few are free for a key that has none and is the next, it gives
// no others any, so that the key gets them in the end.
func (s *Slots) serve() {
	for s.free > 0 {
		var next *holder
		for _, h := range s.keys {
			if len(h.waiting) > 0 && (h.held == 0 || s.canTake(h, h.waiting[0].slots)) && (next == nil || h.precedes(next)) {
				next = h
			}
		}
		if next == nil || !s.canTake(next, next.waiting[0].slots) {
			return
		}
		given := next.waiting[0]
		next.waiting = slices.Delete(next.waiting, 0, 1)
		s.take(next, given.slots)
		s.serves++
		next.served = s.serves
		close(given.given)
	}
}

// precedes reports whether a key gets a slot before another one. Both wait. Keys that hold as many take turns, however
// many calls of each wait.
func (h *holder) precedes(other *holder) bool {
	return cmp.Or(cmp.Compare(h.held, other.held), cmp.Compare(h.served, other.served), cmp.Compare(h.waiting[0].number, other.waiting[0].number)) < 0
}
