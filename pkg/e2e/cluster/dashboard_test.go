// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestDashboard evaluates every query of the dashboard and of the alerts, by
// Prometheus' own engine, on what the running programs expose.
func TestDashboard(t *testing.T) {
	t.Parallel()
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	// A pool that never gets full.
	never := builders.Set("never", 1)
	never.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(0))
	if _, err := c.SandboxSets(ns).Create(t.Context(), never, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	scraper := scraper(t, ns)
	managers, err := sandlot.Metrics(scraper.config)
	if err != nil {
		t.Fatal(err)
	}
	expect.Dashboard(t, root, 3, func(round int) map[string]expect.Metrics {
		c.claim(t, ns, builders.Claim(fmt.Sprintf("claim-%d", round), 1))
		expect.FullPool(t, c, ns, "pool", 2)
		metrics := map[string]expect.Metrics{"sandlot-controller-manager": {Config: managers, URL: managers.Host + "/metrics"}}
		for i := range sandlot.APIServers() {
			direct := c.direct(t, i)
			metrics[fmt.Sprintf("sandlot-apiserver-%d", i)] = expect.Metrics{Config: direct.config, URL: direct.config.Host + "/metrics"}
		}
		return metrics
	})
}
