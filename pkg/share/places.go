// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package share divides a number of places fairly among those who come.
package share

import (
	"context"
	"slices"
	"sync"
)

// Places are a number of places that keys share. A key may have as many as it leaves free
// for others: alone it gets half of all, two that want everything get a third each, and
// the same again is always left for who comes next.
type Places struct {
	perKey int

	lock sync.Mutex
	free int
	held map[string]int
	// waiting are those who wait for a place, oldest first.
	waiting []*waiter
}

// waiter waits for a place of a key.
type waiter struct {
	key string
	// given is closed when it has its place.
	given chan struct{}
}

// New returns places. No key ever has more than perKey of them.
func New(total, perKey int) *Places {
	return &Places{perKey: perKey, free: total, held: map[string]int{}}
}

// Take takes a place for a key. ok is false if the key has its share. Otherwise release
// gives the place back; only the first call of it counts.
func (p *Places) Take(key string) (release func(), ok bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if !p.may(key) {
		return nil, false
	}
	p.take(key)
	return p.release(key), true
}

// Wait takes a place for a key, and waits for it if the key has its share. The error is that of
// ctx.
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
	if !p.leave(w) {
		p.give(key) // it was given just now
	}
	return nil, ctx.Err()
}

// Held is how many places are taken.
func (p *Places) Held() int {
	p.lock.Lock()
	defer p.lock.Unlock()
	n := 0
	for _, held := range p.held {
		n += held
	}
	return n
}

// may reports whether a key may have another place. With one more for itself it still has to
// leave as many to others. The first place of a key is free as long as there is any.
func (p *Places) may(key string) bool {
	held := p.held[key]
	return p.free > 0 && held < p.perKey && (held == 0 || held+1 <= p.free-1)
}

func (p *Places) take(key string) {
	p.free--
	p.held[key]++
}

// release returns what gives back a place of a key.
func (p *Places) release(key string) func() { return sync.OnceFunc(func() { p.give(key) }) }

func (p *Places) give(key string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.free++
	if p.held[key]--; p.held[key] == 0 {
		delete(p.held, key)
	}
	p.serve()
}

// enter puts a key at the end of those who wait, and gives places to those who may have one.
func (p *Places) enter(key string) *waiter {
	p.lock.Lock()
	defer p.lock.Unlock()
	w := &waiter{key: key, given: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.serve()
	return w
}

// leave reports whether one was still waiting, and then it does not wait any more.
func (p *Places) leave(w *waiter) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	i := slices.Index(p.waiting, w)
	if i < 0 {
		return false
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	return true
}

// serve gives places to those who may have one, oldest first. A key with fewer places may have
// another one earlier than a key with more.
func (p *Places) serve() {
	for {
		next := slices.IndexFunc(p.waiting, func(w *waiter) bool { return p.may(w.key) })
		if next < 0 {
			return
		}
		w := p.waiting[next]
		p.waiting = slices.Delete(p.waiting, next, next+1)
		p.take(w.key)
		close(w.given)
	}
}
