// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package flight

// Waiters is how many wait for the work of a key.
func (g *Group[V]) Waiters(key string) int {
	g.lock.Lock()
	defer g.lock.Unlock()
	if c := g.running[key]; c != nil {
		return c.waiters
	}
	return 0
}
