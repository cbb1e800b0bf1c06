// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxprocess

import (
	"syscall"
	"testing"
)

// TestGroup: Ctrl-C in the terminal of this program does not reach the processes of sandboxes.
func TestGroup(t *testing.T) {
	r := runnerOf(t, "listens")
	r.mustStart(t, "uid")
	pid := r.find(one).cmd.Process.Pid
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("process %d is in group %d: %v", pid, group, err)
	}
}
