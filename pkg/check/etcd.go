// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

const (
	// etcdLabel is on the pods of the etcd of an install, and etcdPort is where they
	// report their health.
	etcdLabel = "app.kubernetes.io/name=sandlot-etcd"
	etcdPort  = "2381"
	// etcdTimeout is how long a member has to answer.
	etcdTimeout = 10 * time.Second
	// full is from which part of its quota on an etcd is soon full.
	full = 0.8
)

// member is what a member of etcd tells.
type member struct {
	name string
	// ready is whether its pod is.
	ready bool
	// silent is why it does not answer, or not all that it is asked.
	silent error
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
			"for an etcd inside of the API server see its /metrics/etcd (docs/observability.md), for one of yours see that one's")}, "", nil
	}
	members := make([]member, len(pods.Items))
	var asking sync.WaitGroup
	for i := range pods.Items {
		asking.Go(func() { members[i] = c.ask(ctx, &pods.Items[i]) })
	}
	asking.Wait()
	for _, m := range members {
		if apierrors.IsForbidden(m.silent) { // and so are the others
			return nil, "", m.silent
		}
	}
	return judgeEtcd(members, c.namespace), fmt.Sprintf("%d members are healthy, the first has %.0f MiB of %.0f", len(members), members[0].size/(1<<20), members[0].quota/(1<<20)), nil
}

// ask asks the member of etcd in a pod for its health and its metrics.
func (c *cluster) ask(ctx context.Context, pod *corev1.Pod) member {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	get := func(path string) ([]byte, error) {
		return c.kube.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, etcdPort, path, nil).DoRaw(ctx)
	}
	m := member{name: pod.Name, ready: slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})}
	health, err := get("health") // one that is not healthy says so with an error
	alarm, unread := readHealth(health)
	if m.alarm, m.silent = alarm, unread; unread != nil && err != nil {
		m.silent = err
	}
	if m.silent != nil {
		return m
	}
	metrics, err := get("metrics")
	if err == nil {
		m.size, m.quota, err = readSize(metrics)
	}
	m.silent = err
	return m
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
	switch health.Health {
	case "": // an answer of what is on the way
		return "", errors.New("its health cannot be read: the answer says nothing about it")
	case "true":
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
		switch {
		case m.silent == nil:
		case m.ready:
			found = append(found, problem(findings.NotLookedAt, object, fmt.Sprintf("etcd in %s could not be asked how it is: %v", object, m.silent),
				"kube-apiserver has to reach port "+etcdPort+" of the pod, which the NetworkPolicy sandlot-etcd allows to no one: see /metrics/etcd of the API server in place of it (docs/observability.md), or let kube-apiserver in"))
		default:
			found = append(found, problem(findings.Error, object, fmt.Sprintf("etcd in %s does not answer, and the pod is not ready: %v", object, m.silent),
				fmt.Sprintf("kubectl -n %s describe pod %s, and see its logs: docs/operations.md", namespace, m.name)))
		}
		if m.quota > 0 && m.size/m.quota >= full {
			found = append(found, problem(findings.Warning, object,
				fmt.Sprintf("etcd in %s has used %.0f%% of its quota, at which writes end", object, 100*m.size/m.quota),
				"defragment it, or give it a larger quota and volume: docs/install.md, The store"))
		}
	}
	return found
}
