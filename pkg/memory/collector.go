// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

// Room is by which share of the memory limit the heap may grow between two garbage collections, however
// little of it is in use.
const Room = 1.0 / 16

const (
	// assumedLimit is the memory limit where there is none.
	assumedLimit = 4 << 30
	// minPercent is Go's own GOGC. With maxPercent, the first collections of a program are not too
	// far apart for what it reads meanwhile.
	minPercent, maxPercent = 100, 1000
	// loadPercent is GOGC at least for the time of a load.
	loadPercent = 300
)

// collector is how often Go collects garbage. The environment variable GOGC, where it is set, goes before.
var collector struct {
	sync.Mutex
	// followsHeap is whether GOGC follows what is in use.
	followsHeap bool
	// loads is how many loads continue.
	loads int
	// percent is GOGC as it was set last; 0 if it was not.
	percent int
}

// percentFor returns GOGC for a heap of which so many bytes are in use. A collection costs what is in use, so a
// small heap that grows by as much again is collected for little.
func percentFor(live, limit int64) int {
	return int(min(max(100*Room*float64(limit)/float64(max(live, 1)), minPercent), maxPercent))
}

// followHeap has GOGC follow what is in use, at the end of each collection.
func followHeap() {
	if os.Getenv("GOGC") != "" {
		return
	}
	collector.Lock()
	defer collector.Unlock()
	if !collector.followsHeap {
		collector.followsHeap = true
		adjust()
		afterCollection()
	}
}

// afterCollection sets GOGC after the next collection, and after each of them from then on.
func afterCollection() {
	unreachable := new([64]byte)
	runtime.AddCleanup(unreachable, func(struct{}) {
		collector.Lock()
		defer collector.Unlock()
		if collector.followsHeap {
			adjust()
			afterCollection()
		}
	}, struct{}{})
}

// adjust sets GOGC. The caller has the lock of the collector.
func adjust() {
	percent := minPercent
	if collector.followsHeap {
		percent = percentFor(live(), Size())
	}
	if collector.loads > 0 {
		percent = max(percent, loadPercent)
	}
	if percent != collector.percent {
		collector.percent = percent
		debug.SetGCPercent(percent)
	}
}

// Load makes Go collect garbage less often until done is called. It is for a part of a program
// that reads everything that is stored: nearly all of that is kept, and each collection goes
// through all of it for little. The limit of memory holds all the same.
func Load() (done func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	load(1)
	return sync.OnceFunc(func() { load(-1) })
}

func load(n int) {
	collector.Lock()
	defer collector.Unlock()
	collector.loads += n
	adjust()
}
