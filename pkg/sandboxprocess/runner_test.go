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
)

// runtimes are shell scripts in place of sandlot-runtime, by what they do. pkg/e2e: TestProcesses has the real one.
var runtimes = map[string]string{
	"modules": "mkdir -p go/pkg/mod; touch go/pkg/mod/file; chmod 0500 go/pkg/mod; echo sandlot-runtime listens on $3; exec sleep 1000",
	"listens": "echo sandlot-runtime listens on $3; touch file; exec sleep 1000",
	"ignores": "trap '' TERM; echo sandlot-runtime listens on $3; while :; do sleep 0.01; done",
	"fails":   "exit 1",
	"hangs":   "exec sleep 1000",
}

func runnerOf(t *testing.T, runtime string) (*Runner, string) {
	t.Helper()
	program, folder := filepath.Join(t.TempDir(), "runtime"), filepath.Join(t.TempDir(), "sandboxes")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+runtimes[runtime]+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := New(t.Context(), program, folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, folder
}

var one = types.NamespacedName{Namespace: "ns", Name: "one"}

// TestRunner: a sandbox has one process, which is of its UID. Its files go with it. The end is reported.
func TestRunner(t *testing.T) {
	r, folder := runnerOf(t, "listens")
	ended := make(chan types.NamespacedName, 3)
	r.OnEnd(func(sandbox types.NamespacedName) { ended <- sandbox })
	for _, uid := range []types.UID{"first", "second"} {
		if err := r.Start(t.Context(), one, uid, "127.0.0.1"); err != nil {
			t.Fatal(err)
		}
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
	if err := r.Stop(one); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "ns", "one")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a sandbox that was stopped: %v", err)
	}
	if len(ended) != 0 {
		t.Error("the end of a process that was stopped is reported")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context(), one, "third", "127.0.0.1"); err == nil {
		t.Error("it was started after the end")
	}
}

// TestRuntimesThatDoNotListen: nothing is left of a process that does not listen.
func TestRuntimesThatDoNotListen(t *testing.T) {
	for runtime, want := range map[string]string{"fails": "it ended at once", "hangs": context.Canceled.Error()} {
		r, _ := runnerOf(t, runtime)
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
	r, _ := runnerOf(t, "ignores")
	r.stopTimeout = 1
	if err := r.Start(t.Context(), one, "uid", "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(one); err != nil || r.IsRunning(one, "uid") {
		t.Errorf("it runs: %v", err)
	}
}

// TestReadOnlyFolders: files are removed that their owner made read-only, as Go does with modules.
func TestReadOnlyFolders(t *testing.T) {
	r, folder := runnerOf(t, "modules")
	for _, uid := range []types.UID{"first", "second"} {
		if err := r.Start(t.Context(), one, uid, "127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New(t.Context(), "", folder); err != nil {
		t.Error(err)
	}
}
