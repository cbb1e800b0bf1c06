// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// TestSettingsOfTheMachine: what was set by go env -w says where modules come from, and nothing
// of what is compiled.
func TestSettingsOfTheMachine(t *testing.T) {
	root := t.TempDir()
	settings := filepath.Join(t.TempDir(), "env")
	for path, text := range map[string]string{
		settings:                          "GOFLAGS=-tags=changed\nGOPROXY=https://proxy.invalid\n",
		filepath.Join(root, "go.mod"):     "module example.com/program\n\ngo 1.21\n\ntoolchain " + runtime.Version() + "\n",
		filepath.Join(root, "main.go"):    "package main\n\nfunc main() { println(text) }\n",
		filepath.Join(root, "plain.go"):   "//go:build !changed\n\npackage main\n\nconst text = \"plain\"\n",
		filepath.Join(root, "changed.go"): "//go:build changed\n\npackage main\n\nconst text = \"changed\"\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOENV", settings)
	for _, name := range []string{"GOFLAGS", "GOPROXY", "GOWORK"} {
		t.Setenv(name, "")
	}
	machine, err := ofMachine(t.Context(), root)
	if err != nil || !slices.Contains(machine, "GOPROXY=https://proxy.invalid") {
		t.Errorf("the settings handed on are %q, %v", machine, err)
	}
	o := Options{Root: root, Version: "v0", Platform: runtime.GOOS + "/" + runtime.GOARCH, Out: filepath.Join(t.TempDir(), "out")}
	if err := Programs(t.Context(), o, Program{Name: "named", Package: "example.com/program"}); err != nil {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(t.Context(), filepath.Join(o.Out, "named")).CombinedOutput()
	if err != nil || string(text) != "plain\n" {
		t.Errorf("the program says %q, %v", text, err)
	}
}
