// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

const (
	// etcdLabel is on the pods of the etcd of an install, and etcdPort is where they tell
	// of their health.
	etcdLabel = "app.kubernetes.io/name=sandlot-etcd"
	etcdPort  = "2381"
	// full is from which part of its quota on an etcd is soon full.
	full = 0.8
)

// member is what a member of etcd tells.
type member struct {
	name string
	// alarm is what is wrong; empty if it is healthy.
	alarm       string
	size, quota float64
}

func lookAtEtcd(ctx context.Context, c *cluster) ([]findings.Finding, string, error) {
	pods, err := c.kube.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: etcdLabel})
	if err != nil {
		return nil, "", err
	}
	if len(pods.Items) == 0 {
		return []findings.Finding{problem(findings.NotLookedAt, "", "no etcd runs in pods of its own here, so its health and size are not known",
			"for an etcd inside of the API server see its /metrics (docs/observability.md), for one of yours see that one's")}, "", nil
	}
	var members []member
	for _, pod := range pods.Items {
		get := func(path string) ([]byte, error) {
			return c.kube.CoreV1().Pods(c.namespace).ProxyGet("http", pod.Name, etcdPort, path, nil).DoRaw(ctx)
		}
		m := member{name: pod.Name}
		health, err := get("health")
		if len(health) == 0 && err != nil { // one that is not healthy says so with an error
			return nil, "", fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		if m.alarm, err = readHealth(health); err != nil {
			return nil, "", fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		metrics, err := get("metrics")
		if err != nil {
			return nil, "", fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		if m.size, m.quota, err = readSize(metrics); err != nil {
			return nil, "", fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		members = append(members, m)
	}
	return judgeEtcd(members, c.namespace), fmt.Sprintf("%d members are healthy, the first has %.0f MiB of %.0f", len(members), members[0].size/(1<<20), members[0].quota/(1<<20)), nil
}

// readHealth reads what /health of etcd answers.
func readHealth(answer []byte) (alarm string, err error) {
	var health struct {
		Health string `json:"health"`
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(answer, &health); err != nil {
		return "", fmt.Errorf("its health cannot be read: %w", err)
	}
	if health.Health == "true" {
		return "", nil
	}
	return "health " + health.Health + ": " + health.Reason, nil
}

// readSize reads the size of the store and its quota from the metrics of etcd.
func readSize(metrics []byte) (size, quota float64, err error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	if err != nil {
		return 0, 0, fmt.Errorf("its metrics cannot be read: %w", err)
	}
	return gauge(families["etcd_mvcc_db_total_size_in_bytes"]), gauge(families["etcd_server_quota_backend_bytes"]), nil
}

func gauge(family *dto.MetricFamily) float64 {
	if family == nil || len(family.GetMetric()) == 0 {
		return 0
	}
	return family.GetMetric()[0].GetGauge().GetValue()
}

func judgeEtcd(members []member, namespace string) (found []findings.Finding) {
	for _, m := range members {
		object := fmt.Sprintf("Pod %s/%s", namespace, m.name)
		if m.alarm != "" {
			found = append(found, problem(findings.Error, object, fmt.Sprintf("etcd in %s is not healthy: %s", object, m.alarm), "docs/operations.md, etcd"))
		}
		if m.quota > 0 && m.size/m.quota >= full {
			found = append(found, problem(findings.Warning, object,
				fmt.Sprintf("etcd in %s has used %.0f%% of its quota, at which writes end", object, 100*m.size/m.quota),
				"defragment it, or give it a larger quota and volume: docs/install.md, The store"))
		}
	}
	return found
}
