// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxprocess

import "syscall"

// attributes are those of a process. It ends when this program ends, also by SIGKILL. It has a group of its own, so that
// Ctrl-C in a terminal ends only this program, which then ends the processes.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}
