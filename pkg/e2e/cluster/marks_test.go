// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestStrangersSandbox: a user who may write sandboxes, and nothing else, neither puts
// their own into a pool nor takes one out, with no verb and on neither way, and the
// next claims get what the set has made. With the right to adopt it is allowed.
func TestStrangersSandbox(t *testing.T) {
	t.Parallel()
	const image = "stranger:1"
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 3)
	user := uniqueUser(t, "stranger")
	write := rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"sandboxes"},
		Verbs: []string{"get", "list", "create", "update", "patch", "delete"},
	}
	uniqueRole(t, ns, user, write)
	set, err := c.SandboxSets(ns).Get(t.Context(), "pool", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owner := *metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))
	pooled := c.unused(t, ns)[0]
	stranger := as(t, user)
	for name, who := range map[string]*clients{"aggregated": stranger, "direct": stranger.direct(t, 0)} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			evil := builders.Sandbox("evil-" + name)
			evil.Spec.Template = builders.PodTemplateOf(image)
			var own *v1alpha1.Sandbox
			expect.Eventually(ctx, t, func(ctx context.Context) error { // a role takes a moment to be known
				var err error
				own, err = who.Sandboxes(ns).Create(ctx, evil, metav1.CreateOptions{})
				return err
			})
			born := evil.DeepCopy()
			born.Name += "-born"
			born.OwnerReferences = []metav1.OwnerReference{owner}
			references, err := json.Marshal(born.OwnerReferences)
			if err != nil {
				t.Fatal(err)
			}
			merge := func(name, patch string) error {
				_, err := who.Sandboxes(ns).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				return err
			}
			apply := func(name string) error {
				_, err := who.Sandboxes(ns).Patch(ctx, name, types.ApplyPatchType, fmt.Appendf(nil,
					`{"apiVersion":"agents.kruise.io/v1alpha1","kind":"Sandbox","metadata":{"name":%q,"ownerReferences":%s},"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`,
					name, references, image), metav1.PatchOptions{FieldManager: "stranger", Force: new(true)})
				return err
			}
			for what, tc := range map[string]struct {
				do   func() error
				verb string
			}{
				"create": {func() error {
					_, err := who.Sandboxes(ns).Create(ctx, born, metav1.CreateOptions{})
					return err
				}, "adopt"},
				"dry run": {func() error {
					_, err := who.Sandboxes(ns).Create(ctx, born, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					return err
				}, "adopt"},
				"update": {func() error {
					return retry.RetryOnConflict(retry.DefaultRetry, func() error { // its controller writes as well
						changed, err := who.Sandboxes(ns).Get(ctx, own.Name, metav1.GetOptions{})
						if err != nil {
							return err
						}
						changed.OwnerReferences = born.OwnerReferences
						_, err = who.Sandboxes(ns).Update(ctx, changed, metav1.UpdateOptions{})
						return err
					})
				}, "adopt"},
				"patch":            {func() error { return merge(own.Name, `{"metadata":{"ownerReferences":`+string(references)+`}}`) }, "adopt"},
				"apply":            {func() error { return apply(own.Name) }, "adopt"},
				"apply of a new":   {func() error { return apply("evil-" + name + "-applied") }, "adopt"},
				"take out":         {func() error { return merge(pooled, `{"metadata":{"ownerReferences":null}}`) }, "adopt"},
				"other pod labels": {func() error { return merge(pooled, `{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}`) }, "adopt"},
				"end in a pool":    {func() error { return merge(pooled, `{"spec":{"shutdownTime":"2100-01-01T00:00:00Z"}}`) }, "adopt"},
				"hold in a pool":   {func() error { return merge(pooled, `{"metadata":{"finalizers":["example.com/hold"]}}`) }, "adopt"},
				"lock":             {func() error { return merge(pooled, `{"metadata":{"annotations":{"agents.kruise.io/lock":"x"}}}`) }, "bind"},
				"call it claimed":  {func() error { return merge(own.Name, `{"metadata":{"labels":{"agents.kruise.io/claim-name":"x"}}}`) }, "bind"},
			} {
				if err := tc.do(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), fmt.Sprintf("the verb %q", tc.verb)) {
					t.Errorf("%s: got %v, want it to be forbidden without the verb %s", what, err, tc.verb)
				}
			}
			if err := merge(own.Name, `{"metadata":{"labels":{"a":"b"}},"spec":{"paused":true}}`); err != nil {
				t.Errorf("their own sandbox: %v", err)
			}
		})
	}
	for i := range 3 {
		claim := c.claim(t, ns, builders.Claim(fmt.Sprintf("claim-%d", i), 1))
		got, err := c.Sandboxes(ns).Get(t.Context(), expect.Claimed(t, claim, 1)[0], metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(got.Spec.Template.Raw), image) {
			t.Errorf("claim %s got the stranger's sandbox %s", claim.Name, got.Name)
		}
	}
	expect.FullPool(t, c, ns, "pool", 3) // the controllers may still do it

	uniqueRole(t, ns, user, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"sandboxsets"}, ResourceNames: []string{"pool"}, Verbs: []string{"adopt"},
	})
	adopted := builders.Sandbox("adopted")
	adopted.OwnerReferences = []metav1.OwnerReference{owner}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // what was denied is remembered for a moment
		_, err := stranger.Sandboxes(ns).Create(ctx, adopted, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}
