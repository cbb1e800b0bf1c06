// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// TestDashboard evaluates every query of the dashboard and of the alerts, by
// Prometheus' own engine, on what the running programs expose.
func TestDashboard(t *testing.T) {
	t.Parallel()
	root, err := program.Root()
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
	// This cluster has no backups. One of which the CronJob is there counts from then on.
	jobs := c.kube.BatchV1().CronJobs(controlplane.Namespace)
	backups := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "sandlot-backup"}}
	backups.Spec.Schedule, backups.Spec.Suspend = "0 0 1 1 *", new(true)
	backups.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "backup", Image: "none.example.com/none:1"}},
	}
	if _, err := jobs.Create(t.Context(), backups, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, jobs.Delete, backups.Name)
	scraper := scraper(t, ns)
	managers, err := sandlot.Metrics(scraper.config)
	if err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // it is looked for once a minute
		code, text, err := getPage(ctx, managers, "/metrics")
		if err == nil && !strings.Contains(text, "sandlot_backup_last_success_timestamp_seconds") {
			err = fmt.Errorf("%d, and no time of a backup", code)
		}
		return err
	})
	expect.Dashboard(t, root, 3, func(round int) map[string]expect.Metrics {
		c.claim(t, ns, builders.Claim(fmt.Sprintf("claim-%d", round), 1))
		expect.FullPool(t, c, ns, "pool", 2)
		etcd := c.direct(t, 0).config
		metrics := map[string]expect.Metrics{
			"sandlot-controller-manager": {Config: managers, URL: managers.Host + "/metrics"},
			"sandlot-etcd":               {Config: etcd, URL: etcd.Host + "/metrics/etcd"},
		}
		for i := range sandlot.APIServers() {
			direct := c.direct(t, i)
			metrics[fmt.Sprintf("sandlot-apiserver-%d", i)] = expect.Metrics{Config: direct.config, URL: direct.config.Host + "/metrics"}
		}
		return metrics
	})
}
