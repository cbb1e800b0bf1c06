// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestSDK tells the stories, each with a pool of its own.
func TestSDK(t *testing.T) {
	t.Parallel()
	g := startWithOther(t)
	for name, story := range map[string]struct {
		file     string
		replicas int32
		env      []string
	}{
		"lifecycle":  {file: "lifecycle", replicas: 1},
		"timeouts":   {file: "timeouts", replicas: 2},
		"list":       {file: "list", replicas: 6},
		"storm":      {file: "storm", replicas: 40},
		"keys":       {file: "keys", replicas: 1, env: []string{"OTHER_KEY=" + g.otherKey}},
		"commands":   {file: "commands", replicas: 1},
		"forms":      {file: "forms", replicas: 1},
		"e2b 2.50":   {file: "old", replicas: 1, env: []string{"SDK=e2b-2-50"}},
		"e2b 2.8":    {file: "old", replicas: 1, env: []string{"SDK=e2b-2-8"}},
		"e2b 1.13":   {file: "old", replicas: 1, env: []string{"SDK=e2b-1-13"}},
		"e2b 2.51.0": {file: "old", replicas: 1, env: []string{"SDK=e2b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := "pool-" + story.file
			if story.file == "old" {
				pool = story.env[0][len("SDK="):]
			}
			g.tell(t, story.file, append(story.env, "POOL="+g.pool(t, pool, story.replicas))...)
		})
	}
}

// tell runs a story and requires that it ends well.
func (g *gateway) tell(t *testing.T, story string, env ...string) {
	t.Helper()
	// Node.js looks for the SDKs beside the program.
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(sdk, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("stories", story+".mjs"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, story+".mjs")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(sdk, "node"), file)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir,
		"E2B_API_URL=" + g.url, "E2B_SANDBOX_URL=" + g.url, "E2B_API_KEY=" + g.newKey(t, story),
	}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", story, err, out)
	}
	if len(out) > 0 {
		t.Logf("%s", out)
	}
}
