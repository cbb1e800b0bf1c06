// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/simulated"
	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// promcheck returns the program that evaluates queries on scrapes.
func promcheck(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "..", "hack", "tool.sh"), "promcheck")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("building promcheck: %v", err)
	}
	return string(out[:len(out)-1])
}

// startManager runs the controllers, with simulated sandboxes, and returns where
// their metrics are.
func startManager(t *testing.T, s *testutil.Server) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	mgr, err := manager.New(s.Config, manager.Options{
		MetricsBindAddress: address,
		Options:            controllers.Options{Simulate: true, SimulatedStartDelay: 10 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	return "http://" + address + "/metrics"
}

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
	defer resp.Body.Close()
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

// Every query of the dashboard and of the alerts is evaluated, by Prometheus' own
// engine, on what a running server and running controllers expose.
func TestDashboard(t *testing.T) {
	check := promcheck(t)
	s := testutil.Start(t)
	controllers := startManager(t, s)
	client := s.Client.AgentsV1alpha1()

	// A pool that gets full, and one that never will.
	s.Set(t, namespace, "pool", 4)
	broken := s.Set(t, namespace, "broken", 1)
	eventually(t, func(ctx context.Context) string {
		set, err := client.SandboxSets(namespace).Get(ctx, broken.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		set.Spec.Template.Raw = []byte(fmt.Sprintf(`{"spec":{"containers":[{"name":"main","image":%q}]}}`, simulated.FailImage))
		if _, err := client.SandboxSets(namespace).Update(ctx, set, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	pool := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool"}}
	scrapes := t.TempDir()
	for round := range 4 {
		eventually(t, func(ctx context.Context) string {
			set, err := client.SandboxSets(namespace).Get(ctx, "pool", metav1.GetOptions{})
			if err != nil || set.Status.AvailableReplicas != 4 {
				return fmt.Sprintf("the pool is %+v, %v", set.Status, err)
			}
			return ""
		})
		for i := range 3 {
			claim := testutil.Claim(pool, fmt.Sprintf("claim-%d-%d", round, i), int32(i+1), nil) // the last one waits
			if _, err := client.SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := client.SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Fatalf("a name was given twice: %v", err)
			}
		}
		folder := filepath.Join(scrapes, fmt.Sprint(round))
		save(t, s.Config, s.Config.Host+"/metrics", filepath.Join(folder, "sandlot-apiserver.prom"))
		save(t, &rest.Config{}, controllers, filepath.Join(folder, "sandlot-controller-manager.prom"))
	}
	artifacts := filepath.Join("..", "..", "..", "artifacts", "dashboard")
	out, err := exec.CommandContext(t.Context(), check, "--dashboard", filepath.Join(artifacts, "sandlot.json"),
		"--rules", filepath.Join(artifacts, "alerts.yaml"), "--ignore", "sandlot_certificate_", scrapes).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	t.Logf("%s", out)
}
