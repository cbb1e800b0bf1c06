// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// writes are what may be done to the objects of a kind, in a namespace.
type writes struct {
	kind   string
	create func(ctx context.Context, object metav1.ObjectMeta, o metav1.CreateOptions) error
	patch  func(ctx context.Context, name, patch string, o metav1.PatchOptions) error
	delete func(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// ownedWrites are those of Services and NetworkPolicies.
func (c *clients) ownedWrites(ns string) []writes {
	services, policies := c.kube.CoreV1().Services(ns), c.kube.NetworkingV1().NetworkPolicies(ns)
	return []writes{{
		kind: "Service",
		create: func(ctx context.Context, object metav1.ObjectMeta, o metav1.CreateOptions) error {
			_, err := services.Create(ctx, &corev1.Service{ObjectMeta: object, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}, o)
			return err
		},
		patch: func(ctx context.Context, name, patch string, o metav1.PatchOptions) error {
			_, err := services.Patch(ctx, name, types.MergePatchType, []byte(patch), o)
			return err
		},
		delete: services.Delete,
	}, {
		kind: "NetworkPolicy",
		create: func(ctx context.Context, object metav1.ObjectMeta, o metav1.CreateOptions) error {
			_, err := policies.Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: object}, o)
			return err
		},
		patch: func(ctx context.Context, name, patch string, o metav1.PatchOptions) error {
			_, err := policies.Patch(ctx, name, types.MergePatchType, []byte(patch), o)
			return err
		},
		delete: policies.Delete,
	}}
}

// testPolicyOfOwned tries what the controllers may do to Services and NetworkPolicies
// in a namespace, by dry runs: nothing to other people's, and nothing new where
// sandboxes are not meant to be.
func testPolicyOfOwned(t *testing.T, admin, controllers *clients, ns string, meant bool) {
	t.Helper()
	ours := map[string]string{v1alpha1.LabelCreatedBy: "x"}
	yes := true
	owner := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "agents.kruise.io/v1alpha1", Kind: kind, Name: "box", UID: "1", Controller: &yes}}
	}
	dryRun := []string{metav1.DryRunAll}
	as := controllers.ownedWrites(ns)
	for i, w := range admin.ownedWrites(ns) {
		// The garbage collector deletes what is of owners that there are not.
		there := func(ctx context.Context) error {
			for _, object := range []metav1.ObjectMeta{
				{Name: "anybodys"},
				{Name: "claimed", OwnerReferences: owner("SandboxClaim")},
				{Name: "labelled", Labels: ours},
				{Name: "owned", OwnerReferences: owner(map[string]string{"Service": "Sandbox", "NetworkPolicy": "SandboxTemplate"}[w.kind])},
			} {
				if err := w.create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
					return err
				}
			}
			return nil
		}
		created, unlabelled := "", "its own label"
		if !meant {
			created, unlabelled = "example.com/sandboxes", "denied request" // by either policy
		}
		const not = "its own only"
		for what, c := range map[string]struct {
			try    func(ctx context.Context) error
			denied string
		}{
			"making one without a label": {denied: unlabelled, try: func(ctx context.Context) error {
				return as[i].create(ctx, metav1.ObjectMeta{Name: "new"}, metav1.CreateOptions{DryRun: dryRun})
			}},
			"making one": {denied: created, try: func(ctx context.Context) error {
				return as[i].create(ctx, metav1.ObjectMeta{Name: "new", Labels: ours}, metav1.CreateOptions{DryRun: dryRun})
			}},
			"changing anybody's":               {denied: not, try: as[i].labelled("anybodys")},
			"changing what a claim owns":       {denied: not, try: as[i].labelled("claimed")},
			"deleting anybody's":               {denied: not, try: as[i].deleted("anybodys")},
			"changing a labelled one":          {try: as[i].labelled("labelled")},
			"deleting a labelled one":          {try: as[i].deleted("labelled")},
			"labelling an owned one again":     {try: as[i].labelled("owned")},
			"deleting an owned one":            {try: as[i].deleted("owned")},
			"taking the label off":             {denied: "its own label", try: as[i].patched("labelled", `{"metadata":{"labels":null}}`)},
			"leaving one without its label":    {denied: "its own label", try: as[i].patched("owned", `{"metadata":{"annotations":{"a":"b"}}}`)},
			"changing it while it has a label": {try: as[i].patched("labelled", `{"metadata":{"annotations":{"a":"b"}}}`)},
		} {
			expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a policy takes a moment to be known
				if err := there(ctx); err != nil {
					return err
				}
				err := c.try(ctx)
				switch {
				case c.denied == "" && err != nil:
					return fmt.Errorf("%s, %s: %w", w.kind, what, err)
				case c.denied != "" && (!apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.denied)):
					return fmt.Errorf("%s, %s is not denied: %w", w.kind, what, errors.Join(errors.New("it says"), err))
				}
				return nil
			})
		}
	}
}

func (w writes) patched(name, patch string) func(context.Context) error {
	return func(ctx context.Context) error {
		return w.patch(ctx, name, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	}
}

func (w writes) labelled(name string) func(context.Context) error {
	return w.patched(name, fmt.Sprintf(`{"metadata":{"labels":{%q:"x","a":"b"}}}`, v1alpha1.LabelCreatedBy))
}

func (w writes) deleted(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		return w.delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
}

// testServed makes a Service and a NetworkPolicy through the controllers, and lets
// them bring both back: what they do all day is not denied.
func testServed(t *testing.T, c *clients, ns string) {
	t.Helper()
	c.makeTemplate(t, ns, "web", func(s *v1alpha1.SandboxTemplateSpec) { s.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{} })
	c.makeSandbox(t, ns, "box", portsTemplate, func(s *v1alpha1.Sandbox) { s.Spec.Service = new(true) })
	c.awaitService(t, ns, "box")
	check := func(p *networkingv1.NetworkPolicy) error {
		if p.Labels[v1alpha1.LabelCreatedBy] != v1alpha1.CreatedByTemplate || len(p.Spec.PolicyTypes) != 2 {
			return errors.New("is not as it was made")
		}
		return nil
	}
	c.awaitPolicy(t, ns, "web-network-policy", check)
	for i, name := range []string{"box", "web-network-policy"} {
		if err := c.ownedWrites(ns)[i].patch(t.Context(), name, `{"metadata":{"labels":null}}`, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitService(t, ns, "box")
	c.awaitPolicy(t, ns, "web-network-policy", check)
	c.patchSandbox(t, ns, "box", `{"spec":{"service":false}}`)
	c.awaitNoService(t, ns, "box")
}
