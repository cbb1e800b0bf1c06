// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"errors"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestLimitFromCgroup(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	unset(t, "GOMEMLIMIT")
	unset(t, "AUTOMEMLIMIT")

	var log strings.Builder
	follow(memlimit.Limit(1000<<20), &log)
	if got := debug.SetMemoryLimit(-1); got != 900<<20 || log.Len() > 0 {
		t.Errorf("limit %d, want %d; %s", got, 900<<20, &log)
	}
	follow(func() (uint64, error) { return 0, errors.New("no cgroups here") }, &log)
	if !strings.Contains(log.String(), "no cgroups here") {
		t.Errorf("the log says %q", &log)
	}
	if got := debug.SetMemoryLimit(-1); got != 900<<20 {
		t.Errorf("limit %d after an error, want the one before", got)
	}
	follow(func() (uint64, error) { return 0, memlimit.ErrNoLimit }, &log)
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("limit %d where the cgroup has none", got)
	}
	t.Setenv("GOMEMLIMIT", "77MiB") // of which Go itself has learned at its start
	follow(memlimit.Limit(1000<<20), &log)
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("limit %d in spite of GOMEMLIMIT", got)
	}
}

func TestLimit(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(77 << 20))
	if got, ok := Limit(); got != 77<<20 || !ok || Size() != got {
		t.Errorf("limit %d, %t, size %d", got, ok, Size())
	}
	debug.SetMemoryLimit(math.MaxInt64)
	if got, ok := Limit(); ok || Size() != 4<<30 {
		t.Errorf("limit %d where there is none, size %d", got, Size())
	}
}

func unset(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "") // restores it
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}
