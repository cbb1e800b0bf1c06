// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package share divides a number of places fairly among those who come.
package share

import "sync"

// Places are a number of places that keys share. A key may have as many as it leaves free
// for others: alone it gets half of all, two that want everything get a third each, and
// the same again is always left for who comes next.
type Places struct {
	perKey int

	lock sync.Mutex
	free int
	held map[string]int
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
	// With one more for itself it still has to leave as many to others. The first place of
	// a key is free as long as there is any.
	if held := p.held[key]; p.free == 0 || held >= p.perKey || (held > 0 && held+1 > p.free-1) {
		return nil, false
	}
	p.free--
	p.held[key]++
	return sync.OnceFunc(func() { p.give(key) }), true
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

func (p *Places) give(key string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.free++
	if p.held[key]--; p.held[key] == 0 {
		delete(p.held, key)
	}
}
