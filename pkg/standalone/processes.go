// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/simulated"
	"github.com/sandlot-io/sandlot/pkg/sandboxprocess"
)

// runtimeProgram is the name of the agent-runtime.
const runtimeProgram = "sandlot-runtime"

// startProcesses returns what runs in sandboxes, which ends after the controllers; nil if nothing does. program is that of
// runtimeOf.
func startProcesses(s *stack, o *Options, program, dir string, out io.Writer) (simulated.Processes, error) {
	if program == "" {
		fmt.Fprintf(out, "Sandboxes are simulated: they become Running with an address after %s, but no pods run.\n", o.SimulatedStartDelay)
		return nil, nil
	}
	folder := filepath.Join(dir, "sandboxes")
	runner, err := sandboxprocess.New(sandboxprocess.Options{
		Program: program, Folder: folder, MaxProcesses: o.MaxProcesses,
		OnLeftover: func(err error) {
			klog.FromContext(s.run).Error(err, "Files of sandboxes are left, the next start tries again")
		},
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "Sandboxes that declare an agent-runtime are processes of this machine, in folders below %s.\n", folder)
	fmt.Fprintln(out, "WARNING: processes isolate nothing. Commands in sandboxes run as the current user. Run only your own code.")
	s.start("sandboxes", func(ctx context.Context) error {
		<-ctx.Done()
		return runner.Close()
	})
	return runner, nil
}

// runtimeOf returns the path of the program that runs in sandboxes: the one of the options, or that beside this program, or
// that in PATH. It is empty if nothing runs in them.
func runtimeOf(o *Options) (string, error) {
	if o.Sandboxes == SandboxesSimulated {
		return "", nil
	}
	if o.RuntimeProgram != "" {
		path, err := exec.LookPath(o.RuntimeProgram)
		if err != nil {
			return "", fmt.Errorf("--runtime-program: %w", err)
		}
		return path, nil
	}
	if own, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(own), runtimeProgram); isFile(beside) {
			return beside, nil
		}
	}
	path, err := exec.LookPath(runtimeProgram)
	if err != nil {
		return "", fmt.Errorf("--sandboxes=processes needs the program sandlot-runtime at --runtime-program, beside this one or in PATH (build it with make build): %w", err)
	}
	return path, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
