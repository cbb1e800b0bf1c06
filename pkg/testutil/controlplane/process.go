// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

const (
	// startPatience is how long a program may take to become ready before we give
	// up on it, and stopPatience how long to end. They are no measure of speed:
	// machines that run tests are busy.
	startPatience = 3 * time.Minute
	stopPatience  = 90 * time.Second

	readyInterval = 50 * time.Millisecond
)

// errNotRunning is what a process that does not run is asked in vain.
var errNotRunning = errors.New("the process does not run")

// command is how to run a program, and how to tell that it is ready.
type command struct {
	name string // of the process and its log
	path string
	args []string
	env  []string // added to our own
	// grace is how long it may take to stop before it is killed, if that is part of
	// how it is run. Otherwise it is an error when it does not stop.
	grace time.Duration
	// ready returns nil when the program does its work.
	ready func(ctx context.Context) error
}

// Process is a program that can be stopped, killed and started again with the
// same arguments. Once it has been ready, it is also started again when it ends
// without being asked to by Stop or Kill, as a kubelet would do. Its methods may
// be called from several goroutines, but who starts and stops it at the same time
// does not know what they get.
type Process struct {
	command command
	log     string
	// memoryLimit is that of the pod that the process stands for; 0 is none.
	memoryLimit int64

	mu      sync.Mutex
	current *run // nil before the first start
	// dismiss is closed when the process is to stay as it is once it has ended; it
	// is nil when nothing would start it again anyway.
	dismiss  chan struct{}
	restarts int
	watchers sync.WaitGroup // goroutines that start it again
}

// run is one life of a process.
type run struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
}

func newProcess(c command, logDir string) *Process {
	return &Process{command: c, log: filepath.Join(logDir, c.name+".log")}
}

// Name returns the name of the process, which is that of the program and, of
// several, a number.
func (p *Process) Name() string { return p.command.name }

// Path returns the path of the program.
func (p *Process) Path() string { return p.command.path }

// Log returns the path of the file that all output of the process is added to.
func (p *Process) Log() string { return p.log }

// MemoryLimit returns what the pod that the process stands for may take of memory, in bytes;
// 0 is no limit. The process may take more, but Go's own limit follows.
func (p *Process) MemoryLimit() int64 { return p.memoryLimit }

// Start starts the process, unless it runs, and returns when it is ready. If it
// does not become ready it is killed.
func (p *Process) Start(ctx context.Context) error {
	if err := p.Launch(); err != nil {
		return err
	}
	if err := p.AwaitReady(ctx); err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

// Launch starts the process, unless it runs, and returns at once.
func (p *Process) Launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && p.current.alive() {
		return nil
	}
	if err := p.launch(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name(), err)
	}
	return nil
}

// AwaitReady returns when the process does its work, or has ended instead. From
// then on it is started again when it ends by itself.
func (p *Process) AwaitReady(ctx context.Context) error {
	r := p.life()
	if r == nil {
		return fmt.Errorf("%s: %w", p.Name(), errNotRunning)
	}
	if err := p.awaitReady(ctx, r); err != nil {
		return err
	}
	p.retain(r)
	return nil
}

func (p *Process) awaitReady(ctx context.Context, r *run) error {
	if p.command.ready == nil {
		return nil
	}
	last := errors.New("not asked yet")
	err := wait.PollUntilContextTimeout(ctx, readyInterval, startPatience, true, func(ctx context.Context) (bool, error) {
		select {
		case <-r.exited:
			return false, fmt.Errorf("it ended: %s", r.cmd.ProcessState)
		default:
		}
		err := p.command.ready(ctx)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if wait.Interrupted(err) {
		err = fmt.Errorf("%w, at last: %w", err, last)
	}
	if err != nil {
		return fmt.Errorf("%s is not ready: %w\n%s", p.Name(), err, p.tail())
	}
	return nil
}

// launch starts a new life. The lock is held.
func (p *Process) launch() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has it by then
	cmd := exec.Command(p.command.path, p.command.args...)
	cmd.Env = append(os.Environ(), p.command.env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := program.StartChild(cmd); err != nil {
		return err
	}
	r := &run{cmd: cmd, exited: make(chan struct{})}
	go func() { // ends with the process
		defer close(r.exited)
		_ = cmd.Wait() // what it returns is in ProcessState
	}()
	p.current = r
	return nil
}

// Stop asks the process to end and returns when it has. One that does not end is
// killed, which is an error unless it is known to take long.
func (p *Process) Stop() error {
	r := p.release()
	if r == nil || !r.alive() {
		return nil
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	grace := p.command.grace
	if grace == 0 {
		grace = stopPatience
	}
	select {
	case <-r.exited:
		return nil
	case <-time.After(grace):
	}
	_ = r.cmd.Process.Kill()
	<-r.exited
	if p.command.grace != 0 {
		return nil
	}
	return fmt.Errorf("%s had to be killed, it did not stop within %s\n%s", p.Name(), grace, p.tail())
}

// Kill ends the process as a loss of power would, and returns when it is gone.
func (p *Process) Kill() error {
	r := p.release()
	if r == nil || !r.alive() {
		return nil
	}
	err := r.cmd.Process.Kill()
	<-r.exited
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Signal sends a signal and returns at once. SIGSTOP makes a process that is
// there and does not answer, until SIGCONT; SIGKILL one that is started again.
func (p *Process) Signal(signal os.Signal) error {
	r := p.life()
	if r == nil || !r.alive() {
		return fmt.Errorf("%s: %w", p.Name(), errNotRunning)
	}
	return r.cmd.Process.Signal(signal)
}

// Running reports whether the process runs.
func (p *Process) Running() bool {
	r := p.life()
	return r != nil && r.alive()
}

// Exited returns a channel that is closed when the process of now has ended, or
// nil if it was never started.
func (p *Process) Exited() <-chan struct{} {
	r := p.life()
	if r == nil {
		return nil
	}
	return r.exited
}

// Pid returns the process id, or 0 if it does not run.
func (p *Process) Pid() int {
	r := p.life()
	if r == nil || !r.alive() {
		return 0
	}
	return r.cmd.Process.Pid
}

func (p *Process) life() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

func (r *run) alive() bool {
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

// tail returns the end of the log, for an error message.
func (p *Process) tail() string {
	const most = 4096
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("the end of %s:\n%s", p.log, content[max(0, len(content)-most):])
}
