// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxprocess

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// runtimes are shell scripts in place of sandlot-runtime, by what they do. pkg/e2e: TestProcesses has the real one.
var runtimes = map[string]string{
	"modules": "mkdir -p go/pkg/mod; touch go/pkg/mod/file; chmod 0500 go/pkg/mod; echo sandlot-runtime listens on $3; exec sleep 1000",
	"listens": "echo sandlot-runtime listens on $3; touch file; exec sleep 1000",
	"ignores": "trap '' TERM; echo sandlot-runtime listens on $3; while :; do sleep 0.01; done",
	"fails":   "echo no address >&2; exit 1",
	"hangs":   "exec sleep 1000",
	// What it leaves behind has its standard output until the test ends.
	"leaves": "(for i in $(seq 3000); do [ -e $0.end ] && break; sleep 0.02; done; touch $0.ended) & echo sandlot-runtime listens on $3; exec sleep 1000",
}

func runnerOf(t *testing.T, runtime string) *Runner {
	t.Helper()
	program := filepath.Join(t.TempDir(), "runtime")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+runtimes[runtime]+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return newRunner(t, Options{Program: program, Folder: filepath.Join(t.TempDir(), "sandboxes"), MaxProcesses: 1})
}

func newRunner(t *testing.T, o Options) *Runner {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, r) })
	return r
}

func mustClose(t *testing.T, r *Runner) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func (r *Runner) mustStart(t *testing.T, uid types.UID) {
	t.Helper()
	if err := r.Start(t.Context(), one, uid, "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
}

func (r *Runner) mustStop(t *testing.T, keep types.UID) {
	t.Helper()
	if err := r.Stop(one, keep); err != nil {
		t.Fatal(err)
	}
}

// home is the folder of the sandbox.
func (r *Runner) home() string { return filepath.Join(r.options.Folder, one.Namespace, one.Name) }

var one = types.NamespacedName{Namespace: "ns", Name: "one"}

// TestRunner: a sandbox has one process, which is of its UID. Its files go with it. The end is reported.
func TestRunner(t *testing.T) {
	r := runnerOf(t, "listens")
	ended := make(chan types.NamespacedName, 3)
	r.OnEnd(func(sandbox types.NamespacedName) { ended <- sandbox })
	for _, uid := range []types.UID{"first", "second"} {
		r.mustStart(t, uid)
	}
	if r.IsRunning(one, "first") || !r.IsRunning(one, "second") {
		t.Error("the second one has not replaced the first")
	}
	if err := r.find(one).cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if <-ended != one || r.IsRunning(one, "second") {
		t.Error("a process that was killed runs")
	}
	r.mustStop(t, "")
	if _, err := os.Stat(r.home()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a sandbox that was stopped: %v", err)
	}
	if len(ended) != 0 {
		t.Error("the end of a process that was stopped is reported")
	}
	mustClose(t, r)
	if left, err := os.ReadDir(filepath.Join(r.options.Folder, removedFolder)); err != nil || len(left) != 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	if err := r.Start(t.Context(), one, "third", "127.0.0.1"); err == nil {
		t.Error("it was started after the end")
	}
}

// TestStopEarlier: a sandbox that has the name of an earlier one ends only the process of that.
func TestStopEarlier(t *testing.T) {
	r := runnerOf(t, "listens")
	r.mustStart(t, "first")
	r.mustStop(t, "first")
	if !r.IsRunning(one, "first") {
		t.Error("the sandbox itself has ended")
	}
	r.mustStop(t, "second")
	if r.IsRunning(one, "first") {
		t.Error("the earlier one still runs")
	}
}

// TestMaxProcesses: no more processes run than may, and one that has ended leaves its place.
func TestMaxProcesses(t *testing.T) {
	r := runnerOf(t, "listens")
	r.mustStart(t, "uid")
	other := types.NamespacedName{Namespace: "ns", Name: "other"}
	if err := r.Start(t.Context(), other, "other", "127.0.0.1"); err == nil || !strings.Contains(err.Error(), "1 sandboxes have a process, and no more may") {
		t.Errorf("two run: %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.options.Folder, other.Namespace, other.Name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the sandbox that was not started is left: %v", err)
	}
	r.mustStop(t, "")
	if err := r.Start(t.Context(), other, "other", "127.0.0.1"); err != nil {
		t.Error(err)
	}
}

// TestRelativeProgram: the path of the program is relative to the folder of this program, not to that of a sandbox.
func TestRelativeProgram(t *testing.T) {
	o := runnerOf(t, "listens").options
	t.Chdir(filepath.Dir(o.Program))
	o.Program = filepath.Base(o.Program)
	newRunner(t, o).mustStart(t, "uid")
}

// TestRuntimesThatDoNotListen: nothing is left of a process that does not listen.
func TestRuntimesThatDoNotListen(t *testing.T) {
	for runtime, want := range map[string]string{"fails": `it ended at once: "no address"`, "hangs": context.Canceled.Error()} {
		r := runnerOf(t, runtime)
		reported := false
		r.OnEnd(func(types.NamespacedName) { reported = true })
		ctx, cancel := context.WithCancel(t.Context())
		if runtime == "hangs" {
			cancel()
		}
		err := r.Start(ctx, one, "uid", "127.0.0.1")
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) || r.find(one) != nil {
			t.Errorf("%s: %v", runtime, err)
		}
		if reported {
			t.Errorf("%s: the end is reported, so that it would be started again at once", runtime)
		}
	}
}

// TestRuntimesThatIgnoreSignals are killed in the end.
func TestRuntimesThatIgnoreSignals(t *testing.T) {
	r := runnerOf(t, "ignores")
	r.stopTimeout = 1
	r.mustStart(t, "uid")
	r.mustStop(t, "")
	if r.IsRunning(one, "uid") {
		t.Error("it runs")
	}
}

// TestOutputThatStaysOpen: Stop does not wait for what a runtime has left behind.
func TestOutputThatStaysOpen(t *testing.T) {
	r := runnerOf(t, "leaves")
	r.mustStart(t, "uid")
	r.mustStop(t, "")
	hasEnded := func() bool {
		_, err := os.Stat(r.options.Program + ".ended")
		return err == nil
	}
	if hasEnded() {
		t.Error("Stop has waited")
	}
	if err := os.WriteFile(r.options.Program+".end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if !hasEnded() {
			return errors.New("what the runtime has left behind still runs")
		}
		return nil
	})
}

// TestReadOnlyFolders: files are removed that their owner made read-only, as Go does with modules.
func TestReadOnlyFolders(t *testing.T) {
	r := runnerOf(t, "modules")
	for _, uid := range []types.UID{"first", "second"} {
		r.mustStart(t, uid)
	}
	mustClose(t, r)
	if left, err := os.ReadDir(filepath.Join(r.options.Folder, removedFolder)); err != nil || len(left) != 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// TestFilesThatStay: files that cannot be removed are reported. They stop neither the end of a sandbox, nor the start of
// the next one of its name, whose folder is empty, nor the next run, which removes them.
func TestFilesThatStay(t *testing.T) {
	r := runnerOf(t, "listens")
	broken := errors.New("broken")
	r.removeAll = func(string) error { return broken }
	reports := make(chan error, 9)
	r.options.OnLeftover = func(err error) { reports <- err }
	r.mustStart(t, "first")
	write(t, filepath.Join(r.home(), "secret"))
	r.mustStop(t, "")
	r.mustStart(t, "second")
	if _, err := os.Stat(filepath.Join(r.home(), "secret")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next sandbox has the files of the first: %v", err)
	}
	r.mustStop(t, "")
	mustClose(t, r)
	if err := <-reports; !errors.Is(err, broken) {
		t.Error(err)
	}

	// A run that was killed leaves the folder of a sandbox behind.
	write(t, filepath.Join(r.home(), "secret"))
	mustClose(t, newRunner(t, r.options))
	left, err := filepath.Glob(filepath.Join(r.options.Folder, "*", "*"))
	hidden, errHidden := filepath.Glob(filepath.Join(r.options.Folder, removedFolder, "*"))
	if len(left)+len(hidden) != 0 || err != nil || errHidden != nil {
		t.Errorf("the next run leaves %q and %q", left, hidden)
	}
}

func write(t *testing.T, file string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}
