// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// Memory is the resident memory of a process, in bytes: now, and at most so far. Pages of
// files that are mapped, such as the program itself, are in it.
type Memory struct {
	Resident, Peak int64
}

// ReadMemory returns the memory of a process on Linux.
func ReadMemory(pid int) (Memory, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return Memory{}, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		return Memory{}, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	if status.VmRSS == 0 || status.VmHWM == 0 { // it has ended
		return Memory{}, fmt.Errorf("memory of process %d: its status does not say VmRSS and VmHWM", pid)
	}
	return Memory{Resident: int64(status.VmRSS), Peak: int64(status.VmHWM)}, nil
}
