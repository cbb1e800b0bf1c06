// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// findHelm returns the pinned helm.
var findHelm = sync.OnceValues(func() (string, error) { return findTool("helm") })

// chart is the folder of the Helm chart.
var chart = filepath.Join("chart", "sandlot")

// helm runs helm with values, of which later ones win, and returns what it prints. The error
// says what it wrote to stderr.
func helm(t *testing.T, values []string, args ...string) ([]byte, error) {
	t.Helper()
	program, err := findHelm()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	for i, text := range values {
		file := filepath.Join(home, fmt.Sprintf("values-%d.yaml", i))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--values", file)
	}
	cmd := exec.Command(program, args...)
	// Nothing of a user's, such as plugins.
	cmd.Env = append(os.Environ(), "HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("helm %s: %w\n%s%s", args[0], err, &stderr, out)
	}
	return out, nil
}

// template returns the documents that "helm install" would send for a release in a namespace.
func template(t *testing.T, namespace string, values []string, flags ...string) []byte {
	t.Helper()
	out, err := helm(t, values, append([]string{"template", "sandlot", chart, "--namespace", namespace}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// renderChart returns the objects of the chart, without those of "helm test".
func renderChart(t *testing.T, namespace string, values ...string) manifests {
	t.Helper()
	return decode(t, "the chart", template(t, namespace, values, "--no-hooks"))
}
