// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// makeTemplate creates a SandboxTemplate.
func (c *clients) makeTemplate(t testing.TB, ns, name string, change func(*v1alpha1.SandboxTemplateSpec)) *v1alpha1.SandboxTemplate {
	t.Helper()
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	template.Spec.Template = &runtime.RawExtension{Raw: []byte(smallTemplate)}
	change(&template.Spec)
	made, err := c.SandboxTemplates(ns).Create(t.Context(), template, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating a template: %v", err)
	}
	return made
}

// patchTemplate changes a SandboxTemplate by a JSON merge patch.
func (c *clients) patchTemplate(t testing.TB, template *v1alpha1.SandboxTemplate, patch string) {
	t.Helper()
	_, err := c.SandboxTemplates(template.Namespace).Patch(t.Context(), template.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("patching template %s with %s: %v", template.Name, patch, err)
	}
}

// makePool creates the set "pool", which refers to a template, and waits until it is
// full.
func (c *clients) makePool(t testing.TB, ns, template string, replicas int32) {
	t.Helper()
	set := builders.Set("pool", replicas)
	set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: template}
	if _, err := c.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, c, ns, "pool", replicas)
}

// awaitPolicy waits until a NetworkPolicy is as it should be, and returns it.
func (c *clients) awaitPolicy(t testing.TB, ns, name string, check func(*networkingv1.NetworkPolicy) error) *networkingv1.NetworkPolicy {
	t.Helper()
	var policy *networkingv1.NetworkPolicy
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		var err error
		if policy, err = c.kube.NetworkingV1().NetworkPolicies(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if err = check(policy); err != nil {
			return fmt.Errorf("%w: %+v", err, policy.Spec)
		}
		return nil
	})
	return policy
}

func (c *clients) awaitNoPolicy(t testing.TB, ns, name string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.kube.NetworkingV1().NetworkPolicies(ns).Get(ctx, name, metav1.GetOptions{})
		return gone(err)
	})
}

// TestNetworkPolicyOfATemplate follows the policy of a template and the pods that it
// selects.
func TestNetworkPolicyOfATemplate(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	policies := c.kube.NetworkingV1().NetworkPolicies(ns)
	web := c.makeTemplate(t, ns, "web", func(s *v1alpha1.SandboxTemplateSpec) { s.NetworkPolicyManagement = v1alpha1.NetworkPolicyManaged })
	c.makePool(t, ns, "web", 2)
	made := c.awaitPolicy(t, ns, "web-network-policy", func(p *networkingv1.NetworkPolicy) error {
		if got := p.Spec.PodSelector.MatchLabels; len(got) != 1 || got[v1alpha1.LabelSandboxTemplate] != "web" || len(p.Spec.PolicyTypes) != 2 {
			return errors.New("selects something else")
		}
		if from := p.Spec.Ingress[0].From[0].NamespaceSelector; from == nil || from.MatchLabels[corev1.LabelMetadataName] != controlplane.Namespace {
			return errors.New("is not open to the installation")
		}
		if to := p.Spec.Egress[0].To; len(to) != 2 || to[0].IPBlock.CIDR != "0.0.0.0/0" || len(to[0].IPBlock.Except) != 11 {
			return errors.New("does not let out to the public")
		}
		return nil
	})

	// Warm pods have the label from birth, and do not ask the name servers of a cluster
	// that they cannot reach.
	warm := c.unused(t, ns)
	if len(warm) != 2 {
		t.Fatalf("unused are %v", warm)
	}
	for _, name := range warm {
		pod := c.pod(t, ns, name)
		if pod.Labels[v1alpha1.LabelSandboxTemplate] != "web" || pod.Spec.DNSPolicy != corev1.DNSNone || len(pod.Spec.DNSConfig.Nameservers) != 2 {
			t.Errorf("pod %s: labels %v, dns %s %v", name, pod.Labels, pod.Spec.DNSPolicy, pod.Spec.DNSConfig)
		}
		if counts := writesOf(t, ns, name, []string{plane.AuditLog()}); counts[write{"create", "pods"}] != 1 || counts[write{"patch", "pods"}] != 0 {
			t.Errorf("pod %s was written: %v", name, counts)
		}
	}

	// A claim writes nothing to the policy, and its pod stays selected.
	claimed := c.claim(t, ns, builders.Claim("mine", 1)).Status.Sandboxes[0].Name
	expect.FullPool(t, c, ns, "pool", 2)
	if pod := c.pod(t, ns, claimed); pod.Labels[v1alpha1.LabelSandboxTemplate] != "web" {
		t.Errorf("pod %s: labels %v", claimed, pod.Labels)
	}
	if now := c.awaitPolicy(t, ns, made.Name, func(*networkingv1.NetworkPolicy) error { return nil }); now.ResourceVersion != made.ResourceVersion {
		t.Errorf("the policy was written from version %s to %s", made.ResourceVersion, now.ResourceVersion)
	}

	// What a user changes is brought back, and what a user deletes is made again.
	asMade := func(p *networkingv1.NetworkPolicy) error {
		if !equality.Semantic.DeepEqual(p.Spec, made.Spec) || p.Labels[v1alpha1.LabelCreatedBy] != v1alpha1.CreatedByTemplate || !metav1.IsControlledBy(p, web) {
			return errors.New("is not as it was made")
		}
		return nil
	}
	for _, drift := range []string{
		`{"spec":{"egress":[{}]}}`,
		`{"metadata":{"labels":null}}`, // by which it is watched
		`{"metadata":{"labels":null},"spec":{"ingress":[{}]}}`,
		`{"metadata":{"ownerReferences":null},"spec":{"egress":[{}]}}`,
	} {
		if _, err := policies.Patch(t.Context(), made.Name, types.MergePatchType, []byte(drift), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitPolicy(t, ns, made.Name, asMade)
	}
	if err := policies.Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitPolicy(t, ns, made.Name, asMade)

	// Rules of its own take the place of both defaults, the name servers included.
	c.patchTemplate(t, web, `{"spec":{"networkPolicy":{"egress":[{"ports":[{"port":443}]}]}}}`)
	c.awaitPolicy(t, ns, made.Name, func(p *networkingv1.NetworkPolicy) error {
		if len(p.Spec.Ingress) != 0 || len(p.Spec.Egress) != 1 || len(p.Spec.Egress[0].To) != 0 || p.Spec.Egress[0].Ports[0].Port.IntVal != 443 {
			return errors.New("has other rules")
		}
		return nil
	})
	expect.Eventually(t.Context(), t, func(context.Context) error {
		warm := c.unused(t, ns)
		if len(warm) != 2 {
			return fmt.Errorf("unused are %v", warm)
		}
		for _, name := range warm {
			pod, err := c.kube.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if pod.Spec.DNSPolicy != corev1.DNSClusterFirst {
				return fmt.Errorf("pod %s has dnsPolicy %s", name, pod.Spec.DNSPolicy)
			}
		}
		return nil
	})

	// Unmanaged is none, also where the policy has lost the labels by which it is
	// watched, or its owner. Managed again, the policy goes with its template and what
	// that is for.
	for _, lost := range []string{`{"metadata":{"labels":null}}`, `{"metadata":{"ownerReferences":null}}`} {
		if _, err := policies.Patch(t.Context(), made.Name, types.MergePatchType, []byte(lost), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c.patchTemplate(t, web, `{"spec":{"networkPolicyManagement":"Unmanaged"}}`)
		c.awaitNoPolicy(t, ns, made.Name)
		c.patchTemplate(t, web, `{"spec":{"networkPolicyManagement":null}}`)
		c.awaitPolicy(t, ns, made.Name, func(*networkingv1.NetworkPolicy) error { return nil })
	}
	c.patchTemplate(t, web, `{"spec":{"networkPolicyManagement":"Unmanaged"}}`)
	c.awaitNoPolicy(t, ns, made.Name)
	c.patchTemplate(t, web, `{"spec":{"networkPolicyManagement":null}}`)
	c.awaitPolicy(t, ns, made.Name, func(*networkingv1.NetworkPolicy) error { return nil })
	if err := c.SandboxTemplates(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(c.unused(t, ns), claimed) {
		c.awaitPolicy(t, ns, made.Name, func(*networkingv1.NetworkPolicy) error { return nil })
		if err := c.SandboxSets(ns).Delete(t.Context(), "pool", metav1.DeleteOptions{}); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if err := c.Sandboxes(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	c.awaitNoPolicy(t, ns, made.Name)
	// Of all the templates here, those that hold revisions included, one had a policy.
	list, err := policies.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("policies %v, %v", list.Items, err)
	}
}

// TestPolicyOutlivesItsTemplate: a template is deleted, however that is done, and what
// was made from it stays behind its policy, which a template of the name takes back.
func TestPolicyOutlivesItsTemplate(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	const name = "web-network-policy"
	locked := func(s *v1alpha1.SandboxTemplateSpec) { s.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{} }
	template := c.makeTemplate(t, ns, "web", locked)
	by := func(template *v1alpha1.SandboxTemplate) func(p *networkingv1.NetworkPolicy) error {
		return func(p *networkingv1.NetworkPolicy) error {
			if by := metav1.GetControllerOf(p); (by == nil) != (template == nil) || by != nil && by.UID != template.UID || len(p.OwnerReferences) == 0 {
				return fmt.Errorf("is owned by %v", p.OwnerReferences)
			}
			return nil
		}
	}
	made := c.awaitPolicy(t, ns, name, by(template))
	c.makePool(t, ns, "web", 1)
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground} {
		if err := c.SandboxTemplates(ns).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
			t.Fatal(err)
		}
		// The garbage collector has been there.
		if left := c.awaitPolicy(t, ns, name, by(nil)); left.UID != made.UID || left.DeletionTimestamp != nil {
			t.Fatalf("%s: the policy was made anew, or ends: %+v", how, left.ObjectMeta)
		}
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			_, err := c.SandboxTemplates(ns).Get(ctx, "web", metav1.GetOptions{})
			return gone(err)
		})
		template = c.makeTemplate(t, ns, "web", locked)
		if taken := c.awaitPolicy(t, ns, name, by(template)); taken.UID != made.UID || len(taken.OwnerReferences) != 2 {
			t.Fatalf("%s: not taken back: %+v", how, taken.ObjectMeta)
		}
	}
	// With nothing left that it is for, it goes with its template.
	box := c.unused(t, ns)[0]
	if err := c.SandboxTemplates(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	claimed := c.claim(t, ns, builders.Claim("mine", 1)).Status.Sandboxes[0].Name
	if err := c.SandboxSets(ns).Delete(t.Context(), "pool", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		pods, err := c.kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err == nil && (len(pods.Items) != 1 || pods.Items[0].Name != claimed) {
			err = fmt.Errorf("there are %d pods, want that of %s alone (%s was unused)", len(pods.Items), claimed, box)
		}
		return err
	})
	if left := c.awaitPolicy(t, ns, name, by(nil)); left.UID != made.UID {
		t.Errorf("the policy was made anew: %+v", left.ObjectMeta)
	}
	if err := c.Sandboxes(ns).Delete(t.Context(), claimed, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitNoPolicy(t, ns, name)
}

// TestPolicyOfAnotherTemplate points a set at a template that says the same of pods,
// and has a policy: nothing of the pool stays outside of it.
func TestPolicyOfAnotherTemplate(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeTemplate(t, ns, "open", func(*v1alpha1.SandboxTemplateSpec) {})
	c.makeTemplate(t, ns, "locked", func(s *v1alpha1.SandboxTemplateSpec) { s.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{} })
	policy := c.awaitPolicy(t, ns, "locked-network-policy", func(*networkingv1.NetworkPolicy) error { return nil })
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	c.makePool(t, ns, "open", 3)
	before := c.unused(t, ns)
	_, err = c.SandboxSets(ns).Patch(t.Context(), "pool", types.MergePatchType, []byte(`{"spec":{"templateRef":{"name":"locked"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		pods, err := c.kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		selected, err := c.kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return err
		}
		if len(pods.Items) != 3 || len(selected.Items) != 3 {
			return fmt.Errorf("%s selects %d of %d pods", selector, len(selected.Items), len(pods.Items))
		}
		return nil
	})
	expect.FullPool(t, c, ns, "pool", 3)
	now := c.unused(t, ns)
	for _, name := range now {
		if slices.Contains(before, name) {
			t.Errorf("%s was there before, and its label is immutable", name)
		}
	}
	if len(now) != 3 {
		t.Errorf("the pool is %v", now)
	}
	// A claim finds nothing of the old one, and what it gets stays selected.
	claimed := c.claim(t, ns, builders.Claim("mine", 1)).Status.Sandboxes[0].Name
	if pod := c.pod(t, ns, claimed); pod.Labels[v1alpha1.LabelSandboxTemplate] != "locked" {
		t.Errorf("pod %s: labels %v", claimed, pod.Labels)
	}
}

// TestForeignNetworkPolicy has a policy of a user where a template's own would
// be.
func TestForeignNetworkPolicy(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	policies := c.kube.NetworkingV1().NetworkPolicies(ns)
	foreign, err := policies.Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "web-network-policy", Labels: map[string]string{v1alpha1.LabelCreatedBy: v1alpha1.CreatedByTemplate}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	template := c.makeTemplate(t, ns, "web", func(s *v1alpha1.SandboxTemplateSpec) { s.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{} })
	c.awaitEventOn(t, ns, template.UID, corev1.EventTypeWarning, "NetworkPolicyNameTaken", "web-network-policy")
	c.patchTemplate(t, template, `{"spec":{"networkPolicy":null}}`)
	other := c.makeTemplate(t, ns, "other", func(s *v1alpha1.SandboxTemplateSpec) { s.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{} })
	c.awaitPolicy(t, ns, "other-network-policy", func(p *networkingv1.NetworkPolicy) error { // later than the removal that must not be
		if !metav1.IsControlledBy(p, other) {
			return errors.New("is not the template's")
		}
		return nil
	})
	if got, err := policies.Get(t.Context(), foreign.Name, metav1.GetOptions{}); err != nil || got.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the user's policy became %+v, %v", got, err)
	}
}

// refusePolicies lets a namespace take no NetworkPolicies, until the ResourceQuota "none" is
// deleted.
func (c *clients) refusePolicies(t testing.TB, ns string) {
	t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}}
	quota.Spec.Hard = corev1.ResourceList{"count/networkpolicies.networking.k8s.io": quantity("0")}
	if _, err := c.kube.CoreV1().ResourceQuotas(ns).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.kube.NetworkingV1().NetworkPolicies(ns).Create(ctx,
			&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "try"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("a policy is answered with %w", errors.Join(err, errors.New("not refused")))
		}
		return nil
	})
}

// TestRefusedNetworkPolicy has a cluster that takes no policies for a while.
func TestRefusedNetworkPolicy(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.refusePolicies(t, ns)
	template := c.makeTemplate(t, ns, "web", func(s *v1alpha1.SandboxTemplateSpec) { s.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{} })
	c.awaitEventOn(t, ns, template.UID, corev1.EventTypeWarning, "NetworkPolicyFailed", "quota")
	if err := c.kube.CoreV1().ResourceQuotas(ns).Delete(t.Context(), "none", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitPolicy(t, ns, "web-network-policy", func(*networkingv1.NetworkPolicy) error { return nil })
}

// TestPolicySelectsSandboxesOfUsers: a sandbox that a user makes from a template is
// selected like those of a pool, whatever the template's pods say.
func TestPolicySelectsSandboxesOfUsers(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	name := strings.Repeat("long-", 14) + "name" // 74 characters
	c.makeTemplate(t, ns, name, func(s *v1alpha1.SandboxTemplateSpec) {
		s.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{}
		s.Template.Raw = []byte(`{"metadata":{"labels":{"agents.kruise.io/sandbox-template":"open"}},"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`)
	})
	c.makeSandbox(t, ns, "box", "", func(s *v1alpha1.Sandbox) {
		s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: name}
	})
	c.awaitSandbox(t, ns, "box", isReady)
	policy := c.awaitPolicy(t, ns, v1alpha1.NetworkPolicyName(name), func(*networkingv1.NetworkPolicy) error { return nil })
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	pods, err := c.kube.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil || len(pods.Items) != 1 || pods.Items[0].Name != "box" {
		t.Errorf("%s selects %d pods, %v", selector, len(pods.Items), err)
	}
	// A sandbox cannot opt out of it.
	for _, patch := range []string{
		`{"metadata":{"labels":{"agents.kruise.io/sandbox-template":"open"}}}`,
	} {
		_, err := c.Sandboxes(ns).Patch(t.Context(), "box", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "is immutable") {
			t.Errorf("%s: %v", patch, err)
		}
	}
	unlabelled := c.patchSandbox(t, ns, "box", `{"metadata":{"labels":null}}`)
	if unlabelled.Labels[v1alpha1.LabelSandboxTemplate] != v1alpha1.TemplateLabel(name) {
		t.Errorf("labels %v", unlabelled.Labels)
	}
}
