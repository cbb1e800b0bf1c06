// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const mib = 1 << 20

// percent returns what GOGC is at the moment.
func percent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// reset brings the collector back to what it is in a new process, now and at the end of the test.
func reset(t *testing.T) {
	t.Helper()
	unset(t, "GOGC")
	forget := func() {
		collector.Lock()
		defer collector.Unlock()
		collector.followsHeap, collector.loads, collector.percent = false, 0, 0
		debug.SetGCPercent(minPercent)
	}
	forget()
	t.Cleanup(forget)
}

func TestPercentFor(t *testing.T) {
	const GiB = 1 << 30
	for _, tc := range []struct {
		live, limit int64
		want        int
	}{
		{64 * mib, 4 * GiB, 400},
		{256 * mib, 4 * GiB, 100},
		{3 * GiB, 4 * GiB, 100},
		{60 * mib, 320 * mib, 100}, // little memory is used as before
		{0, 4 * GiB, maxPercent},
	} {
		if got := percentFor(tc.live, tc.limit); got != tc.want {
			t.Errorf("GOGC is %d with %d MiB in use of %d, want %d", got, tc.live/mib, tc.limit/mib, tc.want)
		}
	}
}

// TestFollowsHeap checks that GOGC falls when more of the heap is in use, and rises when less is.
func TestFollowsHeap(t *testing.T) {
	reset(t)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1024 * mib))
	followHeap()
	if got := percent(); got <= minPercent {
		t.Errorf("GOGC is %d with a small heap", got)
	}
	held := make([]byte, 128*mib)
	collectUntil(t, func(percent int) bool { return percent == minPercent })
	runtime.KeepAlive(held)
	collectUntil(t, func(percent int) bool { return percent > minPercent })
}

// collectUntil collects garbage until GOGC is right.
func collectUntil(t *testing.T, right func(percent int) bool) {
	t.Helper()
	for timeout := time.After(time.Minute); !right(percent()); {
		runtime.GC()
		select {
		case <-time.After(time.Millisecond): // which lets cleanups run
		case <-timeout:
			t.Fatalf("GOGC is still %d", percent())
		}
	}
}

// TestEnvironmentGoesBefore checks that nothing changes GOGC where the environment sets it.
func TestEnvironmentGoesBefore(t *testing.T) {
	reset(t)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	t.Setenv("GOGC", "80") // of which Go itself has learned at its start
	debug.SetGCPercent(80)
	follow(memlimit.Limit(1000*mib), io.Discard)
	followHeap()
	done := Load()
	if got := percent(); got != 80 {
		t.Errorf("GOGC is %d during a load in spite of the environment, want 80", got)
	}
	done()
	if got := percent(); got != 80 {
		t.Errorf("GOGC is %d in spite of the environment, want 80", got)
	}
}

func TestLoad(t *testing.T) {
	reset(t)
	first, second := Load(), Load()
	if got := percent(); got != loadPercent {
		t.Errorf("GOGC is %d during a load, want %d", got, loadPercent)
	}
	first()
	first() // which does nothing
	if got := percent(); got != loadPercent {
		t.Errorf("GOGC is %d while one of two loads is still in progress, want %d", got, loadPercent)
	}
	second()
	if got := percent(); got != minPercent {
		t.Errorf("GOGC is %d after all loads, want %d", got, minPercent)
	}
}

// TestLoadOfSmallHeap checks that a load does not make Go collect more often.
func TestLoadOfSmallHeap(t *testing.T) {
	reset(t)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 30))
	followHeap()
	before := percent()
	if before <= loadPercent {
		t.Fatalf("GOGC is %d with a small heap", before)
	}
	defer Load()()
	if got := percent(); got < loadPercent {
		t.Errorf("GOGC is %d during a load, want at least %d", got, loadPercent)
	}
}
