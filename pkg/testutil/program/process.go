// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// Process is a running program of ours.
type Process struct {
	// Name is the program's.
	Name string
	// Stdout and Stderr are what it wrote so far.
	Stdout, Stderr Lines
	// Exited is closed when the process has ended and all its output is read.
	Exited chan struct{}

	cmd *exec.Cmd
}

// Run starts a program of a folder with a home folder of its own. It is killed at the
// end of the test if it was not stopped before.
func Run(t testing.TB, dir, name string, args ...string) *Process {
	t.Helper()
	p := &Process{Name: name, Exited: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(dir, name), args...)
	p.cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	stdout, stderr := p.pipe(t, p.cmd.StdoutPipe), p.pipe(t, p.cmd.StderrPipe)
	if err := StartChild(p.cmd); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { p.Stdout.readFrom(stdout) })
	readers.Go(func() { p.Stderr.readFrom(stderr) })
	go func() {
		defer close(p.Exited)
		readers.Wait()
		_ = p.cmd.Wait() // what it returns is in ProcessState
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s %s wrote to stderr:\n%s", name, strings.Join(args, " "), p.Stderr.String())
		}
	})
	return p
}

func (p *Process) pipe(t testing.TB, open func() (io.ReadCloser, error)) io.Reader {
	t.Helper()
	pipe, err := open()
	if err != nil {
		t.Fatalf("starting %s: %v", p.Name, err)
	}
	return pipe
}

// Pid is the number of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Kill ends the process as a loss of power would, and waits for it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may be dead already
	<-p.Exited
}

// Alive reports whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.Exited:
		return false
	default:
		return true
	}
}

// Signal sends a signal and returns at once.
func (p *Process) Signal(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Errorf("sending %s to %s: %v", signal, p.Name, err)
	}
}

// Wait returns the exit code of the process when it has ended by itself.
func (p *Process) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.Exited:
	case <-time.After(expect.Patience):
		p.Signal(t, syscall.SIGQUIT) // to see where it hangs
		<-p.Exited
		t.Fatalf("%s did not end by itself:\n%s", p.Name, p.Stderr.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Stop asks the process to stop and requires that it does so without an error.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != 0 {
		t.Errorf("%s ended with %d after SIGTERM:\n%s", p.Name, code, p.Stderr.String())
	}
}

// Lines collects output, and finds lines in it while more of it comes.
type Lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	waiting map[string]chan struct{}
}

func (l *Lines) readFrom(r io.Reader) {
	buffered := bufio.NewReader(r)
	for {
		line, err := buffered.ReadString('\n')
		l.mu.Lock()
		l.text.WriteString(line)
		if seen, ok := l.waiting[strings.TrimSuffix(line, "\n")]; ok {
			delete(l.waiting, strings.TrimSuffix(line, "\n"))
			close(seen)
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Seen returns a channel that is closed when line has been written.
func (l *Lines) Seen(line string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, ok := l.waiting[line]
	if ok {
		return seen
	}
	seen = make(chan struct{})
	if strings.Contains("\n"+l.text.String(), "\n"+line+"\n") {
		close(seen)
		return seen
	}
	if l.waiting == nil {
		l.waiting = map[string]chan struct{}{}
	}
	l.waiting[line] = seen
	return seen
}

// String returns all that was written.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
