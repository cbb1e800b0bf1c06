// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// children waits for all processes of a node: those that process 1 started, and orphans.
type children struct {
	mu    sync.Mutex // held while a process starts, so that its end is not missed
	ended map[int]chan unix.WaitStatus
}

func newChildren() *children {
	c := &children{ended: map[int]chan unix.WaitStatus{}}
	go c.reap() // as long as the node lives
	return c
}

// reap waits for processes that have ended.
func (c *children) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err != nil { // there is none now
			time.Sleep(readyInterval)
			continue
		}
		c.mu.Lock()
		if ended, ok := c.ended[pid]; ok {
			ended <- status
			delete(c.ended, pid)
		}
		c.mu.Unlock()
	}
}

// start starts a program of the node, whose output goes to a log of its name.
func (c *children) start(name string, args ...string) (<-chan unix.WaitStatus, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(inside, folderLog, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has it by then
	c.mu.Lock()
	defer c.mu.Unlock()
	pid, err := syscall.ForkExec(path, append([]string{name}, args...), &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, log.Fd(), log.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	ended := make(chan unix.WaitStatus, 1)
	c.ended[pid] = ended
	return ended, nil
}

// run returns when a program has ended.
func (c *children) run(name string, args ...string) error {
	ended, err := c.start(name, args...)
	if err != nil {
		return err
	}
	if status := <-ended; status.ExitStatus() != 0 {
		return fmt.Errorf("%s %q ended with %d", name, args, status.ExitStatus())
	}
	return nil
}

// restartDelay is how long a program of the node that ended is not started again.
const restartDelay = time.Second

// keep starts a program, and again whenever it has ended.
func (c *children) keep(name string, args ...string) {
	for {
		ended, err := c.start(name, args...)
		if err == nil {
			<-ended
		} else {
			fmt.Fprintln(os.Stderr, "Error:", err)
		}
		time.Sleep(restartDelay)
	}
}
