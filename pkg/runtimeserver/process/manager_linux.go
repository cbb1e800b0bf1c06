// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

const (
	// maxProcesses is how many run at a time, or have left children that hold their output.
	maxProcesses = 512
	// stopGrace is how long processes have to end by themselves when all are stopped.
	stopGrace = 5 * time.Second
	// killGrace is how long they have when they were killed, and then how long what reads their
	// output has.
	killGrace = 2 * time.Second
)

// ErrTooMany means that as many processes run as may.
var ErrTooMany = fmt.Errorf("%d processes run, and no more may", maxProcesses)

var errStopped = errors.New("the runtime is stopping")

// Manager starts processes and waits for them, and for all that they leave behind. There is
// one in a program, which must wait for no child itself. It is safe for concurrent use.
type Manager struct {
	clock clock.WithTicker
	// slots has room for maxProcesses.
	slots chan struct{}
	// forks are run by the one thread that is the parent of all processes: they end with it.
	forks chan func()
	// children is signalled when one has ended.
	children chan os.Signal
	stop     chan struct{}
	// loops are of the Manager, and followers of the processes.
	loops, followers sync.WaitGroup

	// mu is held while a process is started and while ended ones are waited for, so that the
	// number of a process that is known is never that of another one.
	mu      sync.Mutex
	known   map[int]*Process
	main    *mainProcess
	stopped bool
}

// mainProcess is what the program runs beside the processes of requests.
type mainProcess struct {
	pid   int
	ended chan syscall.WaitStatus
}

// NewManager returns a Manager, to be stopped by Stop. This process becomes the parent of what
// its descendants leave behind.
func NewManager(clock clock.WithTicker) (*Manager, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil && os.Getpid() != 1 {
		return nil, fmt.Errorf("becoming the parent of orphaned processes: %w", err)
	}
	m := &Manager{
		clock: clock, slots: make(chan struct{}, maxProcesses), forks: make(chan func()), children: make(chan os.Signal, 1),
		stop: make(chan struct{}), known: map[int]*Process{},
	}
	signal.Notify(m.children, syscall.SIGCHLD)
	m.loops.Go(m.fork)
	m.loops.Go(m.reapAll)
	return m, nil
}

// fork runs what starts processes on one thread, which has to live as long as they do: the
// kernel kills them when it ends.
func (m *Manager) fork() {
	runtime.LockOSThread()
	for {
		select {
		case start := <-m.forks:
			start()
		case <-m.stop:
			return
		}
	}
}

// startProcess starts one, and calls known with its number before it can be waited for.
func (m *Manager) startProcess(argv0 string, argv []string, attr *syscall.ProcAttr, known func(pid int)) error {
	err := errStopped
	done := make(chan struct{})
	start := func() {
		defer close(done)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.stopped {
			return
		}
		var pid int
		if pid, _, err = syscall.StartProcess(argv0, argv, attr); err == nil {
			known(pid)
		}
	}
	select {
	case m.forks <- start:
		<-done
		return err
	case <-m.stop:
		return errStopped
	}
}

// reapAll waits for children as they end.
func (m *Manager) reapAll() {
	for {
		select {
		case <-m.children:
			m.reap()
		case <-m.stop:
			return
		}
	}
}

func (m *Manager) reap() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return // there is none, or none that has ended
		}
		if p := m.known[pid]; p != nil {
			delete(m.known, pid)
			p.exited <- status
		}
		if m.main != nil && m.main.pid == pid {
			m.main.ended <- status
			m.main = nil
		}
	}
}

// RunMain starts a program with the standard files of this one. What is returned gives its
// end, once.
func (m *Manager) RunMain(argv []string) (<-chan syscall.WaitStatus, error) {
	program, err := lookPath(argv[0], os.Getenv("PATH"), "")
	if err != nil {
		return nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	err = m.startProcess(program, argv, attr, func(pid int) { m.main = &mainProcess{pid, ended} })
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", argv[0], err)
	}
	return ended, nil
}

// SignalMain sends a signal to what RunMain has started, if it runs.
func (m *Manager) SignalMain(s syscall.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.main != nil {
		_ = syscall.Kill(m.main.pid, s) // it is there: it was not waited for
	}
}

// Stop ends all processes and what they left behind, and waits for it. Those that do not end
// by SIGTERM within 5 s are killed. What cannot be killed, such as a process of another user if
// this one may not signal it, is waited for only 2 s, and so is output that others have open: the
// end of this program, which has to follow, must not depend on either.
func (m *Manager) Stop() {
	m.mu.Lock()
	m.stopped = true
	for _, p := range m.known {
		if p.pty != nil {
			_ = p.signalLocked(syscall.SIGHUP) // shells ignore SIGTERM
		}
	}
	m.mu.Unlock()
	m.signalAll(syscall.SIGTERM)
	limit := m.clock.NewTimer(stopGrace)
	defer limit.Stop()
	again := m.clock.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	killing := syscall.Signal(0)
	for given := false; !given && m.signalAll(killing); {
		select {
		case <-limit.C():
			given = killing == syscall.SIGKILL
			killing = syscall.SIGKILL
			limit.Reset(killGrace)
		case <-again.C():
		}
	}
	signal.Stop(m.children)
	close(m.stop)
	m.loops.Wait()
	m.reap() // the last ones, if their signal came too late for the loop
	followed := make(chan struct{})
	go func() { // ends with the program at the latest
		m.followers.Wait()
		close(followed)
	}()
	limit.Reset(killGrace)
	select {
	case <-followed:
	case <-limit.C():
	}
}

// signalAll sends a signal to all descendants of this process, and reports whether there are
// any that were not waited for. 0 is none.
func (m *Manager) signalAll(s syscall.Signal) bool {
	m.mu.Lock() // none of them is waited for between the look and the signal, if it is a child
	defer m.mu.Unlock()
	left := descendants(os.Getpid())
	for _, pid := range left {
		if s != 0 {
			_ = syscall.Kill(pid, s) // it may have ended
		}
	}
	return len(left) > 0
}

// descendants are the processes below one, as far as /proc shows them. Zombies are too: one whose
// first thread has ended may have others that run.
func descendants(root int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	parents := map[int]int{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			parents[pid] = parent
		}
	}
	var all []int
	for pid := range parents {
		ancestor := parents[pid]
		for steps := 0; ancestor > 1 && ancestor != root && steps < len(parents); steps++ {
			ancestor = parents[ancestor]
		}
		if ancestor == root {
			all = append(all, pid)
		}
	}
	return all
}

// parentOf reads the parent of a process. Its name, in parentheses, may hold anything.
func parentOf(pid int) (parent int, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	var state byte
	_, err = fmt.Sscanf(string(text[bytes.LastIndexByte(text, ')')+1:]), " %c %d", &state, &parent)
	return parent, err == nil
}
