// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fairness divides a number of places fairly among those who come.
package fairness

import (
	"context"
	"slices"
	"sync"
)

// Places are a number of places that keys share. A key may have as many as it leaves free
// for others: alone it gets at most half of all, two that want everything get a third each, and
// the same again is always left for who comes next. They are safe for concurrent use.
type Places struct {
	perKey int

	lock sync.Mutex
	free int
	// keys are those that have places or wait for them.
	keys map[string]*holder
	// came counts those who have waited.
	came uint64
}

// holder is one key's.
type holder struct {
	held int
	// waiting are those who wait for a place, oldest first.
	waiting []*waiter
}

// waiter waits for a place of a key.
type waiter struct {
	// number is in the order in which they came.
	number uint64
	// given is closed when it has its place.
	given chan struct{}
}

// New returns places. No key ever has more than perKey of them.
func New(total, perKey int) *Places {
	return &Places{perKey: perKey, free: total, keys: map[string]*holder{}}
}

// Take takes a place for a key. ok is false if the key has its share. Otherwise release
// gives the place back; only the first call of it counts.
func (p *Places) Take(key string) (release func(), ok bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	h := p.of(key)
	if !p.may(h) {
		p.forget(key)
		return nil, false
	}
	p.take(h)
	return p.release(key), true
}

// Wait takes a place for a key, and waits for it if the key has its share. A place that becomes
// free goes to the key that has the fewest, and of several to the one that has waited longest.
// The error is that of ctx.
func (p *Places) Wait(ctx context.Context, key string) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := p.enter(key)
	select {
	case <-w.given:
		return p.release(key), nil
	case <-ctx.Done():
	}
	if !p.leave(key, w) {
		p.give(key) // it was given just now
	}
	return nil, ctx.Err()
}

// Held is how many places are taken.
func (p *Places) Held() int {
	p.lock.Lock()
	defer p.lock.Unlock()
	n := 0
	for _, h := range p.keys {
		n += h.held
	}
	return n
}

// of returns what a key has, which forget removes when that is nothing.
func (p *Places) of(key string) *holder {
	if p.keys[key] == nil {
		p.keys[key] = &holder{}
	}
	return p.keys[key]
}

func (p *Places) forget(key string) {
	if h := p.keys[key]; h.held == 0 && len(h.waiting) == 0 {
		delete(p.keys, key)
	}
}

// may reports whether a key may have another place. With one more for itself it still has to
// leave as many to others. The first place of a key is free as long as there is any.
func (p *Places) may(h *holder) bool {
	return p.free > 0 && h.held < p.perKey && (h.held == 0 || h.held+1 <= p.free-1)
}

func (p *Places) take(h *holder) {
	p.free--
	h.held++
}

// release returns what gives back a place of a key.
func (p *Places) release(key string) func() { return sync.OnceFunc(func() { p.give(key) }) }

func (p *Places) give(key string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.free++
	p.keys[key].held--
	p.forget(key)
	p.serve()
}

// enter puts one at the end of those of a key who wait, and gives places to those who may have one.
func (p *Places) enter(key string) *waiter {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.came++
	w := &waiter{number: p.came, given: make(chan struct{})}
	h := p.of(key)
	h.waiting = append(h.waiting, w)
	p.serve()
	return w
}

// leave reports whether one was still waiting, and then it does not wait any more.
func (p *Places) leave(key string, w *waiter) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	h := p.keys[key]
	i := slices.Index(h.waiting, w)
	if i < 0 {
		return false
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	p.forget(key)
	return true
}

// serve gives places to those who wait and may have one.
func (p *Places) serve() {
	for p.free > 0 {
		var next *holder
		for _, h := range p.keys {
			if len(h.waiting) > 0 && p.may(h) && (next == nil || h.precedes(next)) {
				next = h
			}
		}
		if next == nil {
			return
		}
		close(next.waiting[0].given)
		next.waiting = slices.Delete(next.waiting, 0, 1)
		p.take(next)
	}
}

// precedes reports whether a key gets a place before another one. Both wait.
func (h *holder) precedes(other *holder) bool {
	return h.held < other.held || h.held == other.held && h.waiting[0].number < other.waiting[0].number
}
