// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/simulated"
	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// startManager runs the controllers, with simulated sandboxes, and returns where
// their metrics are.
func startManager(t *testing.T, s *testutil.Server) string {
	t.Helper()
	// It serves them itself only to whom a cluster lets: see TestMetricsNeedARight in
	// pkg/e2e/cluster.
	page := httptest.NewServer(promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	t.Cleanup(page.Close)
	mgr, err := manager.New(s.Config, manager.Options{
		Options: controllers.Options{Simulate: true, SimulatedStartDelay: 10 * time.Millisecond},
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
	return page.URL
}

// Every query of the dashboard and of the alerts is evaluated, by Prometheus' own
// engine, on what a running server and running controllers expose.
func TestDashboard(t *testing.T) {
	s := testutil.Start(t)
	controllers := startManager(t, s)
	client := s.Client.AgentsV1alpha1()

	// A pool that gets full, and one that never will.
	s.Set(t, namespace, "pool", 4)
	broken := s.Set(t, namespace, "broken", 1)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		set, err := client.SandboxSets(namespace).Get(ctx, broken.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		set.Spec.Template = builders.PodTemplateOf(simulated.FailImage)
		if _, err := client.SandboxSets(namespace).Update(ctx, set, metav1.UpdateOptions{}); err != nil {
			return err
		}
		return nil
	})
	pool := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool"}}
	expect.Dashboard(t, filepath.Join("..", "..", ".."), 4, func(round int) map[string]expect.Metrics {
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			set, err := client.SandboxSets(namespace).Get(ctx, "pool", metav1.GetOptions{})
			if err == nil && set.Status.AvailableReplicas != 4 {
				err = fmt.Errorf("the pool is %+v", set.Status)
			}
			return err
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
		return map[string]expect.Metrics{
			"sandlot-apiserver":          {Config: s.Config, URL: s.Config.Host + "/metrics"},
			"sandlot-etcd":               {Config: s.Config, URL: s.Config.Host + apiserver.EtcdMetricsPath},
			"sandlot-controller-manager": {Config: &rest.Config{}, URL: controllers},
		}
	}, "--ignore", strings.Join(notHere, "|"))
}
