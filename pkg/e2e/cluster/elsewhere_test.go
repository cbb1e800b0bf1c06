// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/install/certificates"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// elsewhere is a namespace that an install is not in by default.
const elsewhere = "agents"

// checkElsewhere holds a cluster whose install is elsewhere to that: what the programs make
// is there, and the policies know who they are. A sandbox of it is in a namespace.
func checkElsewhere(t *testing.T, c *clients, ns, sandbox string) {
	t.Helper()
	ctx := t.Context()
	if _, err := c.kube.CoreV1().Namespaces().Get(ctx, controlplane.Namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("namespace %s: got %v, want none", controlplane.Namespace, err)
	}
	for _, lease := range []string{"sandlot-certificates", "sandlot-controller-manager"} {
		if _, err := c.kube.CoordinationV1().Leases(elsewhere).Get(ctx, lease, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.kube.CoreV1().Secrets(elsewhere).Get(ctx, certificates.ServingSecret, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	// The API server asks what would be, and makes nothing.
	server := c.impersonating(t, serviceAccountName(elsewhere, "sandlot-apiserver"))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "question"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	dryRun := []string{metav1.DryRunAll}
	if _, err := server.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: dryRun}); err != nil {
		t.Errorf("a question of the API server: %v", err)
	}
	if _, err := server.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a pod of the API server: got %v, want it to be forbidden", err)
	}

	// The PriorityClass is for this namespace.
	if _, err := c.kube.CoreV1().Pods(elsewhere).Create(ctx, priorityPod("sandlot-system"), metav1.CreateOptions{DryRun: dryRun}); err != nil {
		t.Errorf("a pod of the install: %v", err)
	}

	// The controllers delete the pods of sandboxes. Whose account only has their name, and may
	// delete pods, does not.
	remove := func(client kubernetes.Interface) error {
		return client.CoreV1().Pods(ns).Delete(ctx, sandbox, metav1.DeleteOptions{DryRun: dryRun})
	}
	if err := remove(c.impersonating(t, serviceAccountName(elsewhere, "sandlot-controller-manager"))); err != nil {
		t.Errorf("the controllers: %v", err)
	}
	namesake := serviceAccountName(ns, "sandlot-controller-manager")
	c.grant(t, ns, "edit", namesake)
	expect.Eventually(ctx, t, func(context.Context) error {
		if err := remove(c.impersonating(t, namesake)); !apierrors.IsInvalid(err) {
			return fmt.Errorf("a user of the name of the controllers: got %w, want it to be denied", err)
		}
		return nil
	})

	// They do so in earnest, for a pause.
	if _, err := c.Sandboxes(ns).Patch(ctx, sandbox, types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitNoPod(t, ns, sandbox)
}

func serviceAccountName(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// impersonating returns a client of the cluster for a user, in the admin's right.
func (c *clients) impersonating(t *testing.T, user string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
