// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	agentsv1alpha1 "github.com/sandlot-io/sandlot/apis/agents/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// anotherPod is the template of a pod that requires the right to create pods.
const anotherPod = `{"spec":{"serviceAccountName":"deployer","hostNetwork":true,` +
	`"containers":[{"name":"main","image":"another:1","securityContext":{"privileged":true},"envFrom":[{"secretRef":{"name":"payments"}}]}],` +
	`"volumes":[{"name":"host","hostPath":{"path":"/"}}]}}`

// podChanges are the ways to give a sandbox another pod template, by group, version and verb.
func (c *clients) podChanges(t testing.TB, ns, name, template string, dryRun bool) map[string]func(ctx context.Context) error {
	t.Helper()
	var dry []string
	if dryRun {
		dry = []string{metav1.DryRunAll}
	}
	ways := map[string]func(ctx context.Context) error{}
	for resource, field := range map[schema.GroupVersionResource]string{
		v1alpha1.SchemeGroupVersion.WithResource("sandboxes"):       "template",
		agentsv1alpha1.SchemeGroupVersion.WithResource("sandboxes"): "podTemplate",
		agentSandboxes: "podTemplate",
	} {
		client, version := c.agent(t, resource, ns), resource.GroupVersion().String()
		merge := fmt.Sprintf(`{"spec":{%q:%s}}`, field, template)
		way := func(verb string, do func(ctx context.Context) error) { ways[verb+" in "+version] = do }
		way("merge patch", func(ctx context.Context) error {
			_, err := client.Patch(ctx, name, types.MergePatchType, []byte(merge), metav1.PatchOptions{DryRun: dry})
			return err
		})
		way("JSON patch", func(ctx context.Context) error {
			patch := fmt.Appendf(nil, `[{"op":"add","path":"/spec/%s","value":%s}]`, field, template)
			_, err := client.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{DryRun: dry})
			return err
		})
		way("apply", func(ctx context.Context) error {
			object := fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Sandbox","metadata":{"name":%q},"spec":{%q:%s}}`, version, name, field, template)
			_, err := client.Patch(ctx, name, types.ApplyPatchType, object, metav1.PatchOptions{FieldManager: "another", Force: new(true), DryRun: dry})
			return err
		})
		way("PUT", func(ctx context.Context) error {
			var changed unstructured.Unstructured
			if err := changed.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Sandbox","spec":%s}`, version, template)); err != nil {
				return err
			}
			return retry.RetryOnConflict(retry.DefaultRetry, func() error { // its controller writes as well
				sandbox, err := client.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if err := unstructured.SetNestedField(sandbox.Object, changed.Object["spec"], "spec", field); err != nil {
					return err
				}
				_, err = client.Update(ctx, sandbox, metav1.UpdateOptions{DryRun: dry})
				return err
			})
		})
	}
	return ways
}

// TestUpdateCannotChangePodTemplate: a user who may read and change sandboxes, and create none, suspends
// and resumes them, and chooses the pod of none: not of one that another user has claimed, not
// of a free one and not of a pool's, in no group and with no verb. A claimer who may create no
// sandboxes does not for their own, and who may create some does not for that of others.
func TestUpdateCannotChangePodTemplate(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 2)
	free := newAgent(agentSandboxes, "Sandbox", "free", map[string]any{
		"podTemplate": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "busybox:1"}}}},
	})
	c.makeAgent(t, agentSandboxes, ns, free)
	c.awaitAgent(t, agentSandboxes, ns, "free", isAgentReady)

	groups := []string{v1alpha1.GroupName, v1alpha1.AgentsGroup, v1alpha1.ExtensionsGroup}
	may := func(user, resource string, verbs ...string) {
		uniqueRole(t, ns, user, rbacv1.PolicyRule{APIGroups: groups, Resources: []string{resource}, Verbs: verbs})
	}
	claimer, patcher, maker := uniqueUser(t, "claimer"), uniqueUser(t, "patcher"), uniqueUser(t, "maker")
	may(claimer, "sandboxclaims", "create", "get")
	may(claimer, "sandboxes", "get", "list", "update", "patch")
	may(patcher, "sandboxes", "get", "list", "update", "patch")
	may(maker, "sandboxes", "get", "list", "update", "patch", "create")
	var claim *unstructured.Unstructured
	expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) { // roles take a moment to be known
		claim, err = as(t, claimer).agent(t, agentClaims, ns).Create(ctx, newAgentClaim("claim"), metav1.CreateOptions{})
		return err
	})
	bound := text(claim, "status", "sandbox", "name")
	if bound == "" {
		t.Fatalf("the claim has no sandbox: %v", claim.Object)
	}
	c.awaitAgentPool(t, ns, 2)
	pooled := c.unused(t, ns)[0]
	before := c.pod(t, ns, bound)

	for _, tc := range []struct{ user, sandbox, verb string }{
		{patcher, bound, "create"}, {patcher, "free", "create"}, {patcher, pooled, ""},
		{claimer, bound, "create"},
		{maker, bound, "bind"}, {maker, pooled, ""},
	} {
		for what, change := range as(t, tc.user).podChanges(t, ns, tc.sandbox, anotherPod, false) {
			says := fmt.Sprintf("the verb %q on ", tc.verb)
			refused := func(err error) bool {
				if tc.verb == "" { // the template is the pool's, for all users
					return apierrors.IsInvalid(err)
				}
				return apierrors.IsForbidden(err) && strings.Contains(err.Error(), says)
			}
			expect.Eventually(t.Context(), t, func(ctx context.Context) error {
				err := change(ctx)
				if err == nil {
					t.Fatalf("%s of %s by %s is taken", what, tc.sandbox, tc.user)
				}
				if !refused(err) { // a role that is not known yet
					return fmt.Errorf("%s of %s by %s: %w", what, tc.sandbox, tc.user, err)
				}
				return nil
			})
		}
	}

	// To suspend and to resume is theirs, and the pod that comes back is as before.
	suspender := as(t, patcher)
	suspender.patchAgent(t, agentSandboxes, ns, bound, `{"spec":{"operatingMode":"Suspended"}}`)
	c.awaitNoPod(t, ns, bound)
	suspender.patchAgent(t, agentSandboxes, ns, bound, `{"spec":{"operatingMode":"Running"}}`)
	c.awaitAgent(t, agentSandboxes, ns, bound, isAgentReady)
	after := c.pod(t, ns, bound)
	if after.UID == before.UID || after.Spec.ServiceAccountName == "deployer" || after.Spec.HostNetwork || after.Spec.Containers[0].Image != before.Spec.Containers[0].Image {
		t.Errorf("the pod that came back is %+v", after.Spec)
	}

	// With the right to create sandboxes a claimer changes their own. A policy on new sandboxes
	// sees that pod too.
	may(claimer, "sandboxes", "create")
	policy := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s-new-sandboxes}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules:
    - {apiGroups: [agents.kruise.io], apiVersions: [v1alpha1], operations: [CREATE], resources: [sandboxes]}
  validations:
  - expression: "!has(object.spec.template.spec.hostNetwork) || !object.spec.template.spec.hostNetwork"
    message: no sandbox has the network of its node
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s-new-sandboxes}
spec: {policyName: %[1]s-new-sandboxes, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s-match-exact}
spec:
  failurePolicy: Fail
  matchConstraints:
    matchPolicy: Exact
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules:
    - {apiGroups: [agents.x-k8s.io], apiVersions: [v1beta1], operations: [CREATE], resources: [sandboxes]}
  validations:
  - expression: "!has(object.spec.podTemplate.spec.hostPID) || !object.spec.podTemplate.spec.hostPID"
    message: no sandbox sees the processes of its node
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s-match-exact}
spec: {policyName: %[1]s-match-exact, validationActions: [Deny]}
`, ns)
	kubectl(t, ns, policy, "apply", "-f", "-")
	t.Cleanup(func() {
		if _, _, err := plane.Kubectl(context.Background(), "", strings.NewReader(policy), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	for user, sandbox := range map[string]string{claimer: bound, maker: "free"} {
		for what, change := range as(t, user).podChanges(t, ns, sandbox, anotherPod, true) {
			expect.Eventually(t.Context(), t, func(ctx context.Context) error { // role and policy take a moment to be known
				if err := change(ctx); err == nil || !strings.Contains(err.Error(), "no sandbox has the network of its node") {
					return fmt.Errorf("%s of %s by %s, which a policy denies: %w", what, sandbox, user, asError(err))
				}
				return nil
			})
		}
		const seesProcesses = `{"spec":{"hostPID":true,"containers":[{"name":"main","image":"busybox:1"}]}}`
		for what, change := range as(t, user).podChanges(t, ns, sandbox, seesProcesses, true) {
			expect.Eventually(t.Context(), t, func(ctx context.Context) error {
				exact := strings.HasSuffix(what, agentSandboxes.GroupVersion().String())
				if err := change(ctx); (err != nil && strings.Contains(err.Error(), "no sandbox sees the processes of its node")) != exact {
					return fmt.Errorf("%s of %s by %s, which a policy with matchPolicy Exact denies only there: %w", what, sandbox, user, asError(err))
				}
				return nil
			})
		}
		const harmless = `{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}`
		for what, change := range as(t, user).podChanges(t, ns, sandbox, harmless, true) {
			if err := change(t.Context()); err != nil {
				t.Errorf("%s of %s by %s: %v", what, sandbox, user, err)
			}
		}
	}
}

// TestMutatingPolicyNeedsNoRights checks that a user who may only change sandboxes can still change
// those of others when a newer policy of the cluster changes their pod templates.
func TestMutatingPolicyNeedsNoRights(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 1)
	bound := text(c.agentBound(t, ns, newAgentClaim("claim")), "status", "sandbox", "name")
	policy := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s-inject}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules:
    - {apiGroups: [agents.kruise.io], apiVersions: [v1alpha1], operations: [CREATE, UPDATE], resources: [sandboxes]}
  matchConditions:
  - {name: has-a-template, expression: has(object.spec.template)}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >
        (has(object.spec.template.metadata) ? [] : [JSONPatch{op: "add", path: "/spec/template/metadata", value: Object.spec.template.metadata{}}]) +
        [JSONPatch{op: "add", path: "/spec/template/metadata/annotations", value: {"sidecar.istio.io/inject": "true"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s-inject}
spec: {policyName: %[1]s-inject}
`, ns)
	kubectl(t, ns, policy, "apply", "-f", "-")
	t.Cleanup(func() {
		if _, _, err := plane.Kubectl(context.Background(), "", strings.NewReader(policy), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	injected := func(sandbox *unstructured.Unstructured) bool {
		return text(sandbox, "spec", "template", "metadata", "annotations", "sidecar.istio.io/inject") == "true"
	}
	ours := v1alpha1.SchemeGroupVersion.WithResource("sandboxes")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a policy takes a moment to be known
		sandbox, err := c.agent(t, ours, ns).Patch(ctx, bound, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !injected(sandbox) {
			err = fmt.Errorf("the policy changes nothing of %v", sandbox.Object["spec"])
		}
		return err
	})
	patcher := uniqueUser(t, "patcher")
	uniqueRole(t, ns, patcher, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName, v1alpha1.AgentsGroup}, Resources: []string{"sandboxes"}, Verbs: []string{"get", "patch"}})
	for resource, patch := range map[schema.GroupVersionResource]string{
		agentSandboxes: `{"spec":{"operatingMode":"Suspended"}}`, ours: `{"spec":{"paused":true}}`,
	} {
		expect.Eventually(t.Context(), t, func(ctx context.Context) error { // so does a role
			_, err := as(t, patcher).agent(t, resource, ns).Patch(ctx, bound, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
	}
	// So do the controllers.
	c.patchAgent(t, agentSandboxes, ns, bound, `{"spec":{"operatingMode":"Suspended"}}`)
	c.awaitNoPod(t, ns, bound)
}

// TestUpdateOfClaimCannotChangePods: a user who may read and change claims ends those of others and
// labels them, and chooses in no group what they are still to get. Their claimers do.
func TestUpdateOfClaimCannotChangePods(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	groups := []string{v1alpha1.GroupName, v1alpha1.ExtensionsGroup}
	claimer, patcher := uniqueUser(t, "claimer"), uniqueUser(t, "patcher")
	uniqueRole(t, ns, claimer, rbacv1.PolicyRule{APIGroups: groups, Resources: []string{"sandboxclaims"}, Verbs: []string{"create", "get", "patch"}})
	uniqueRole(t, ns, patcher, rbacv1.PolicyRule{APIGroups: groups, Resources: []string{"sandboxclaims"}, Verbs: []string{"get", "patch"}})
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // roles take a moment to be known
		_, err := as(t, claimer).agent(t, agentClaims, ns).Create(ctx, newAgentClaim("claim"), metav1.CreateOptions{})
		return err
	})
	ours := v1alpha1.SchemeGroupVersion.WithResource("sandboxclaims")
	for _, tc := range []struct {
		resource schema.GroupVersionResource
		patch    string
		free     bool
	}{
		{ours, `{"spec":{"inplaceUpdate":{"image":"another:1"}}}`, false},
		{ours, `{"spec":{"warmPoolRef":{"name":"another"}}}`, false},
		{agentClaims, `{"spec":{"warmPoolRef":{"name":"another"}}}`, false},
		{agentClaims, `{"spec":{"env":[{"name":"LD_PRELOAD","value":"/tmp/x.so"}]}}`, false},
		{ours, `{"metadata":{"labels":{"a":"b"}}}`, true},
		{ours, `{"spec":{"claimTimeout":"1h"}}`, true},
	} {
		patch := func(ctx context.Context, user string) error {
			_, err := as(t, user).agent(t, tc.resource, ns).Patch(ctx, "claim", types.MergePatchType, []byte(tc.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
		if err := patch(t.Context(), claimer); err != nil {
			t.Errorf("%s by the claimer: %v", tc.patch, err)
		}
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			err := patch(ctx, patcher)
			refused := apierrors.IsForbidden(err) && strings.Contains(err.Error(), `the verb "bind" on sandboxclaims`)
			if !tc.free && err == nil {
				t.Fatalf("%s by another user is taken", tc.patch)
			}
			if tc.free && err != nil || !tc.free && !refused {
				return fmt.Errorf("%s by another user: %w", tc.patch, asError(err))
			}
			return nil
		})
	}
	if got := text(c.getAgent(t, agentClaims, ns, "claim"), "spec", "warmPoolRef", "name"); got != "pool" {
		t.Errorf("the claim is on the pool %q", got)
	}
}
