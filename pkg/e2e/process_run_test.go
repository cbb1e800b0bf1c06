// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

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

// process is a running program of ours.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdout lines
	stderr lines
	// exited is closed when the process has ended and all its output is read.
	exited chan struct{}
}

// runProgram starts a program with a home folder of its own. It is killed at the end of
// the test if nobody stopped it before.
func runProgram(t testing.TB, name string, args ...string) *process {
	t.Helper()
	p := &process{name: name, exited: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(programs, name), args...)
	p.cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	stdout, stderr := p.pipe(t, p.cmd.StdoutPipe), p.pipe(t, p.cmd.StderrPipe)
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { p.stdout.readFrom(stdout) })
	readers.Go(func() { p.stderr.readFrom(stderr) })
	go func() {
		defer close(p.exited)
		readers.Wait()
		_ = p.cmd.Wait() // what it returns is in ProcessState
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s %s wrote to stderr:\n%s", name, strings.Join(args, " "), p.stderr.String())
		}
	})
	return p
}

func (p *process) pipe(t testing.TB, open func() (io.ReadCloser, error)) io.Reader {
	t.Helper()
	pipe, err := open()
	if err != nil {
		t.Fatalf("starting %s: %v", p.name, err)
	}
	return pipe
}

// kill ends the process as a loss of power would, and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be dead already
	<-p.exited
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// signal sends a signal and returns at once.
func (p *process) signal(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Errorf("sending %s to %s: %v", signal, p.name, err)
	}
}

// wait returns the exit code of the process when it has ended by itself.
func (p *process) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(expect.Patience):
		p.signal(t, syscall.SIGQUIT) // to see where it hangs
		<-p.exited
		t.Fatalf("%s did not end by itself:\n%s", p.name, p.stderr.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop asks the process to stop and requires that it does so without an error.
func (p *process) stop(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != 0 {
		t.Errorf("%s ended with %d after SIGTERM:\n%s", p.name, code, p.stderr.String())
	}
}

// lines collects output, and tells of lines in it while more of it comes.
type lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	waiting map[string]chan struct{}
}

func (l *lines) readFrom(r io.Reader) {
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

// seen returns a channel that is closed when line has been written.
func (l *lines) seen(line string) <-chan struct{} {
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

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
