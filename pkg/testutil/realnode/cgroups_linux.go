// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// cgroupPatience is how long the kernel may take to free the cgroups of processes that have ended.
const cgroupPatience = 30 * time.Second

// hierarchies returns where cgroups are mounted: a folder for each controller, or one for all.
func hierarchies() ([]string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		mount, system, _ := strings.Cut(lines.Text(), " - ")
		if fields := strings.Fields(mount); strings.HasPrefix(system, "cgroup") && len(fields) > 4 {
			found = append(found, fields[4])
		}
	}
	return found, lines.Err()
}

// makeCgroups makes the cgroup that a node has all others in, in all hierarchies.
func makeCgroups(name string) error {
	mounts, err := hierarchies()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		dir := filepath.Join(mount, name)
		// In the second version, a cgroup has the controllers that its parent names.
		if controllers, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers")); err == nil {
			for controller := range strings.FieldsSeq(string(controllers)) {
				if err := os.WriteFile(filepath.Join(mount, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
					return fmt.Errorf("controllers of cgroups: %w", err)
				}
			}
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// In the first, this one does not take its parent's settings.
		for _, setting := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(mount, setting))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := errors.Join(err, os.WriteFile(filepath.Join(dir, setting), value, 0)); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroups removes the cgroup of a node and all in it.
func removeCgroups(name string) error {
	mounts, err := hierarchies()
	if err != nil {
		return err
	}
	var last error
	for start := time.Now(); time.Since(start) < cgroupPatience; time.Sleep(readyInterval) {
		last = nil
		for _, mount := range mounts {
			last = errors.Join(last, removeTree(filepath.Join(mount, name)))
		}
		if last == nil {
			return nil
		}
	}
	return fmt.Errorf("removing the cgroups of a node: %w", last)
}

// removeTree removes folders from the innermost on: the files of cgroups cannot be removed, and
// go with them.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.IsDir() {
			errs = append(errs, removeTree(filepath.Join(dir, entry.Name())))
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
