// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"runtime/debug"
	"testing"
)

// percent returns what GOGC is at the moment.
func percent() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestLoad(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(80))
	unset(t, "GOGC")

	first, second := Load(), Load()
	if got := percent(); got != loadPercent {
		t.Errorf("GOGC is %d during a load, want %d", got, loadPercent)
	}
	first()
	first() // which does nothing
	if got := percent(); got != loadPercent {
		t.Errorf("GOGC is %d while one of two loads goes on, want %d", got, loadPercent)
	}
	second()
	if got := percent(); got != 80 {
		t.Errorf("GOGC is %d after all loads, want that of before, 80", got)
	}
	t.Setenv("GOGC", "80") // of which Go itself has learned at its start
	defer Load()()
	if got := percent(); got != 80 {
		t.Errorf("GOGC is %d in spite of the environment, want 80", got)
	}
}
