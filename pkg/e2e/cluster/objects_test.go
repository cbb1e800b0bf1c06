// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// claim creates a claim, which has to be Completed in the answer, and returns it.
func (c *clients) claim(t testing.TB, namespace string, claim *v1alpha1.SandboxClaim) *v1alpha1.SandboxClaim {
	t.Helper()
	created, err := c.SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("claiming: %v", err)
	}
	expect.Claimed(t, created, int(*claim.Spec.Replicas))
	return created
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
