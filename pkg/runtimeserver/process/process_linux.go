// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb"
)

const (
	// chunk is how much output an event has at most, and backlog how many events wait for one
	// reader. Then the process waits, as it would for a terminal.
	chunk   = 32 << 10
	backlog = 4
	// maxReaders is how many read the output of one process.
	maxReaders = 16
	// drain is how long nothing may come from a process that has ended until its output counts
	// as complete, though its children have it open. drainLimit is that for children that write.
	drain      = time.Second
	drainLimit = 2 * time.Second
)

var (
	errTooManyReaders = fmt.Errorf("%d requests read the output of this process, and no more may", maxReaders)
	errNoInput        = errors.New("the process has no such input: it was closed, or not asked for when the process was started")
)

// Process is a process that a request started.
type Process struct {
	// PID is its number, Info how it was started, and Tag what the request called it.
	PID  int
	Info *processpb.ProcessConfig
	Tag  *string

	manager *Manager
	// pty is the terminal, and stdin a pipe to the standard input. At most one of them is there.
	pty, stdin *os.File
	// writing holds a value while input is written or closed.
	writing chan struct{}
	outputs []output
	// exited has the status when it was waited for.
	exited chan syscall.WaitStatus
	// gone is closed when the process has ended.
	gone chan struct{}
	// pumps are those that copy output, until there is no more or the process has ended and
	// nothing came for a while.
	pumps sync.WaitGroup
	// ended is closed when there is no more output, and end is set then.
	ended chan struct{}
	end   *processpb.ProcessEvent_EndEvent

	mu      sync.Mutex
	readers map[*Reader]struct{}
}

// output is a stream of a process.
type output struct {
	file  *os.File
	event func([]byte) *processpb.ProcessEvent_DataEvent
}

// Reader gets the output of a process.
type Reader struct {
	// Output are its parts, in order. After Ended of the process no more come.
	Output chan *processpb.ProcessEvent_DataEvent

	of   *Process
	gone chan struct{}
}

// Ended is closed when the process has ended and all of its output was given to readers.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// End is how the process ended, once Ended is closed.
func (p *Process) End() *processpb.ProcessEvent_EndEvent { return p.end }

// Read adds a reader, for output from now on. It must be closed.
func (p *Process) Read() (*Reader, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.readers) >= maxReaders {
		return nil, errTooManyReaders
	}
	r := &Reader{Output: make(chan *processpb.ProcessEvent_DataEvent, backlog), of: p, gone: make(chan struct{})}
	p.readers[r] = struct{}{}
	return r, nil
}

// Close ends the reader.
func (r *Reader) Close() {
	r.of.mu.Lock()
	delete(r.of.readers, r)
	r.of.mu.Unlock()
	close(r.gone)
}

// follow waits until the process has ended and its output was read. A limit of 0 is none.
func (p *Process) follow(limit time.Duration) {
	defer func() { <-p.manager.slots }()
	var discarding sync.WaitGroup
	for _, out := range p.outputs {
		p.pumps.Add(1)
		discarding.Go(func() { p.pump(out) })
	}
	status := p.wait(limit)
	if p.stdin != nil {
		_ = p.stdin.Close() // a request may have done it
	}
	close(p.gone)
	for _, out := range p.outputs {
		_ = out.file.SetReadDeadline(p.manager.clock.Now()) // wakes the pump, which sets the next one
	}
	p.pumps.Wait()
	p.end = endOf(status)
	close(p.ended)
	discarding.Wait()
	if p.pty != nil {
		_ = p.pty.Close()
	}
}

func (p *Process) wait(limit time.Duration) syscall.WaitStatus {
	if limit > 0 {
		timer := p.manager.clock.NewTimer(limit)
		defer timer.Stop()
		select {
		case status := <-p.exited:
			return status
		case <-timer.C():
			_ = p.Signal(syscall.SIGKILL) // or it has ended
		}
	}
	return <-p.exited
}

// pump gives the output to the readers, and discards it when there are none.
func (p *Process) pump(out output) {
	copied := sync.OnceFunc(p.pumps.Done)
	defer copied()
	if out.file != p.pty {
		defer func() { _ = out.file.Close() }() // it was only read
	}
	if p.copy(out) || out.file == p.pty {
		return // who has the terminal open still loses it, as with any terminal
	}
	// What the process left behind may write on; it would die if its output were closed.
	copied()
	_ = out.file.SetReadDeadline(time.Time{})
	_, _ = io.Copy(io.Discard, out.file) // until the last one has closed it
}

// copy gives the output to the readers until there is no more, and then is true. It is false
// when the process has ended and its own output was read, but others have it open, and
// nothing came for a while, or they write and write.
func (p *Process) copy(out output) bool {
	now := p.manager.clock.Now
	var idle, limit time.Time
	left, draining := 0, false
	for buffer := make([]byte, chunk); ; {
		if !draining && p.hasExited() {
			draining, limit = true, now().Add(drainLimit)
			_ = control(out.file, func(fd int) (err error) {
				left, err = unix.IoctlGetInt(fd, unix.TIOCINQ) // or nothing of it is left
				return err
			})
		}
		if draining {
			idle = now().Add(drain)
			_ = out.file.SetReadDeadline(idle)
		}
		n, err := out.file.Read(buffer)
		if n > 0 {
			p.deliver(out.event(append([]byte(nil), buffer[:n]...)))
			left -= n
		}
		switch {
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return true // the end, or EIO of a terminal that no one has open
		case err != nil && draining && !now().Before(idle), left <= 0 && draining && now().After(limit):
			return false
		}
	}
}

func (p *Process) hasExited() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

func (p *Process) deliver(event *processpb.ProcessEvent_DataEvent) {
	p.mu.Lock()
	readers := make([]*Reader, 0, len(p.readers))
	for r := range p.readers {
		readers = append(readers, r)
	}
	p.mu.Unlock()
	for _, r := range readers {
		select {
		case r.Output <- event:
		case <-r.gone:
		}
	}
}

// Signal sends a signal to the process and its group. The error is errEnded if the process has
// ended, or that of the system.
func (p *Process) Signal(s syscall.Signal) error {
	p.manager.mu.Lock()
	defer p.manager.mu.Unlock()
	if p.manager.known[p.PID] != p {
		return errEnded
	}
	return p.signalLocked(s)
}

// signalLocked is Signal for who has the lock of the manager, and has seen that the process is known.
func (p *Process) signalLocked(s syscall.Signal) error {
	if err := syscall.Kill(-p.PID, s); err != nil {
		return fmt.Errorf("signalling process %d and its group: %w", p.PID, err)
	}
	return nil
}

// Write writes input, to the terminal or to the standard input as is asked for, until ctx ends.
func (p *Process) Write(ctx context.Context, toPTY bool, data []byte) error {
	select {
	case p.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.writing }()
	to := p.stdin
	if toPTY {
		to = p.pty
	}
	if to == nil {
		return errNoInput
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = to.SetWriteDeadline(time.Unix(1, 0)) // or it was closed
		close(interrupted)
	})
	_, err := to.Write(data)
	if !stop() {
		<-interrupted
		_ = to.SetWriteDeadline(time.Time{}) // for the next one
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		return errNoInput
	}
	return err
}

// CloseInput closes the standard input. It must not be that of a terminal.
func (p *Process) CloseInput(ctx context.Context) error {
	if p.pty != nil {
		return errors.New("the input of a terminal cannot be closed: send it Ctrl-D")
	}
	select {
	case p.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.writing }()
	if p.stdin == nil || p.stdin.Close() != nil {
		return errNoInput
	}
	return nil
}

// Resize sets the size of the terminal.
func (p *Process) Resize(size *processpb.PTY_Size) error {
	if p.pty == nil {
		return errors.New("the process has no terminal")
	}
	return resize(p.pty, size)
}

// endOf describes the end of a process.
func endOf(status syscall.WaitStatus) *processpb.ProcessEvent_EndEvent {
	end := &processpb.ProcessEvent_EndEvent{ExitCode: int32(status.ExitStatus()), Exited: status.Exited()}
	if status.Signaled() {
		end.Status = "signal: " + status.Signal().String()
		if status.CoreDump() {
			end.Status += " (core dumped)"
		}
	} else {
		end.Status = fmt.Sprintf("exit status %d", status.ExitStatus())
	}
	if end.ExitCode != 0 {
		end.Error = &end.Status
	}
	return end
}

func resize(terminal *os.File, size *processpb.PTY_Size) error {
	if size.GetCols() > 1<<16-1 || size.GetRows() > 1<<16-1 {
		return fmt.Errorf("a terminal of %d columns and %d rows is too large", size.GetCols(), size.GetRows())
	}
	return control(terminal, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(size.GetRows()), Col: uint16(size.GetCols())})
	})
}

// control calls f with the number of a file, which stays non-blocking.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}
