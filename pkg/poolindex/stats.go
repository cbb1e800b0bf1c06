// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

// Depth is how many sandboxes of a pool the index has.
type Depth struct {
	// Available could be taken now.
	Available int
	// Taken are with a caller, who has not answered yet what became of them.
	Taken int
}

// Depths returns the depth of every pool that is not empty, and of some that
// are. It costs a step per pool, whatever the pools hold.
func (x *Index) Depths() map[Pool]Depth {
	x.mu.Lock()
	defer x.mu.Unlock()
	depths := make(map[Pool]Depth, len(x.pools.byKey))
	for p, pl := range x.pools.byKey {
		depths[p] = Depth{Available: pl.available, Taken: pl.taken}
	}
	return depths
}

// Available is the number of sandboxes of the pool that could be taken now.
func (x *Index) Available(p Pool) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if pl := x.pools.byKey[p]; pl != nil {
		return pl.available
	}
	return 0
}
