// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import "testing"

func TestParseStatus(t *testing.T) {
	const text = "Name:\ta VmRSS: program\nVmPeak:\t  9000 kB\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\nThreads:\t3\n"
	if got, err := parseStatus(text); err != nil || got != (Memory{Resident: 1 << 20, Peak: 2 << 20}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, wrong := range []string{"", "VmRSS:\t1 kB\n", "VmHWM:\tmany kB\nVmRSS:\t1 kB\n", "VmHWM:\t1 MB\nVmRSS:\t1 kB\n"} {
		if got, err := parseStatus(wrong); err == nil {
			t.Errorf("%q: %+v", wrong, got)
		}
	}
}
