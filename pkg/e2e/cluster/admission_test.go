// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestValidatingAdmissionPolicy lets a policy of the cluster, in CEL, judge claims
// and the sandboxes that are made for them. What it denies binds nothing.
func TestValidatingAdmissionPolicy(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	name := c.validatingPolicy(t, ns, []string{"sandboxclaims", "sandboxes"},
		admissionregistrationv1.Validation{
			Expression:        `request.kind.kind != 'SandboxClaim' || object.spec.replicas <= 4`,
			MessageExpression: `'at most 4 sandboxes a claim, not ' + string(object.spec.replicas)`,
			Reason:            new(metav1.StatusReasonForbidden),
		},
		admissionregistrationv1.Validation{
			Expression: `request.kind.kind != 'SandboxClaim' || object.metadata.annotations['sandlot.io/claimed-by'] == request.userInfo.username`,
			Message:    "a policy sees another user than the claim",
		},
		admissionregistrationv1.Validation{
			Expression: `request.kind.kind != 'Sandbox' || !has(object.metadata.labels) || !('team' in object.metadata.labels)`,
			Message:    "no sandboxes are made for a team",
			Reason:     new(metav1.StatusReasonForbidden),
		},
	)
	c.awaitDenied(t, ns, builders.Claim("dry", 5))

	_, err := c.SandboxClaims(ns).Create(t.Context(), builders.Claim("big", 5), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "at most 4 sandboxes a claim, not 5") {
		t.Errorf("got %v, want it to be denied", err)
	}
	big := strings.Replace(builders.ClaimYAML, "spec:", "spec:\n  replicas: 5", 1)
	if out, err := tryKubectl(t, "", ns, big, "apply", "--server-side", "-f", "-"); err == nil || !strings.Contains(err.Error(), "at most 4 sandboxes a claim, not 5") {
		t.Errorf("apply: got %v, %s", err, out)
	}
	// One of these would have to be made, with a label that the policy denies.
	team := builders.Claim("team", 3)
	team.Spec.CreateOnNoStock = new(true)
	team.Spec.Labels = map[string]string{"team": "a"}
	if _, err = c.SandboxClaims(ns).Create(t.Context(), team, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no sandboxes are made for a team") {
		t.Errorf("got %v, want it to be denied", err)
	}
	c.checkBound(t, ns, 0)
	team.Spec.Replicas = new(int32(2)) // all of which are warm
	c.claim(t, ns, team)
	c.checkBound(t, ns, 2)
}

// TestTypeChecking lets kube-controller-manager check the types of a policy, by
// the schema that it has of our kinds from kube-apiserver.
func TestTypeChecking(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	name := c.validatingPolicy(t, ns, []string{"sandboxclaims"},
		admissionregistrationv1.Validation{Expression: `object.spec.replicas < 1000 && object.status.sandboxes.all(s, s.name != '')`},
		admissionregistrationv1.Validation{Expression: `object.spec.replicaz < 1000`},
	)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		policy, err := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if policy.Status.ObservedGeneration != policy.Generation || policy.Status.TypeChecking == nil {
			return fmt.Errorf("not checked yet: %+v", policy.Status)
		}
		warnings := policy.Status.TypeChecking.ExpressionWarnings
		if len(warnings) != 1 || warnings[0].FieldRef != "spec.validations[1].expression" || !strings.Contains(warnings[0].Warning, "undefined field 'replicaz'") {
			return fmt.Errorf("warnings: %+v", warnings)
		}
		return nil
	})
}

// TestMutatingAdmissionPolicy lets a policy of the cluster add to claims, as
// server-side apply would, for which it needs the schema of our kinds.
func TestMutatingAdmissionPolicy(t *testing.T) {
	t.Parallel()
	if !servesMutatingPolicies(t) {
		return
	}
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	policies := c.kube.AdmissionregistrationV1().MutatingAdmissionPolicies()
	policy, err := policies.Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   matchCreate(ns, "sandboxclaims"),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{
					metadata: Object.metadata{annotations: {"sandlot.io/claimed-by": "policy"}},
					spec: Object.spec{labels: {"policy": "yes"}}
				}`},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, policies.Delete, policy.Name)
	bindings := c.kube.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	if _, err := bindings.Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, bindings.Delete, policy.Name)
	c.eachServer(t, ns, builders.Claim("dry", 1), func(claim *v1alpha1.SandboxClaim, err error) error {
		if err != nil || claim.Spec.Labels["policy"] != "yes" {
			return fmt.Errorf("the policy is not heeded: %v, %w", claim, err)
		}
		return nil
	})

	user := uniqueUser(t, "ann")
	grant(t, ns, "sandlot-claimer", user)
	who := as(t, user)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := who.SandboxClaims(ns).List(ctx, metav1.ListOptions{})
		return err
	})
	claim := who.claim(t, ns, builders.Claim("mine", 1))
	sandbox, err := c.Sandboxes(ns).Get(t.Context(), claim.Status.Sandboxes[0].Name, metav1.GetOptions{})
	if err != nil || sandbox.Labels["policy"] != "yes" {
		t.Errorf("the bound sandbox has labels %v, %v", sandbox.Labels, err)
	}
	if got := claim.Annotations[v1alpha1.AnnotationClaimedBy]; got != user {
		t.Errorf("a policy made it claimed by %q", got)
	}
}

// validatingPolicy creates a policy on what is created in a namespace, bound, and
// returns its name.
func (c *clients) validatingPolicy(t testing.TB, ns string, resources []string, validations ...admissionregistrationv1.Validation) string {
	t.Helper()
	policies := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy, err := policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: matchCreate(ns, resources...),
			Validations:      validations,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, policies.Delete, policy.Name)
	bindings := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err = bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        policy.Name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, bindings.Delete, policy.Name)
	return policy.Name
}

func matchCreate(ns string, resources ...string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"v1alpha1"}, Resources: resources,
			},
		}}},
	}
}

// awaitDenied waits until every server refuses a dry run of a claim.
func (c *clients) awaitDenied(t testing.TB, ns string, claim *v1alpha1.SandboxClaim) {
	t.Helper()
	c.eachServer(t, ns, claim, func(_ *v1alpha1.SandboxClaim, err error) error {
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("not denied: %w", err)
		}
		return nil
	})
}

// eachServer waits until every server answers to a dry run of a claim as check
// says.
func (c *clients) eachServer(t testing.TB, ns string, claim *v1alpha1.SandboxClaim, check func(*v1alpha1.SandboxClaim, error) error) {
	t.Helper()
	for i := range sandlot.APIServers() {
		server := c.direct(t, i)
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			err := check(server.SandboxClaims(ns).Create(ctx, claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))
			if err != nil {
				return fmt.Errorf("server %d: %w", i, err)
			}
			return nil
		})
	}
}

// cleanUp deletes an object of the cluster after the test.
func cleanUp(t testing.TB, remove func(context.Context, string, metav1.DeleteOptions) error, name string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), expect.Patience)
		defer cancel()
		if err := remove(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting %s: %v", name, err)
		}
	})
}
