// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory keeps a program within the memory that its container may use.
package memory

import (
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"runtime/metrics"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Share is what Go may take of the limit. The rest is for what is not Go's: the program
// itself, and pages of files.
const Share = 0.9

// FollowLimit has Go collect garbage before the kernel ends the program: Go's memory limit
// becomes nine tenths of that of the cgroup, if that has one. A program that uses little of it collects
// garbage less often. The environment variables GOMEMLIMIT and GOGC, where they are set, go before.
// log gets the reason why a limit cannot be read; the program runs as well without.
func FollowLimit(log io.Writer) {
	follow(memlimit.FromCgroup, log)
	followHeap()
}

func follow(limit memlimit.Provider, log io.Writer) {
	if _, err := memlimit.Set(memlimit.WithProvider(limit), memlimit.WithRatio(Share)); err != nil {
		fmt.Fprintln(log, "Warning: Go does not know the limit of memory:", err)
	}
}

// Limit returns Go's memory limit, and reports whether there is one.
func Limit() (int64, bool) {
	limit := debug.SetMemoryLimit(-1) // which changes nothing
	return limit, limit != math.MaxInt64
}

// Size returns Go's memory limit, or 4 GiB if there is none. What follows the memory of a program follows this.
func Size() int64 {
	if limit, ok := Limit(); ok {
		return limit
	}
	return assumedLimit
}

// LiveShare returns the share of Go's memory limit that was in use in the heap after the last garbage
// collection; 0 if there is no limit.
func LiveShare() float64 {
	limit, ok := Limit()
	if !ok {
		return 0
	}
	return float64(live()) / float64(limit)
}

// live returns how many bytes of the heap were in use after the last garbage collection.
func live() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
