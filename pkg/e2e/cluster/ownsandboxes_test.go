// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestOwnSandboxes applies the policy of docs/access.md: in a namespace with its label,
// commands are run by who holds the sandbox, and by who may create pods anyway.
func TestOwnSandboxes(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(repository(t), "docs", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, policy, _ := strings.Cut(string(content), "```yaml own-sandboxes\n")
	policy, _, found := strings.Cut(policy, "\n```\n")
	if !found {
		t.Fatal("docs/access.md has no policy")
	}
	c, shared, alone := admin(t), namespace(t), namespace(t)
	kubectl(t, "", "", "label", "namespace", shared, "example.com/own-sandboxes=true")
	kubectl(t, "", policy, "apply", "-f", "-")
	t.Cleanup(func() {
		api, ctx := c.kube.AdmissionregistrationV1(), context.Background() // that of the test has ended
		if err := errors.Join(api.ValidatingAdmissionPolicyBindings().Delete(ctx, "own-sandboxes", metav1.DeleteOptions{}),
			api.ValidatingAdmissionPolicies().Delete(ctx, "own-sandboxes", metav1.DeleteOptions{}),
			c.kube.RbacV1().ClusterRoleBindings().Delete(ctx, "own-sandboxes", metav1.DeleteOptions{}),
			c.kube.RbacV1().ClusterRoles().Delete(ctx, "own-sandboxes", metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})

	ann, bob, editor := uniqueUser(t, "ann"), uniqueUser(t, "bob"), uniqueUser(t, "editor")
	held := map[string]string{} // by namespace and user
	for _, ns := range []string{shared, alone} {
		for _, user := range []string{ann, bob} {
			grant(t, ns, "sandlot-claimer", user)
			grant(t, ns, "sandlot-sandbox-user", user)
		}
		grant(t, ns, "edit", editor)
		expect.FilledPool(t, c, ns, 3)
		for i, user := range []string{ann, bob} {
			var names []string
			expect.Eventually(t.Context(), t, func(ctx context.Context) error { // roles take a moment to be known
				claim, err := as(t, user).SandboxClaims(ns).Create(ctx, builders.Claim(fmt.Sprintf("claim-%d", i), 1), metav1.CreateOptions{})
				if err == nil {
					names = expect.Claimed(t, claim, 1)
				}
				return err
			})
			held[ns+user] = names[0]
			c.awaitSandbox(t, ns, names[0], isReady)
		}
	}
	expect.FullPool(t, c, shared, "pool", 3)
	pooled := c.unused(t, shared)[0]

	for _, way := range []string{"exec", "attach", "portforward", "sandboxes/proxy"} {
		for what, tc := range map[string]struct {
			ns, user, pod string
			denied        bool
		}{
			"one's own":                     {ns: shared, user: ann, pod: held[shared+ann]},
			"another user's":                {ns: shared, user: bob, pod: held[shared+ann], denied: true},
			"the pool's":                    {ns: shared, user: ann, pod: pooled, denied: true},
			"by who may create pods":        {ns: shared, user: editor, pod: held[shared+ann]},
			"in a namespace without policy": {ns: alone, user: bob, pod: held[alone+ann]},
		} {
			expect.Eventually(t.Context(), t, func(ctx context.Context) error { // policies and marks take a moment to be known
				return judged(ctx, as(t, tc.user), tc.ns, tc.pod, way, tc.denied, what)
			})
		}
	}
}

// judged looks at what an attempt to connect to a pod is answered. Without kubelets and
// upgrades none succeeds: what is not denied fails later.
func judged(ctx context.Context, c *clients, ns, pod, way string, denied bool, what string) error {
	for verb, request := range map[string]*rest.Request{"POST": c.kube.CoreV1().RESTClient().Post(), "GET": c.kube.CoreV1().RESTClient().Get()} {
		if way == "sandboxes/proxy" {
			request = request.AbsPath("apis", v1alpha1.GroupName, v1alpha1.SchemeGroupVersion.Version, "namespaces", ns, "sandboxes", pod, "proxy", "80")
		} else {
			request = request.Namespace(ns).Resource("pods").Name(pod).SubResource(way).
				Param("command", "true").Param("container", "main").Param("stdout", "true")
		}
		err := request.Do(ctx).Error()
		says := strings.Contains(fmt.Sprint(err), "this sandbox is not yours")
		if denied != says || denied != apierrors.IsForbidden(err) {
			return fmt.Errorf("%s by %s, %s: got %w, want it to be denied: %t", way, verb, what, err, denied)
		}
	}
	return nil
}
