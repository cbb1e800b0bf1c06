// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestOwnerReferencesPermissionEnforcement enables the plugin in kube-apiserver and in our
// server: a user makes nothing wait for a sandbox of which they may not write finalizers,
// pools fill, and claims have sandboxes made, whose owner they are.
func TestOwnerReferencesPermissionEnforcement(t *testing.T) {
	t.Parallel()
	const ns, user, enable = "default", "ann", "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
	s := newSite(t, enable)
	s.install(t, controlplane.SandlotOptions{Replicas: 1, APIServerArgs: []string{enable}})
	expect.FilledPool(t, s, ns, 2)
	s.grant(t, ns, "sandlot-claimer", user)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "maker"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"sandboxes"}, Verbs: []string{"create"}},
	}}
	if _, err := s.kube.RbacV1().Roles(ns).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "maker"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "maker"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := s.kube.RbacV1().RoleBindings(ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := s.User(user)
	if err != nil {
		t.Fatal(err)
	}
	who := clientsFor(t, config)
	owner, err := s.kube.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "run"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := func(name string, blocks bool) *v1alpha1.Sandbox {
		sandbox := builders.Sandbox(name)
		sandbox.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &blocks}}
		return sandbox
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a role takes a moment to be known
		_, err := who.Sandboxes(ns).Create(ctx, owned("owned", false), metav1.CreateOptions{})
		return err
	})
	_, err = who.Sandboxes(ns).Create(t.Context(), owned("blocking", true), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot set blockOwnerDeletion") {
		t.Errorf("a ConfigMap waits for a sandbox of a user who may not: %v", err)
	}
	cold := builders.Claim("cold", 1)
	cold.Spec.WarmPool, cold.Spec.CreateOnNoStock = v1alpha1.WarmPoolNone, new(true)
	expect.Claimed(t, who.claim(t, ns, cold), 1)
}
