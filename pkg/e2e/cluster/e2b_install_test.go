// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// kustomized writes a kustomization of a user's own, in whose text %s is artifacts/deploy.
func kustomized(t *testing.T, text string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	to, err := filepath.Rel(folder, overlayPath(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(strings.ReplaceAll(text, "%s", to)), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestE2BOfInstallIsValid: the cluster takes the component, without a warning.
func TestE2BOfInstallIsValid(t *testing.T) {
	t.Parallel()
	folder := kustomized(t, "resources: [%s/default]\ncomponents: [%s/components/e2b]\n")
	out, errOut, err := plane.Kubectl(t.Context(), "", nil, "apply", "--kustomize", folder, "--dry-run=server", "--validate=strict",
		"--output=json", "--server-side", "--force-conflicts")
	if err != nil {
		t.Fatal(err)
	}
	if errOut != "" {
		t.Errorf("kubectl complains: %s", errOut)
	}
	findObject(t, out, "PodDisruptionBudget")
}

// TestE2BTeamOfInstall asks the cluster what the gateway may do, and what it may do as the
// user of a team.
func TestE2BTeamOfInstall(t *testing.T) {
	t.Parallel()
	ns, other := namespace(t), namespace(t)
	folder := kustomized(t, "namespace: "+ns+"\ncomponents: [%s/components/e2b-team]\n")
	if _, _, err := plane.Kubectl(t.Context(), "", nil, "apply", "--kustomize", folder); err != nil {
		t.Fatal(err)
	}
	gateway, team := "system:serviceaccount:"+controlplane.Namespace+":sandlot-gateway", v1alpha1.E2BUser(ns)
	const group, keys = v1alpha1.GroupName, "sandlot-e2b-keys"
	for _, tc := range []struct {
		user, verb, group, resource, namespace, name string
		want                                         bool
	}{
		{gateway, "impersonate", "", "serviceaccounts", ns, v1alpha1.E2BServiceAccount, true},
		{gateway, "impersonate", "", "serviceaccounts", ns, "default", false},
		{gateway, "impersonate", "", "serviceaccounts", other, v1alpha1.E2BServiceAccount, false},
		{gateway, "impersonate", "", "serviceaccounts", "", v1alpha1.E2BServiceAccount, false},
		{gateway, "impersonate", "", "users", "", "admin", false},
		{gateway, "impersonate", "", "groups", "", "system:masters", false},
		{gateway, "impersonate", "authentication.k8s.io", "userextras/" + v1alpha1.AnnotationE2BKeyID, "", "0123456789abcdef", true},
		{gateway, "impersonate", "authentication.k8s.io", "userextras/scopes", "", "x", false},
		{gateway, "get", "", "pods", ns, "", true},
		{gateway, "list", "", "pods", ns, "", false},
		{gateway, "get", "", "pods", other, "", false},
		{gateway, "watch", group, "sandboxes", "", "", true},
		{gateway, "get", group, "sandboxclaims", ns, "", true},
		{gateway, "create", group, "sandboxclaims", ns, "", false},
		{gateway, "create", group, "sandboxclaims/runtimeaccess", ns, "", false},
		{gateway, "delete", group, "sandboxes", ns, "", false},
		{gateway, "watch", "", "secrets", keys, "", true},
		{gateway, "update", "", "secrets", keys, "", false},
		{gateway, "get", "", "secrets", ns, "", false},
		{gateway, "get", "", "secrets", controlplane.Namespace, "", false},
		{team, "create", group, "sandboxclaims", ns, "", true},
		{team, "create", group, "sandboxclaims", other, "", false},
		{team, "create", group, "sandboxclaims/runtimeaccess", ns, "", true},
		{team, "create", group, "sandboxclaims/release", ns, "", true},
		{team, "delete", group, "sandboxes", ns, "", true},
		{team, "get", group, "sandboxes", other, "", false},
		{team, "create", group, "sandboxes", ns, "", false},
		{team, "update", group, "sandboxsets", ns, "", false},
		{team, "get", "", "secrets", ns, "", false},
		{team, "get", "", "secrets", keys, "", false},
	} {
		resource, subresource, _ := strings.Cut(tc.resource, "/")
		ask := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: tc.user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: tc.verb, Group: tc.group, Resource: resource, Subresource: subresource, Namespace: tc.namespace, Name: tc.name,
			},
		}}
		expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a binding takes a moment to be known
			answer, err := admin(t).kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, ask, metav1.CreateOptions{})
			if err == nil && answer.Status.Allowed != tc.want {
				err = fmt.Errorf("may %s %s %s %s in %q: %t", tc.user, tc.verb, tc.resource, tc.name, tc.namespace, answer.Status.Allowed)
			}
			return err
		})
	}
}
