// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func TestProcess(t *testing.T) {
	t.Parallel()
	p := newProcess(server(freeAddress(t)), t.TempDir())
	if p.Running() || p.Pid() != 0 {
		t.Error("it runs before it was started")
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stopping what does not run: %v", err)
	}
	pids := map[int]bool{}
	for name, end := range map[string]func() error{"Stop": p.Stop, "Kill": p.Kill} {
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Errorf("starting what runs: %v", err)
		}
		pids[p.Pid()] = true
		if err := end(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if p.Running() {
			t.Errorf("it runs after %s", name)
		}
		if err := p.Signal(syscall.SIGTERM); !errors.Is(err, errNotRunning) {
			t.Errorf("a signal after %s: %v", name, err)
		}
	}
	if len(pids) != 2 {
		t.Errorf("two starts were the processes %v", pids)
	}
}

// TestProcessIsStartedAgain is what a kubelet does.
func TestProcessIsStartedAgain(t *testing.T) {
	t.Parallel()
	p := newProcess(server(freeAddress(t)), t.TempDir())
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := p.Pid()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if pid := p.Pid(); pid == 0 || pid == first {
			return errors.New("it was not started again")
		}
		return nil
	})
	if got := p.Restarts(); got != 1 {
		t.Errorf("%d restarts", got)
	}
	if err := p.AwaitReady(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	// In the time in which it is not there yet, too, a stop is a stop.
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if p.Running() {
		t.Error("it was started after it was stopped")
	}
}

func TestProcessThatDoesNotBecomeReady(t *testing.T) {
	t.Parallel()
	p := newProcess(server("nonsense"), t.TempDir())
	err := p.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "it ended: exit status 1") || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got %v, want the exit status and the end of the log", err)
	}
	if p.Running() {
		t.Error("it runs")
	}

	ctx, cancel := context.WithCancel(t.Context())
	hangs := server(freeAddress(t))
	asked := 0
	hangs.ready = func(context.Context) error {
		if asked++; asked == 2 {
			cancel()
		}
		return errors.New("never")
	}
	p = newProcess(hangs, t.TempDir())
	if err := p.Start(ctx); err == nil || !strings.Contains(err.Error(), "never") {
		t.Errorf("got %v, want what the check said", err)
	}
	if p.Running() {
		t.Error("it runs")
	}
}

// TestChildrenDieWithUs kills a process that has started another one.
func TestChildrenDieWithUs(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("children stay on " + runtime.GOOS)
	}
	address := freeAddress(t)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	parent := exec.Command(os.Args[0], address, t.TempDir())
	parent.Env = append(os.Environ(), roleVariable+"=parent")
	parent.Stderr = log
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	listens := tcp(address)
	expect.Eventually(t.Context(), t, listens)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // says that it was killed
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if listens(ctx) == nil {
			return errors.New("the child is there")
		}
		return nil
	})
}
