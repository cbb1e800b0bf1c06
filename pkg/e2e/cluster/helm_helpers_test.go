// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

const (
	// release is what the chart is installed as.
	release = "sandlot"
	// postRenderer is a plugin of Helm.
	postRenderer = "local"
)

// helm runs the pinned Helm on the chart.
type helm struct {
	program, chart, home, kubeconfig string
}

func newHelm(t *testing.T, c *controlplane.ControlPlane) *helm {
	t.Helper()
	root, err := program.Root()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(root, "hack", "tool.sh"), "helm").Output()
	if err != nil {
		t.Fatalf("building helm: %v", err)
	}
	return &helm{
		program: strings.TrimSpace(string(out)), chart: filepath.Join(root, "artifacts", "deploy", "chart", "sandlot"),
		home: t.TempDir(), kubeconfig: c.Kubeconfig(),
	}
}

// run runs helm and returns what it prints. The error says what it wrote to stderr.
func (h *helm) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig, "HOME="+h.home,
		"HELM_CONFIG_HOME="+h.home, "HELM_CACHE_HOME="+h.home, "HELM_DATA_HOME="+h.home, "HELM_PLUGINS="+h.home)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w\n%s%s", strings.Join(args, " "), err, &errOut, &out)
	}
	return out.String(), nil
}

func (h *helm) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// serveHere makes a post-renderer that leads the Service of the API server to this machine,
// as artifacts/deploy/local does, and puts all pods on the node of processes.
func (h *helm) serveHere(port int) error {
	root, err := program.Root()
	if err != nil {
		return err
	}
	dir := filepath.Join(h.home, postRenderer)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"plugin.yaml": `apiVersion: v1
name: ` + postRenderer + `
version: 0.0.0
type: postrenderer/v1
runtime: subprocess
runtimeConfig:
  platformCommand:
  - command: ${HELM_PLUGIN_DIR}/render.sh
`,
		"render.sh": fmt.Sprintf("#!/bin/sh\nset -e\ncd %q\ncat >all.yaml\nexec %q kustomize .\n", dir, filepath.Join(root, "bin", "kubectl")),
		"kustomization.yaml": fmt.Sprintf(`resources: [all.yaml]
patches:
- target: {kind: Service, name: sandlot-apiserver}
  patch: |-
    - {op: replace, path: /spec, value: {type: ExternalName, externalName: localhost}}
- target: {kind: APIService}
  patch: |-
    - {op: replace, path: /spec/service/port, value: %[1]d}
- target: {kind: Deployment|StatefulSet}
  patch: |-
    - {op: add, path: /spec/template/spec/nodeName, value: %[2]s}
- target: {kind: CronJob}
  patch: |-
    - {op: add, path: /spec/jobTemplate/spec/template/spec/nodeName, value: %[2]s}
- target: {kind: Pod}
  patch: |-
    - {op: add, path: /spec/nodeName, value: %[2]s}
`, port, controlplane.ProcessNode),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			return err
		}
	}
	return nil
}
