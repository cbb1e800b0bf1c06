// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOldestIsTold: whatever names the oldest Kubernetes names the same.
func TestOldestIsTold(t *testing.T) {
	for file, says := range map[string]string{
		"docs/install.md":  "A cluster needs Kubernetes " + oldest.String() + ", and Sandlot is tested with " + tested.String() + " and newer",
		"docs/versions.md": "and the two before it (1.36 and " + tested.String() + ")",
		"docs/check.md":    "| Kubernetes | older than " + oldest.String() + " | older than " + tested.String() + " |",
		"artifacts/deploy/chart/sandlot/Chart.yaml": `kubeVersion: ">=` + oldest.String() + `.0-0"`,
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), says) {
			t.Errorf("%s does not say %q", file, says)
		}
	}
}
