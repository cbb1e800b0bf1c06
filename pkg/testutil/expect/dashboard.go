// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// Metrics is where a program shows its metrics.
type Metrics struct {
	Config *rest.Config
	URL    string
}

// Dashboard evaluates every query of the dashboard and of the alerts of the repository,
// by Prometheus' own engine, on what programs show. A round lets something happen and
// returns where to look after it, by the names of the programs. args are more arguments
// of promcheck.
func Dashboard(t testing.TB, repository string, rounds int, round func(i int) map[string]Metrics, args ...string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), filepath.Join(repository, "hack", "tool.sh"), "promcheck")
	build.Stderr = os.Stderr
	promcheck, err := build.Output()
	if err != nil {
		t.Fatalf("building promcheck: %v", err)
	}
	scrapes := t.TempDir()
	for i := range rounds {
		folder := filepath.Join(scrapes, strconv.Itoa(i))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for program, metrics := range round(i) {
			if err := os.WriteFile(filepath.Join(folder, program+".prom"), metrics.read(t), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	artifacts := filepath.Join(repository, "artifacts", "dashboard")
	args = append([]string{"--dashboard", filepath.Join(artifacts, "sandlot.json"), "--rules", filepath.Join(artifacts, "alerts.yaml")}, args...)
	out, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(promcheck)), append(args, scrapes)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	t.Logf("%s", out)
}

func (m Metrics) read(t testing.TB) []byte {
	t.Helper()
	client, err := rest.HTTPClientFor(m.Config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.URL, nil)
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
		t.Fatalf("%s: %s, %v", m.URL, resp.Status, err)
	}
	return body
}
