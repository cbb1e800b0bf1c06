// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"os/exec"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/identity"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestE2BIdentity acts for teams as the gateway does, with no right but to impersonate
// ServiceAccounts of one name: the rights are those of the team, and of its groups.
func TestE2BIdentity(t *testing.T) {
	t.Parallel()
	c, ns, other := admin(t), namespace(t), namespace(t)
	gateway := uniqueUser(t, "gateway")
	rbac := c.kube.RbacV1()
	role, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "gateway-"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{v1alpha1.E2BServiceAccount}, Verbs: []string{"impersonate"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: gateway}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// It is the group that every ServiceAccount of the namespace is in that may claim.
	if _, err := rbac.RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "claimers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sandlot-claimer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + ns}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FilledPool(t, c, ns, 1)

	clients := identity.New(as(t, gateway).config)
	team, err := clients.For(ns)
	if err != nil {
		t.Fatal(err)
	}
	var claim *v1alpha1.SandboxClaim
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // roles take a moment to be known
		var err error
		claim, err = team.AgentsV1alpha1().SandboxClaims(ns).Create(ctx, builders.Claim("claim", 1), metav1.CreateOptions{})
		return err
	})
	expect.Claimed(t, claim, 1)
	if !v1alpha1.IsE2BClaim(claim) {
		t.Errorf("claimed by %q", claim.Annotations[v1alpha1.AnnotationClaimedBy])
	}
	if _, err := team.AgentsV1alpha1().SandboxClaims(other).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing claims of another team: %v", err)
	}
	strangers, err := clients.For(other)
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{ns, other} {
		if _, err := strangers.AgentsV1alpha1().SandboxClaims(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("listing claims in %s as the team of another namespace, which may nothing: %v", namespace, err)
		}
	}
	// It cannot give itself more.
	masters, err := identity.New(as(t, gateway).config, "system:masters").For(ns)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := masters.AgentsV1alpha1().SandboxClaims(other).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing claims as an administrator: %v", err)
	}
}

// runProgram runs a program and returns what it wrote.
func runProgram(t testing.TB, path string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}
