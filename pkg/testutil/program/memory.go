// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is the resident memory of a process, in bytes: now, and at most so far. Pages of
// files that are mapped, such as the program itself, are in it.
type Memory struct {
	Resident, Peak int64
}

// ReadMemory returns the memory of a process, which Linux tells.
func ReadMemory(pid int) (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("memory of a process: %w", err)
	}
	m, err := parseStatus(string(text))
	if err != nil {
		return Memory{}, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return m, nil
}

// parseStatus reads VmRSS and VmHWM from /proc/<pid>/status.
func parseStatus(text string) (m Memory, err error) {
	missing := map[string]*int64{"VmRSS:": &m.Resident, "VmHWM:": &m.Peak}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 || missing[fields[0]] == nil {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil || fields[2] != "kB" {
			return m, fmt.Errorf("%q is no number of kB", line)
		}
		*missing[fields[0]] = kib << 10
		delete(missing, fields[0])
	}
	if len(missing) > 0 {
		return m, errors.New("VmRSS and VmHWM are not told")
	}
	return m, nil
}
