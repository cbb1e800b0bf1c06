// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

// TestDashboard evaluates every query of the dashboard and of the alerts, by
// Prometheus' own engine, on what the running programs expose.
func TestDashboard(t *testing.T) {
	t.Parallel()
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "tool.sh"), "promcheck")
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		t.Fatalf("building promcheck: %v", err)
	}
	promcheck := string(out[:len(out)-1])

	c, ns := admin(t), namespace(t)
	c.fillPool(t, ns, 2)
	// A pool that never gets full.
	never := newSet("never", 1)
	never.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(0))
	if _, err := c.SandboxSets(ns).Create(t.Context(), never, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	scrapes := t.TempDir()
	for round := range 3 {
		c.claim(t, ns, newClaim(fmt.Sprintf("claim-%d", round), 1))
		c.awaitPool(t, ns, "pool", 2)
		folder := filepath.Join(scrapes, fmt.Sprint(round))
		for i := range sandlot.APIServers() {
			direct := c.direct(t, i)
			save(t, direct.config, direct.config.Host+"/metrics", filepath.Join(folder, fmt.Sprintf("sandlot-apiserver-%d.prom", i)))
		}
		save(t, &rest.Config{}, sandlot.MetricsURL(), filepath.Join(folder, "sandlot-controller-manager.prom"))
	}
	artifacts := filepath.Join(root, "artifacts", "dashboard")
	out, err = exec.CommandContext(t.Context(), promcheck, "--dashboard", filepath.Join(artifacts, "sandlot.json"),
		"--rules", filepath.Join(artifacts, "alerts.yaml"), scrapes).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	t.Logf("%s", out)
}

// save writes what is at a URL to a file.
func save(t *testing.T, config *rest.Config, url, path string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
}
