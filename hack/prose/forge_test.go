// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

// pinned are the Go modules that dependabot leaves alone: their versions are chosen.
var pinned = map[string]string{
	"/apis":                               "the oldest libraries that it builds with",
	"/pkg/client":                         "the same",
	"/hack/clientmodule":                  "the same",
	"/hack/tools/clients":                 "generators of these libraries",
	"/hack/controlplane":                  "the minor of Kubernetes",
	"/hack/controlplane/1.35":             "the same",
	"/hack/controlplane/1.36":             "the same",
	"/hack/networkpolicies":               "the libraries of hack/controlplane",
	"/hack/vulncheck/testdata/vulnerable": "vulnerable on purpose",
}

// TestDependabot: each Go module is updated, or pinned for a reason.
func TestDependabot(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	decode(t, ".github/dependabot.yml", &config)
	updated := sets.New[string]()
	for _, update := range config.Updates {
		if update.Ecosystem == "gomod" {
			updated.Insert(update.Directories...)
		}
	}
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "*go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := sets.New[string]()
	for file := range strings.FieldsSeq(string(out)) {
		modules.Insert("/" + strings.TrimPrefix(path.Dir(file), "."))
	}
	for module := range modules {
		if _, ok := pinned[module]; ok == updated.Has(module) {
			t.Errorf("%s must be either in .github/dependabot.yml or pinned here", module)
		}
	}
	if gone := updated.Difference(modules); gone.Len() > 0 {
		t.Errorf("there are no modules in %v", sets.List(gone))
	}
}

// TestForgeFiles: the files for the forge can be parsed, and CI runs what it runs elsewhere.
func TestForgeFiles(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, ".github", "ISSUE_TEMPLATE", "*.yml"))
	if err != nil || len(names) < 3 {
		t.Fatalf("there are %d templates of issues: %v", len(names), err)
	}
	for _, name := range append(names, filepath.Join(root, ".pre-commit-config.yaml"), filepath.Join(root, ".devcontainer", "devcontainer.json")) {
		var content map[string]any
		decode(t, strings.TrimPrefix(filepath.ToSlash(name), root+"/"), &content)
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Run string `json:"run"`
			} `json:"steps"`
		} `json:"jobs"`
	}
	decode(t, ".github/workflows/ci.yml", &workflow)
	var commands []string
	for _, step := range workflow.Jobs["run"].Steps {
		if step.Run != "" {
			commands = append(commands, step.Run)
		}
	}
	if len(commands) != 1 || commands[0] != ".ci/run" {
		t.Errorf("the workflow runs %q", commands)
	}
}

func decode(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}
