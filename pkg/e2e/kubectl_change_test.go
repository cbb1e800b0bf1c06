// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func testPatch(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 1)
	k.claim(t, builders.ClaimYAML, "create", "-f", "-")
	k.feed(t, templateYAML+"---"+sandboxYAML, "create", "-f", "-")
	for _, resource := range []string{"sbc/claim", "sbs/pool", "sbt/template", "sbx/alone"} {
		k.do(t, "patch", resource, "--type=merge", "--patch", `{"metadata":{"labels":{"a":"b"}}}`)
		k.do(t, "patch", resource, "--type=json", "--patch", `[{"op":"replace","path":"/metadata/labels/a","value":"c"}]`)
		// The kind that kubectl takes without --type is not for custom kinds: 415.
		k.fail(t, "", []string{"patch", resource, "--patch", `{"metadata":{"labels":{"a":"d"}}}`},
			"application/strategic-merge-patch+json is not supported", "application/merge-patch+json")
		if label := k.do(t, "get", resource, "-o", "jsonpath={.metadata.labels.a}"); label != "c" {
			t.Errorf("%s has label %q", resource, label)
		}
	}
	generation := "jsonpath={.metadata.generation}"
	before := k.do(t, "get", "sbs/pool", "-o", generation)
	k.do(t, "patch", "sbs/pool", "--type=merge", "--patch", `{"spec":{"replicas":2}}`)
	if after := k.do(t, "get", "sbs/pool", "-o", generation); after == before {
		t.Errorf("a patch of the spec left the generation at %s", after)
	}
	expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, "pool", 2)
}

func testReplace(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 1)
	created := k.claim(t, builders.ClaimYAML, "create", "-f", "-")
	manifest := k.do(t, "get", "sbc/claim", "-o", "yaml")
	replaced := k.claim(t, strings.Replace(manifest, "ttlAfterCompleted: 1h0m0s", "ttlAfterCompleted: 2h", 1), "replace", "-f", "-")
	if replaced.Spec.TTLAfterCompleted.Duration.String() != "2h0m0s" || replaced.Generation != created.Generation+1 {
		t.Errorf("replaced: generation %d, spec %+v", replaced.Generation, replaced.Spec)
	}
	if diff := cmp.Diff(expect.Claimed(t, created, 1), expect.Claimed(t, replaced, 1)); diff != "" {
		t.Errorf("replacing bound other sandboxes:\n%s", diff)
	}
	k.fail(t, manifest, []string{"replace", "-f", "-"}, "Conflict", "the object has been modified")
	k.fail(t, strings.Replace(builders.ClaimYAML, "name: claim", "name: absent", 1), []string{"replace", "-f", "-"}, "NotFound")
}

func testLabel(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 1)
	k.claim(t, builders.ClaimYAML, "create", "-f", "-")
	k.do(t, "label", "sbc/claim", "team=blue")
	k.fail(t, "", []string{"label", "sbc/claim", "team=red"}, "already has a value")
	k.do(t, "label", "sbc/claim", "team=red", "--overwrite")
	k.do(t, "annotate", "sbs/pool", "note=two words")
	k.do(t, "annotate", "sbs", "--all", "note-")
	claim := k.claim(t, "", "get", "sbc", "claim")
	if claim.Labels["team"] != "red" || claim.Generation != 1 {
		t.Errorf("claim has labels %v, generation %d", claim.Labels, claim.Generation)
	}
	// Who created the claim is not for users to say.
	k.do(t, "annotate", "sbc/claim", v1alpha1.AnnotationClaimedBy+"=eve", "--overwrite")
	if by := k.claim(t, "", "get", "sbc", "claim").Annotations[v1alpha1.AnnotationClaimedBy]; by != "sandlot-admin" {
		t.Errorf("claimed by %q", by)
	}
	k.fail(t, "", []string{"label", "sbc/claim", "a=b c"}, "a valid label must")
}

// A status that a client wrote is healed: nothing is claimed twice, and the claim
// is Completed again.
func testEditStatus(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 2)
	created := k.claim(t, builders.ClaimYAML, "create", "-f", "-")
	names := expect.Claimed(t, created, 1)
	expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, "pool", 2)

	editor, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	k.env = append(k.env, "KUBE_EDITOR="+editor, editorVariable+"=phase: Completed=>phase: Claiming")
	if out := k.do(t, "edit", "sbc/claim", "--subresource=status"); !strings.Contains(out, "claim edited") {
		t.Errorf("edited: %q", out)
	}
	k.do(t, "wait", "--for=jsonpath={.status.phase}=Completed", "--timeout", expect.Patience.String(), "sbc/claim")
	if diff := cmp.Diff(names, expect.Claimed(t, k.claim(t, "", "get", "sbc", "claim"), 1)); diff != "" {
		t.Errorf("healed with other sandboxes:\n%s", diff)
	}
	k.do(t, "patch", "sbc/claim", "--subresource=status", "--type=merge", "--patch", `{"status":{"claimedReplicas":0,"sandboxes":[],"phase":"Claiming"}}`)
	k.do(t, "wait", "--for=jsonpath={.status.phase}=Completed", "--timeout", expect.Patience.String(), "sbc/claim")
	if diff := cmp.Diff(names, expect.Claimed(t, k.claim(t, "", "get", "sbc", "claim"), 1)); diff != "" {
		t.Errorf("healed with other sandboxes:\n%s", diff)
	}
	if n := len(k.server.sandboxes(t, k.namespace)); n != 3 {
		t.Errorf("%d sandboxes, want the one claimed and two in the pool", n)
	}
	// The spec has no part in it, nor the status in an edit of the spec.
	k.env[len(k.env)-1] = editorVariable + "=ttlAfterCompleted: 1h0m0s=>ttlAfterCompleted: 2h0m0s"
	k.do(t, "edit", "sbc/claim")
	if claim := k.claim(t, "", "get", "sbc", "claim"); claim.Spec.TTLAfterCompleted.Duration.String() != "2h0m0s" {
		t.Errorf("edited: %+v", claim.Spec)
	}
}

func testDelete(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 1)
	claimed := expect.Claimed(t, k.claim(t, builders.ClaimYAML, "create", "-f", "-"), 1)[0]
	k.feed(t, templateYAML+"---"+sandboxYAML, "create", "-f", "-")

	k.do(t, "delete", "sbc/claim")
	k.do(t, "get", "sbx", claimed) // the default is Retain
	k.feed(t, templateYAML+"---"+sandboxYAML, "delete", "-f", "-")
	k.do(t, "delete", "sbs", "pool")
	// The set takes along what was not claimed, and only that.
	expect.Eventually(t.Context(), t, func(context.Context) error {
		left := k.server.sandboxes(t, k.namespace)
		if len(left) == 1 && left[claimed] != nil {
			return nil
		}
		return fmt.Errorf("%d sandboxes are left", len(left))
	})
	k.do(t, "delete", "sandbox/"+claimed)
	for _, resource := range []string{"sbc", "sbs", "sbt", "sbx"} {
		if out := k.do(t, "get", resource, "-o", "name"); out != "" {
			t.Errorf("left of %s: %s", resource, out)
		}
	}
	k.do(t, "delete", "sbc/claim", "--ignore-not-found")
	k.fail(t, "", []string{"delete", "sbc/claim"}, "NotFound")
}

func testDeleteAll(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 3)
	for range 3 {
		k.claim(t, generatedYAML, "create", "-f", "-")
	}
	if out := k.do(t, "delete", "sbc", "--all"); strings.Count(out, " deleted") != 3 {
		t.Errorf("deleted:\n%s", out)
	}
	k.do(t, "delete", "sbs", "--all")
	k.do(t, "delete", "sbx", "--selector", v1alpha1.LabelSandboxClaimed+"=true")
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if n := len(k.server.sandboxes(t, k.namespace)); n > 0 {
			return fmt.Errorf("%d sandboxes are left", n)
		}
		return nil
	})
	// Deleting a collection is one request of a client.
	claims := k.server.Client.AgentsV1alpha1().SandboxClaims(k.namespace)
	k.claim(t, generatedYAML+"  createOnNoStock: false\n", "create", "-f", "-")
	if err := claims.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Errorf("deleting the collection: %v", err)
	}
	if list, err := claims.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("left %v, %v", list, err)
	}
}

func testDeleteOwned(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 2)
	claimed := expect.Claimed(t, k.claim(t, builders.ClaimYAML+"  replicas: 2\n  reclaimPolicy: Delete\n", "create", "-f", "-"), 2)
	k.do(t, "delete", "sbc/claim")
	expect.Eventually(t.Context(), t, func(context.Context) error {
		left := k.server.sandboxes(t, k.namespace)
		for _, name := range claimed {
			if left[name] != nil {
				return errors.New(name + " is left")
			}
		}
		return nil
	})
	expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, "pool", 2)
}

func testErrors(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 1)
	create := []string{"create", "-f", "-"}
	for name, tc := range map[string]struct {
		manifest string
		wants    []string
	}{
		"unknown pool": {
			strings.Replace(builders.ClaimYAML, "pool", "nowhere", 1) + "  onShortage: Fail\n",
			[]string{"spec.templateName", `Not found: "nowhere"`},
		},
		"several mistakes": {
			builders.ClaimYAML + "  replicas: 0\n  allocation: Some\n  labels: {agents.kruise.io/claim-name: x}\n",
			[]string{"spec.replicas", "must be at least 1", "spec.allocation", `supported values: "BestEffort", "AllOrNothing"`, "spec.labels[agents.kruise.io/claim-name]", "reserved"},
		},
		"duration":      {builders.ClaimYAML + "  claimTimeout: soon\n", []string{"spec.claimTimeout", `"soon"`}},
		"unknown field": {builders.ClaimYAML + "  replicaz: 2\n", []string{"strict decoding error", `unknown field "spec.replicaz"`}},
		"no template":   {strings.Split(builders.PoolYAML, "  template:")[0], []string{"spec.template", "template is required"}},
		"variable":      {builders.ClaimYAML + "  envVars: {A=B: hidden}\n", []string{"spec.envVars", `"A=B"`}},
		"other version": {strings.Replace(builders.ClaimYAML, "v1alpha1", "v9", 1), []string{`no matches for kind "SandboxClaim" in version "agents.kruise.io/v9"`}},
		"not YAML":      {"{", []string{"error"}},
	} {
		t.Run(name, func(t *testing.T) { k.fail(t, tc.manifest, create, tc.wants...) })
	}
	// kubectl itself looks for the namespace then, and says that there is no such kind.
	k.fail(t, "", []string{"get", "sbc", "absent"}, "NotFound")
	_, err := k.server.Client.AgentsV1alpha1().SandboxClaims(k.namespace).Get(t.Context(), "absent", metav1.GetOptions{})
	if err == nil || err.Error() != `sandboxclaims.agents.kruise.io "absent" not found` {
		t.Errorf("get of an absent claim: %v", err)
	}
	if out := k.do(t, "get", "sbc", "-o", "name"); out != "" {
		t.Errorf("stored: %s", out)
	}
}

// kubectl repeats what is answered with 429 some times, so this takes seconds.
func testShortage(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 1)
	k.fail(t, builders.ClaimYAML+"  replicas: 2\n  onShortage: Fail\n", []string{"create", "-f", "-"}, "SandboxSet pool has 1 of 2 sandboxes available")
	if out := k.do(t, "get", "sbc", "-o", "name"); out != "" {
		t.Errorf("stored: %s", out)
	}
	_, stderr, _ := k.run(t, builders.ClaimYAML+"  replicas: 2\n  onShortage: Fail\n", "create", "-v=6", "-f", "-")
	if n := strings.Count(stderr, "429 Too Many Requests"); n != 1 {
		t.Errorf("kubectl has sent the claim %d times, want once:\n%s", n, stderr)
	}
	expect.Claimed(t, k.claim(t, builders.ClaimYAML+"  onShortage: Fail\n", "create", "-f", "-"), 1)
}
