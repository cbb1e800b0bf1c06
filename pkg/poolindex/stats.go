// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

// Depth is how many sandboxes of a pool the index has.
type Depth struct {
	// Available could be taken now.
	Available int
	// Taken are with a caller, who has not said yet what became of them.
	Taken int
}

// Depths returns the depth of every pool that is not empty, and of some that
// are. It costs a step per pool, whatever the pools hold.
func (x *Index) Depths() map[Pool]Depth {
	x.mu.Lock()
	defer x.mu.Unlock()
	depths := make(map[Pool]Depth, len(x.pools))
	for p, pl := range x.pools {
		depths[p] = Depth{Available: pl.available, Taken: pl.taken}
	}
	return depths
}

// untake says that a taken sandbox of the pool was answered for.
func (x *Index) untake(p Pool) {
	x.pools[p].taken-- // a pool stays as long as something of it is taken
	x.dropPoolIfEmpty(p)
}
