// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2bsdk is for tests only: the E2B SDKs of npm, unchanged, which package.json
// pins, and what programs do with them, a story each.
package e2bsdk

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

//go:embed stories/*.mjs
var stories embed.FS

// ErrNoNPM means that this machine has no npm, without which there are no SDKs.
var ErrNoNPM = errors.New("npm is missing")

// SDKs is a folder with node and the SDKs.
type SDKs string

// Install installs the SDKs, unless an earlier test did. Without npm it is ErrNoNPM, but in
// CI, where the SDKs have to be tested.
func Install() (SDKs, error) {
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("CI") != "" {
			return "", fmt.Errorf("the SDKs are tested in CI: %w", err)
		}
		return "", ErrNoNPM
	}
	root, err := program.Root()
	if err != nil {
		return "", err
	}
	install := exec.Command(filepath.Join(root, "hack", "e2b-sdk.sh"))
	install.Stderr = os.Stderr
	out, err := install.Output()
	if err != nil {
		return "", fmt.Errorf("installing the SDKs: %w", err)
	}
	return SDKs(strings.TrimSpace(string(out))), nil
}

// Gateway is where a story's requests go, and as whom.
type Gateway struct {
	// API is the URL of the API, and Sandboxes that of the ports of sandboxes.
	API, Sandboxes string
	// Team is the namespace of Key.
	Team, Key string
}

// Tell runs a story, with further variables in its environment, and requires that it ends
// well.
func (s SDKs) Tell(t testing.TB, g Gateway, story string, env ...string) {
	t.Helper()
	// Node.js looks for the SDKs beside the program.
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(string(s), "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	text, err := stories.ReadFile("stories/" + story + ".mjs")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, story+".mjs")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(string(s), "node"), file)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir,
		"E2B_API_URL=" + g.API, "E2B_SANDBOX_URL=" + g.Sandboxes, "E2B_API_KEY=" + g.Key, "TEAM=" + g.Team,
	}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", story, err, out)
	}
	if len(out) > 0 {
		t.Logf("%s", out)
	}
}
