// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"os"
	"runtime/debug"
	"sync"
)

// loadPercent is GOGC for the time of a load.
const loadPercent = 300

// loads are the loads that go on, and what GOGC was before the first of them.
var loads struct {
	sync.Mutex
	n, percent int
}

// Load makes Go collect garbage less often until done is called. It is for a part of a program
// that reads everything that is stored: nearly all of that is kept, and each collection goes
// through all of it for little. The limit of memory holds all the same. The environment
// variable GOGC, where it is set, goes before.
func Load() (done func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	loads.Lock()
	defer loads.Unlock()
	if loads.n++; loads.n == 1 {
		loads.percent = debug.SetGCPercent(loadPercent)
	}
	return sync.OnceFunc(func() {
		loads.Lock()
		defer loads.Unlock()
		if loads.n--; loads.n == 0 {
			debug.SetGCPercent(loads.percent)
		}
	})
}
