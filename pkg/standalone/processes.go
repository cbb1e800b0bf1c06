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

	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/simulated"
	"github.com/sandlot-io/sandlot/pkg/sandboxprocess"
)

// runtimeProgram is the name of the agent-runtime.
const runtimeProgram = "sandlot-runtime"

// startProcesses returns what runs in sandboxes, which ends after the controllers; nil if nothing does.
func startProcesses(s *stack, o *Options, dir string, out io.Writer) (simulated.Processes, error) {
	if o.Sandboxes == SandboxesSimulated {
		fmt.Fprintf(out, "Sandboxes are simulated: they become Running with an address after %s, but no pods run.\n", o.SimulatedStartDelay)
		return nil, nil
	}
	path, err := findRuntime(o.RuntimeProgram)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(dir, "sandboxes")
	runner, err := sandboxprocess.New(s.run, path, folder)
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

// findRuntime returns the path of sandlot-runtime: the given one, or beside this program, or in PATH.
func findRuntime(given string) (string, error) {
	if given != "" {
		return exec.LookPath(given)
	}
	if own, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(own), runtimeProgram); isFile(beside) {
			return beside, nil
		}
	}
	path, err := exec.LookPath(runtimeProgram)
	if err != nil {
		return "", fmt.Errorf("--sandboxes=processes needs the program sandlot-runtime beside this one, in PATH or at --runtime-program (build it with make build): %w", err)
	}
	return path, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
