// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// runtimeTemplate is a pod template that brings an agent-runtime by itself.
const runtimeTemplate = `{"spec":{"initContainers":[{"name":"runtime","image":"envd:1","restartPolicy":"Always"}],"containers":[{"name":"main","image":"busybox:1"}]}}`

// makeRuntimePool creates the set "pool" of sandboxes with an agent-runtime, and waits until
// it is full, which takes envd in them.
func (c *clients) makeRuntimePool(t testing.TB, ns string, replicas int32) {
	t.Helper()
	runtimetest.Start(t).Follow(t, c, ns, "")
	set := builders.Set("pool", replicas)
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(runtimeTemplate)}
	if _, err := c.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, c, ns, "pool", replicas)
}

// isRuntimePolicy reports what is wrong with the policy for agent-runtimes.
func isRuntimePolicy(p *networkingv1.NetworkPolicy) error {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	switch {
	case err != nil:
		return err
	case !selector.Matches(labels.Set{v1alpha1.LabelAgentRuntime: v1alpha1.AgentRuntimeTrue}) || selector.Matches(labels.Set{}):
		return errors.New("selects something else")
	case !equality.Semantic.DeepEqual(p.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) || len(p.Spec.Ingress) != 1 || len(p.Spec.Ingress[0].From) != 2:
		return errors.New("is about something else")
	}
	from := p.Spec.Ingress[0].From
	if servers, err := metav1.LabelSelectorAsSelector(from[0].PodSelector); err != nil || servers.Matches(labels.Set{"app.kubernetes.io/name": "sandlot-gateway"}) {
		return errors.New("lets in the gateway")
	}
	for _, from := range from {
		if from.PodSelector == nil || from.NamespaceSelector == nil || from.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != controlplane.Namespace {
			return errors.New("lets in others than pods of the installation")
		}
	}
	return nil
}

// TestRuntimePolicy: a policy is for pods with an agent-runtime while they are warm, no claim
// writes to it, and it goes after the last of them.
func TestRuntimePolicy(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	policies := c.kube.NetworkingV1().NetworkPolicies(ns)
	c.makeRuntimePool(t, ns, 2)
	made := c.awaitPolicy(t, ns, v1alpha1.AgentRuntimesPolicy, isRuntimePolicy)
	c.makeSandbox(t, ns, "plain", smallTemplate, func(*v1alpha1.Sandbox) {})
	c.awaitSandbox(t, ns, "plain", isReady)
	selector, err := metav1.LabelSelectorAsSelector(&made.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	selected, err := c.kube.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil || len(selected.Items) != 2 {
		t.Fatalf("%s selects %d pods, %v", selector, len(selected.Items), err)
	}
	for i := range selected.Items {
		name := selected.Items[i].Name
		if counts := writesOf(t, ns, name, []string{plane.AuditLog()}); counts[write{"create", "pods"}] != 1 || counts[write{"patch", "pods"}] != 0 {
			t.Errorf("pod %s has the label later than from its birth: %v", name, counts)
		}
	}

	claim := builders.Claim("mine", 1)
	claim.Spec.SkipInitRuntime = true
	c.claim(t, ns, claim)
	expect.FullPool(t, c, ns, "pool", 2)
	if now := c.awaitPolicy(t, ns, made.Name, isRuntimePolicy); now.ResourceVersion != made.ResourceVersion {
		t.Errorf("the policy was written from version %s to %s", made.ResourceVersion, now.ResourceVersion)
	}

	// What a user changes is brought back, and what a user deletes is made again.
	for _, drift := range []string{`{"spec":{"ingress":[{}]}}`, `{"spec":{"podSelector":{"matchLabels":{"a":"b"}}}}`} {
		if _, err := policies.Patch(t.Context(), made.Name, types.MergePatchType, []byte(drift), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitPolicy(t, ns, made.Name, isRuntimePolicy)
	}
	if err := policies.Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitPolicy(t, ns, made.Name, isRuntimePolicy)

	if err := c.SandboxSets(ns).Delete(t.Context(), "pool", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Sandboxes(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitNoPolicy(t, ns, made.Name)
}

// TestRuntimePolicyWithoutPods: a sandbox has the policy before it has a pod, and while it is
// paused. A pod of a user with the label keeps no policy.
func TestRuntimePolicyWithoutPods(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	own := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "own", Labels: map[string]string{v1alpha1.LabelAgentRuntime: v1alpha1.AgentRuntimeTrue}}}
	own.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox:1"}}
	if _, err := c.kube.CoreV1().Pods(ns).Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.makeTemplate(t, ns, "envd", func(s *v1alpha1.SandboxTemplateSpec) { s.Template.Raw = []byte(runtimeTemplate) })
	c.makeSandbox(t, ns, "paused", "", func(s *v1alpha1.Sandbox) {
		s.Spec.Template, s.Spec.TemplateRef, s.Spec.Paused = nil, &v1alpha1.SandboxTemplateRef{Name: "envd"}, true
	})
	c.awaitPolicy(t, ns, v1alpha1.AgentRuntimesPolicy, isRuntimePolicy)
	if counts, _ := writesIn(t, ns, plane.AuditLog()); counts[write{"create", "pods"}] != 1 {
		t.Errorf("pods were made: %v", counts)
	}
	if err := c.Sandboxes(ns).Delete(t.Context(), "paused", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitNoPolicy(t, ns, v1alpha1.AgentRuntimesPolicy)
}

// TestRefusedRuntimePolicy: who looks at the namespace sees why it has no policy.
func TestRefusedRuntimePolicy(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.refusePolicies(t, ns)
	c.makeRuntimePool(t, ns, 1)
	c.awaitEventOn(t, ns, "", corev1.EventTypeWarning, "NetworkPolicyFailed", "quota")
	if err := c.kube.CoreV1().ResourceQuotas(ns).Delete(t.Context(), "none", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitPolicy(t, ns, v1alpha1.AgentRuntimesPolicy, isRuntimePolicy)
}

// openingPolicy is a MutatingAdmissionPolicy that opens the NetworkPolicies of a namespace.
const openingPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s-open}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules:
    - {apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [networkpolicies]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "add", path: "/spec/ingress", value: [Object.spec.ingress{}]}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s-open}
spec: {policyName: %[1]s-open}
`

// TestRuntimePolicyThatIsChangedBack: where a policy of the cluster changes it whenever it is
// written, pods that come and go cost a few requests a minute, and an event reports it.
func TestRuntimePolicyThatIsChangedBack(t *testing.T) {
	t.Parallel()
	if !servesMutatingPolicies(t) {
		return
	}
	c, ns := admin(t), namespace(t)
	opening := fmt.Sprintf(openingPolicy, ns)
	kubectl(t, ns, opening, "apply", "-f", "-")
	t.Cleanup(func() {
		if _, _, err := plane.Kubectl(context.Background(), "", strings.NewReader(opening), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	policies := c.kube.NetworkingV1().NetworkPolicies(ns)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a policy takes a moment to be known
		try := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "try"}}
		got, err := policies.Create(ctx, try, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(got.Spec.Ingress) != 1 {
			err = fmt.Errorf("the policy changes nothing of %+v", got.Spec)
		}
		return err
	})
	begin := time.Now()
	c.makeRuntimePool(t, ns, 10)
	opened := c.awaitPolicy(t, ns, v1alpha1.AgentRuntimesPolicy, func(p *networkingv1.NetworkPolicy) error {
		if len(p.Spec.Ingress) != 1 || len(p.Spec.Ingress[0].From) > 0 {
			return errors.New("is not changed")
		}
		return nil
	})
	c.awaitEventOn(t, ns, opened.UID, corev1.EventTypeWarning, "NetworkPolicyChanged", "was not stored as it was written")
	for _, name := range c.unused(t, ns) {
		if err := c.Sandboxes(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	expect.FullPool(t, c, ns, "pool", 10)
	// After each request comes twice the pause before, up to a minute.
	took := time.Since(begin)
	most := 1 + bits.Len(uint(took.Seconds())) + int(took.Minutes())
	if counts := writesOf(t, ns, opened.Name, []string{plane.AuditLog()}); counts[write{"create", "networkpolicies"}] != 1 || counts[write{"patch", "networkpolicies"}] > most {
		t.Errorf("in %s the policy was written: %v", took, counts)
	}
}

// TestForeignRuntimePolicy: a policy of a user that has the name is left as it is, and an event
// on it reports that.
func TestForeignRuntimePolicy(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	policies := c.kube.NetworkingV1().NetworkPolicies(ns)
	foreign, err := policies.Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AgentRuntimesPolicy},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.makeRuntimePool(t, ns, 3)
	c.awaitEventOn(t, ns, foreign.UID, corev1.EventTypeWarning, "NetworkPolicyNameTaken", "left as it is")
	if got, err := policies.Get(t.Context(), foreign.Name, metav1.GetOptions{}); err != nil || got.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the user's policy became %+v, %v", got, err)
	}
	// It is looked at again when it is gone.
	if err := policies.Delete(t.Context(), foreign.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		policy, err := policies.Get(ctx, v1alpha1.AgentRuntimesPolicy, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := isRuntimePolicy(policy); err != nil {
			return fmt.Errorf("%w: %+v", err, policy.Spec)
		}
		return nil
	})
}
