// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// newSet returns a set of sandboxes with a small template.
func newSet(name string, replicas int32) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Replicas = &replicas
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`)}
	return set
}

// newClaim returns a claim of the sandboxes of the set "pool" that waits for warm
// ones.
func newClaim(name string, replicas int32) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Spec.TemplateName = "pool"
	claim.Spec.Replicas = &replicas
	claim.Spec.CreateOnNoStock = new(false)
	return claim
}

// fillPool creates the set "pool" and waits until it is full.
func (c *clients) fillPool(t testing.TB, namespace string, replicas int32) {
	t.Helper()
	if _, err := c.SandboxSets(namespace).Create(t.Context(), newSet("pool", replicas), metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating the pool: %v", err)
	}
	c.awaitPool(t, namespace, "pool", replicas)
}

// awaitPool waits until a set has as many available sandboxes as it is to have,
// none beside them, and says so.
func (c *clients) awaitPool(t testing.TB, namespace, name string, replicas int32) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		set, err := c.SandboxSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := set.Status
		if status.Replicas != replicas || status.AvailableReplicas != replicas || status.ObservedGeneration != set.Generation {
			return fmt.Errorf("set %s of %d has the status %+v", name, replicas, status)
		}
		// The status follows a claim with a delay.
		list, err := c.Sandboxes(namespace).List(ctx, metav1.ListOptions{LabelSelector: status.Selector})
		if err != nil {
			return err
		}
		unused, available := 0, 0
		for i := range list.Items {
			sandbox := &list.Items[i]
			if !metav1.IsControlledBy(sandbox, set) {
				continue
			}
			unused++
			if state := v1alpha1.StateOf(sandbox, time.Now()); state == v1alpha1.StateAvailable && sandbox.Annotations[v1alpha1.AnnotationLock] == "" {
				available++
			}
		}
		if unused != int(replicas) || available != int(replicas) {
			return fmt.Errorf("set %s of %d has %d unused sandboxes, %d available", name, replicas, unused, available)
		}
		return nil
	})
}

// claim creates a claim, which has to be Completed in the answer, and returns it.
func (c *clients) claim(t testing.TB, namespace string, claim *v1alpha1.SandboxClaim) *v1alpha1.SandboxClaim {
	t.Helper()
	created, err := c.SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("claiming: %v", err)
	}
	completed(t, created, int(*claim.Spec.Replicas))
	return created
}

// completed requires that a claim is Completed with so many sandboxes, each with
// an address, and returns their names.
func completed(t testing.TB, claim *v1alpha1.SandboxClaim, replicas int) []string {
	t.Helper()
	status := &claim.Status
	if status.Phase != v1alpha1.SandboxClaimPhaseCompleted || int(status.ClaimedReplicas) != replicas || len(status.Sandboxes) != replicas {
		t.Fatalf("claim %s is not Completed with %d sandboxes: %+v", claim.Name, replicas, status)
	}
	var names []string
	for _, sandbox := range status.Sandboxes {
		if sandbox.Name == "" || len(sandbox.PodIPs) == 0 {
			t.Errorf("claim %s names a sandbox %q with addresses %q", claim.Name, sandbox.Name, sandbox.PodIPs)
		}
		names = append(names, sandbox.Name)
	}
	slices.Sort(names)
	if distinct := slices.Compact(slices.Clone(names)); len(distinct) != len(names) {
		t.Errorf("claim %s names a sandbox twice: %q", claim.Name, names)
	}
	return names
}

// pod returns the Pod of a sandbox.
func (c *clients) pod(t testing.TB, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := c.kube.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("the pod of a sandbox: %v", err)
	}
	return pod
}

// poolYAML and claimYAML are manifests as users write them.
const (
	poolYAML = `
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxSet
metadata:
  name: pool
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: main
        image: busybox:1
`
	claimYAML = `
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxClaim
metadata:
  name: claim
spec:
  templateName: pool
`
)
