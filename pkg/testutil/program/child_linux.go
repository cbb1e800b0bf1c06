// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// A child is killed when the thread that started it ends, and threads come and
// go. So one thread starts all children, and stays as long as this process.
var children = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})

// StartChild starts a process that is killed when this one ends, however that
// happens. It is in a group of its own, so that an interrupt from the terminal
// reaches us alone, who stop the children in order.
func StartChild(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	started := make(chan error, 1)
	children() <- func() { started <- cmd.Start() }
	return <-started
}
