// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// stopPatience is how long a process may take to stop before it is killed. Each
// program that takes long is killed by the one in the background before that.
const stopPatience = 5 * time.Minute

// state is what a running cluster says of itself, in a file.
type state struct {
	Kubeconfig string `json:"kubeconfig"`
	// Server is "cluster serve", Children is what it has started.
	Server   process   `json:"server"`
	Children []process `json:"children"`
}

// process is how to find a process again.
type process struct {
	Name string `json:"name"`
	Pid  int    `json:"pid"`
}

func stateFile(dir string) string { return filepath.Join(dir, "cluster.json") }

// readState returns nil if nothing is noted.
func readState(dir string) (*state, error) {
	content, err := os.ReadFile(stateFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &state{}
	if err := json.Unmarshal(content, s); err != nil {
		return nil, fmt.Errorf("%s: %w", stateFile(dir), err)
	}
	return s, nil
}

// write makes the file appear whole.
func (s *state) write(dir string) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(stateFile(dir)+".new", append(content, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(stateFile(dir)+".new", stateFile(dir))
}

// runs tells whether the process is there and still the one of that name: ids are
// given again. Every process of a cluster has its folder in its arguments.
func (p process) runs(ctx context.Context, dir string) bool {
	if p.Pid <= 0 {
		return false
	}
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Pid))
	if err != nil { // no Linux, or no such process
		args, err = exec.CommandContext(ctx, "ps", "-o", "args=", "-p", strconv.Itoa(p.Pid)).Output()
		if err != nil {
			return false
		}
	}
	return strings.Contains(string(args), p.Name) && strings.Contains(string(args), dir)
}

// stop asks the process to end, and returns when it has. It is killed if it does
// not.
func (p process) stop(ctx context.Context, dir string) error {
	if !p.runs(ctx, dir) {
		return nil
	}
	if err := syscall.Kill(p.Pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping %s: %w", p.Name, err)
	}
	gone := func(ctx context.Context) (bool, error) { return !p.runs(ctx, dir), nil }
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, stopPatience, true, gone)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if err := syscall.Kill(p.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing %s: %w", p.Name, err)
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, stopPatience, true, gone)
}
