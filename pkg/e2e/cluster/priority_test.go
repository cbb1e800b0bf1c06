// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestPriorityClassIsOurs: pods of the PriorityClass of the install are only where that is,
// and a quota counts them there. The pods of sandboxes are no exception.
func TestPriorityClassIsOurs(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	create := func(ctx context.Context, ns, class string, dryRun ...string) error {
		_, err := c.kube.CoreV1().Pods(ns).Create(ctx, priorityPod(class), metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	const ours = "sandlot-system"
	denied := func(err error) error {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PriorityClass sandlot-system is for pods of Sandlot itself only") {
			return fmt.Errorf("a pod of the PriorityClass elsewhere: got %w, want it to be forbidden", err)
		}
		return nil
	}
	if err := denied(create(t.Context(), ns, ours, metav1.DryRunAll)); err != nil {
		t.Error(err)
	}
	if err := create(t.Context(), ns, "", metav1.DryRunAll); err != nil {
		t.Errorf("a pod of no PriorityClass: %v", err)
	}
	// An account of the name of the controllers does not make a namespace ours.
	serviceAccount(t, ns, "sandlot-controller-manager")
	grant(t, ns, "edit", "system:serviceaccount:"+ns+":sandlot-controller-manager")
	if err := denied(create(t.Context(), ns, ours, metav1.DryRunAll)); err != nil {
		t.Error(err)
	}
	template := fmt.Sprintf(`{"metadata":{"name":"grabs"},"spec":{"template":{"spec":%s}}}`, judgedSpec("", `,"priorityClassName":"sandlot-system"`))
	_, said, err := plane.Kubectl(t.Context(), "", strings.NewReader(`{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxTemplate",`+template[1:]),
		"--namespace="+ns, "create", "-f", "-")
	if err != nil || !strings.Contains(said, "PriorityClass sandlot-system is for pods of Sandlot itself only") {
		t.Errorf("a template with the PriorityClass: %v, %q", err, said)
	}

	if err := create(t.Context(), controlplane.Namespace, ours); err != nil {
		t.Fatalf("a pod of the install: %v", err)
	}
	cleanUp(t, c.kube.CoreV1().Pods(controlplane.Namespace).Delete, "of-priority")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		quota, err := c.kube.CoreV1().ResourceQuotas(controlplane.Namespace).Get(ctx, ours, metav1.GetOptions{})
		if err == nil && quota.Status.Used.Pods().Value() != 1 {
			err = fmt.Errorf("the quota counts %s pods", quota.Status.Used.Pods())
		}
		return err
	})
}

// priorityPod is a pod of a PriorityClass that the namespace of the install admits.
func priorityPod(class string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "of-priority"},
		Spec: corev1.PodSpec{
			PriorityClassName: class,
			SecurityContext:   &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "main", Image: "busybox:1",
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
}
