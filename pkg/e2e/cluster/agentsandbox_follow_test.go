// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestAgentSandboxTrap07Heals: a claim whose sandbox is deleted, through either group, has
// another one, which is its own in every respect.
func TestAgentSandboxTrap07Heals(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 2)
	claim := c.agentBound(t, ns, newAgentClaim("claim"))
	for _, resource := range []string{"sandboxes.agents.x-k8s.io", "sandboxes.agents.kruise.io"} {
		lost := text(claim, "status", "sandbox", "name")
		kubectl(t, ns, "", "delete", resource, lost, "--timeout="+expect.Patience.String())
		claim = c.awaitAgent(t, agentClaims, ns, "claim", func(claim *unstructured.Unstructured) error {
			if name := text(claim, "status", "sandbox", "name"); name == lost {
				return fmt.Errorf("it still has %s", name)
			}
			return isAgentBound(claim)
		})
		sandbox := c.getAgent(t, agentSandboxes, ns, text(claim, "status", "sandbox", "name"))
		owner := metav1.GetControllerOf(sandbox)
		if owner == nil || owner.UID != claim.GetUID() || sandbox.GetLabels()[v1alpha1.AgentLabelClaimUID] != string(claim.GetUID()) {
			t.Errorf("the sandbox after %s belongs to %v and has the labels %v", lost, owner, sandbox.GetLabels())
		}
	}
	// The pool may go: who is bound stays bound.
	if err := c.agent(t, agentPools, ns).Delete(t.Context(), "pool", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.agent(t, agentPools, ns).Get(ctx, "pool", metav1.GetOptions{})
		return gone(err)
	})
	if err := isAgentBound(c.getAgent(t, agentClaims, ns, "claim")); err != nil {
		t.Errorf("after its pool has gone: %v", err)
	}
}

// TestAgentSandboxTrap08Follows: Ready and Finished of a claim are those of its sandbox,
// whenever that changes, and the TTL counts from Finished.
func TestAgentSandboxTrap08Follows(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	template := newAgentTemplate()
	if err := unstructured.SetNestedField(template.Object, "OnFailure", "spec", "podTemplate", "spec", "restartPolicy"); err != nil {
		t.Fatal(err)
	}
	c.makeAgent(t, agentTemplates, ns, template)
	c.makeAgent(t, agentPools, ns, newAgentPool("pool", 1))
	c.awaitAgentPool(t, ns, 1)
	claim := newAgentClaim("claim")
	claim.Object["spec"].(map[string]any)["lifecycle"] = map[string]any{"ttlSecondsAfterFinished": int64(3600)}
	name := text(c.agentBound(t, ns, claim), "status", "sandbox", "name")
	succeeded := []byte(`{"status": {"phase": "Succeeded"}}`)
	if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), name, types.MergePatchType, succeeded, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	ended := c.awaitAgent(t, agentClaims, ns, "claim", func(claim *unstructured.Unstructured) error {
		finished, ready := agentCondition(claim, "Finished"), agentCondition(claim, "Ready")
		if finished == nil || finished.Status != metav1.ConditionTrue || finished.Reason != "PodSucceeded" {
			return fmt.Errorf("Finished is %+v", finished)
		}
		if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != "PodSucceeded" {
			return fmt.Errorf("Ready is %+v", ready)
		}
		return nil
	})
	sandbox := c.getAgent(t, agentSandboxes, ns, name)
	if theirs, its := agentCondition(ended, "Finished"), agentCondition(sandbox, "Finished"); its == nil || its.Reason != theirs.Reason || !its.LastTransitionTime.Equal(&theirs.LastTransitionTime) {
		t.Errorf("Finished of the sandbox is %+v, of the claim %+v", its, theirs)
	}
	c.patchAgent(t, agentClaims, ns, "claim", `{"spec": {"lifecycle": {"ttlSecondsAfterFinished": 0, "shutdownPolicy": "Delete"}}}`)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.agent(t, agentClaims, ns).Get(ctx, "claim", metav1.GetOptions{})
		return gone(err)
	})
	c.awaitAgentPool(t, ns, 1)
}

// TestAgentSandboxSuspended: a claim follows its sandbox as that is suspended and resumed,
// which the extension of the SDK does by a patch.
func TestAgentSandboxSuspended(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 1)
	name := text(c.agentBound(t, ns, newAgentClaim("claim")), "status", "sandbox", "name")
	c.patchAgent(t, agentSandboxes, ns, name, `{"spec": {"operatingMode": "Suspended"}}`)
	c.awaitAgent(t, agentSandboxes, ns, name, func(sandbox *unstructured.Unstructured) error {
		if suspended := agentCondition(sandbox, "Suspended"); suspended == nil || suspended.Status != metav1.ConditionTrue || suspended.Reason != "PodTerminated" {
			return fmt.Errorf("Suspended is %+v", suspended)
		}
		return nil
	})
	c.awaitAgent(t, agentClaims, ns, "claim", func(claim *unstructured.Unstructured) error {
		if ready := agentCondition(claim, "Ready"); ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != "SandboxSuspended" {
			return fmt.Errorf("Ready is %+v", ready)
		}
		return nil
	})
	c.patchAgent(t, agentSandboxes, ns, name, `{"spec": {"operatingMode": "Running"}}`)
	claim := c.awaitAgent(t, agentClaims, ns, "claim", isAgentBound)
	if now := text(claim, "status", "sandbox", "name"); now != name {
		t.Errorf("the claim has %s, and had %s", now, name)
	}
}

// agentPolicy denies claims with a label, by a rule that knows one group alone.
const agentPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  failurePolicy: Fail
  matchConstraints:
    matchPolicy: Equivalent
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}
    resourceRules:
    - {apiGroups: [GROUP], apiVersions: [VERSION], operations: [CREATE], resources: [sandboxclaims]}
  validations:
  - expression: "!has(object.metadata.labels) || !('keep' in object.metadata.labels)"
    message: kept out by a policy
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}
`

// TestAgentSandboxPolicies: a policy of the cluster on claims of one group holds for those
// who claim through the other.
func TestAgentSandboxPolicies(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]schema.GroupVersion{"ours": v1alpha1.SchemeGroupVersion, "theirs": agentClaims.GroupVersion()} {
		t.Run(name, func(t *testing.T) { policyHoldsInBoth(t, known) })
	}
}

func policyHoldsInBoth(t *testing.T, known schema.GroupVersion) {
	c, ns := admin(t), namespace(t)
	policy := strings.NewReplacer("NAME", ns, "GROUP", known.Group, "VERSION", known.Version).Replace(agentPolicy)
	kubectl(t, ns, policy, "apply", "-f", "-")
	t.Cleanup(func() {
		if _, _, err := plane.Kubectl(context.Background(), "", strings.NewReader(policy), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	ours := builders.Claim("ours", 1)
	ours.Labels = map[string]string{"keep": "out"}
	theirs := newAgentClaim("theirs")
	theirs.SetLabels(ours.Labels)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	denied := func(err error) bool { return err != nil && strings.Contains(err.Error(), "kept out by a policy") }
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a policy takes a moment to be known
		if _, err := c.SandboxClaims(ns).Create(ctx, ours, dry); !denied(err) {
			return fmt.Errorf("our claim: %w", asError(err))
		}
		if _, err := c.agent(t, agentClaims, ns).Create(ctx, theirs, dry); !denied(err) {
			return fmt.Errorf("their claim: %w", asError(err))
		}
		return nil
	})
}
