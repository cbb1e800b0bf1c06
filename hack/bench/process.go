// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// process is a program that runs beside this one.
type process struct {
	program string
	pid     int
	// ended is closed with the process; err says how it ended, if not well.
	ended chan struct{}
	err   error
	stop  context.CancelFunc
}

// startProcess starts a program. It lives until ctx is done or it is closed. What it says on
// stdout is handed on line by line.
func startProcess(ctx context.Context, said func(line string), program string, args ...string) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, args...)
	logs := &lastLines{}
	cmd.Stderr = logs
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopTimeout // then it is killed
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	p := &process{program: program, pid: cmd.Process.Pid, ended: make(chan struct{}), stop: cancel}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			said(lines.Text())
		}
		_ = cmd.Wait() // the state says more
		switch {
		case !cmd.ProcessState.Success(): // whoever ended it
			p.err = fmt.Errorf("%s: %s %s", program, cmd.ProcessState, logs)
		case ctx.Err() == nil:
			p.err = fmt.Errorf("%s has ended by itself %s", program, logs)
		}
	}()
	return p, nil
}

// await waits until the process is ready.
func (p *process) await(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-p.ended:
		return fmt.Errorf("%s is not ready", p.program)
	case <-time.After(startTimeout):
		return fmt.Errorf("%s is not ready after %s", p.program, startTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close stops the process, waits for it, and says if it did not end well.
func (p *process) close() error {
	p.stop()
	<-p.ended
	return p.err
}

// cpu is the processor time that the process has used, or 0 where the system does not tell.
func (p *process) cpu(context.Context) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("processor time of %s: %w", p.program, err)
	}
	return parseStat(string(text))
}

// parseStat reads the times of user and system from /proc/<pid>/stat, where Linux counts them
// in hundredths of a second. They come after the name of the program, which is in brackets
// and may have anything in it.
func parseStat(text string) (time.Duration, error) {
	_, rest, ok := cutLast(text, ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, fmt.Errorf("%.80q does not say what processor time a process has used", text)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of a process: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil
}
