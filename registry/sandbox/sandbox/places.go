// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import "sync"

// places are what requests to sandboxes may take at a time.
type places struct {
	ofUser int

	mu    sync.Mutex
	free  int
	taken map[string]int
}

func newPlaces(all, ofUser int) *places {
	return &places{ofUser: ofUser, free: all, taken: map[string]int{}}
}

// take takes a place for a user, until leave is called.
func (p *places) take(user string) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == 0 || p.taken[user] >= p.ofUser {
		return nil, false
	}
	p.free--
	p.taken[user]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free++
		if p.taken[user]--; p.taken[user] == 0 {
			delete(p.taken, user)
		}
	}), true
}
