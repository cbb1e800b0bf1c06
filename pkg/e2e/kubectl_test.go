// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestKubectl does with a real kubectl what users do with it: every story in a
// namespace of its own, all on one server.
func TestKubectl(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), "--simulated-start-delay", "10ms", "--sync-window", "3s")
	stories := map[string]func(*testing.T, *kubectl){
		"api-resources":       testAPIResources,
		"apply":               testApply,
		"apply-absent":        testApplyAbsent,
		"apply-conflict":      testApplyConflict,
		"apply-server-side":   testApplyServerSide,
		"category":            testCategory,
		"columns":             testColumns,
		"create":              testCreate,
		"create-generated":    testCreateGenerated,
		"create-together":     testCreateTogether,
		"delete":              testDelete,
		"delete-all":          testDeleteAll,
		"delete-cascade":      testCascade,
		"delete-owned":        testDeleteOwned,
		"diff":                testDiff,
		"dry-run":             testDryRun,
		"edit-status":         testEditStatus,
		"errors":              testErrors,
		"errors-shortage":     testShortage,
		"examples":            testExamples,
		"examples-together":   testExamplesTogether,
		"explain":             testExplain,
		"explain-every-field": testEveryFieldIsDescribed,
		"label":               testLabel,
		"pages":               testPages,
		"patch":               testPatch,
		"replace":             testReplace,
		"scale":               testScale,
		"selectors":           testSelectors,
		"unknown-fields":      testUnknownFields,
		"version":             testVersion,
		"wait":                testWait,
		"warnings":            testWarnings,
		"watch":               testWatch,
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, kubectlFor(t, s, name))
		})
	}
}

func testCreate(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 3)
	pool := k.server.sandboxes(t, k.namespace)

	created := k.claim(t, builders.ClaimYAML, "create", "-f", "-")

	names := expect.Claimed(t, created, 1)
	if pool[names[0]] == nil {
		t.Errorf("sandbox %s was not in the pool", names[0])
	}
	if read := k.claim(t, "", "get", "sbc", "claim"); cmp.Diff(created, read) != "" {
		t.Errorf("what the create said is not what is stored (-created +stored):\n%s", cmp.Diff(created, read))
	}
	sandbox := k.server.sandboxes(t, k.namespace)[names[0]]
	if sandbox.Annotations[v1alpha1.AnnotationOwner] != string(created.UID) || sandbox.Labels[v1alpha1.LabelClaimName] != "claim" {
		t.Errorf("the sandbox does not name its claim: %+v", sandbox.ObjectMeta)
	}
	if sandbox.ResourceVersion != created.ResourceVersion {
		t.Errorf("claim at %s, its sandbox at %s: not one transaction", created.ResourceVersion, sandbox.ResourceVersion)
	}
	k.fail(t, builders.ClaimYAML, []string{"create", "-f", "-"}, "AlreadyExists", `"claim" already exists`)
	expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, "pool", 3) // is filled up again
}

func testCreateGenerated(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 4)
	first := k.claim(t, generatedYAML, "create", "-f", "-")
	second := k.claim(t, generatedYAML, "create", "-f", "-")
	if first.Name == second.Name || !strings.HasPrefix(first.Name, "job-") || !strings.HasPrefix(second.Name, "job-") {
		t.Errorf("generated %q and %q", first.Name, second.Name)
	}
	both := append(expect.Claimed(t, first, 2), expect.Claimed(t, second, 2)...)
	if slices.Sort(both); len(slices.Compact(both)) != 4 {
		t.Errorf("two claims share a sandbox: %q", both)
	}
}

// A file with everything in it works on the first try: the pool has no time to
// fill up, so the claims get sandboxes made for them.
func testCreateTogether(t *testing.T, k *kubectl) {
	out := k.feed(t, builders.PoolYAML+"---"+builders.ClaimYAML+"---"+generatedYAML+"---"+templateYAML+"---"+sandboxYAML, "create", "-f", "-")
	for _, want := range []string{
		"sandboxset.agents.kruise.io/pool created", "sandboxclaim.agents.kruise.io/claim created", "sandboxclaim.agents.kruise.io/job-",
		"sandboxtemplate.agents.kruise.io/template created", "sandbox.agents.kruise.io/alone created",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	k.do(t, "wait", "--for=condition=Completed", "--timeout", expect.Patience.String(), "sbc", "--all")
	expect.Claimed(t, k.claim(t, "", "get", "sbc", "claim"), 1)
	k.do(t, "wait", "--for=condition=Ready", "--timeout", expect.Patience.String(), "sbx", "alone")
}

func testDryRun(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 3)
	before := k.server.sandboxes(t, k.namespace)

	commands := map[string][]string{
		"create":            {"create", "--dry-run=server", "-f", "-"},
		"apply":             {"apply", "--dry-run=server", "-f", "-"},
		"server-side apply": {"apply", "--server-side", "--dry-run=server", "-f", "-"},
	}
	for name, command := range commands {
		claim := k.claim(t, builders.ClaimYAML, command...)
		for _, sandbox := range expect.Claimed(t, claim, 1) {
			if before[sandbox] == nil {
				t.Errorf("%s: sandbox %s is not in the pool", name, sandbox)
			}
		}
		if claim.ResourceVersion != "" {
			t.Errorf("%s: claims to be stored at %s", name, claim.ResourceVersion)
		}
	}
	k.feed(t, builders.PoolYAML, "delete", "--dry-run=server", "-f", "-")

	k.fail(t, "", []string{"get", "sbc", "claim"}, "NotFound")
	if diff := cmp.Diff(before, k.server.sandboxes(t, k.namespace)); diff != "" {
		t.Errorf("a dry run changed the pool:\n%s", diff)
	}
	// All three are there to be taken, in the index too.
	all := builders.Claim("all", 3)
	all.Spec.Allocation, all.Spec.OnShortage = v1alpha1.AllocationAllOrNothing, v1alpha1.ShortageFail
	created, err := k.server.Client.AgentsV1alpha1().SandboxClaims(k.namespace).Create(t.Context(), all, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("claiming the whole pool: %v", err)
	}
	expect.Claimed(t, created, 3)
}

func testWait(t *testing.T, k *kubectl) {
	limit := "--timeout=" + expect.Patience.String()
	k.feed(t, builders.PoolYAML, "create", "-f", "-")
	k.do(t, "wait", limit, "--for=jsonpath={.status.availableReplicas}=3", "sbs/pool")
	claim := k.claim(t, builders.ClaimYAML, "create", "-f", "-")

	k.do(t, "wait", limit, "--for=condition=Completed", "sbc/claim")
	k.do(t, "wait", limit, "--for=condition=Ready", "sandboxclaim/claim")
	k.do(t, "wait", limit, "--for=jsonpath={.status.phase}=Completed", "sbc/claim")
	k.do(t, "wait", limit, "--for=condition=Ready", "sbx/"+expect.Claimed(t, claim, 1)[0])

	// A claim that is Completed stays so whatever is changed in its spec.
	k.do(t, "patch", "sbc/claim", "--type=merge", "--patch", `{"spec":{"ttlAfterCompleted":"2h"}}`)
	k.do(t, "wait", limit, "--for=condition=Completed", "sbc/claim")

	k.do(t, "delete", "sbc/claim", "--wait=false")
	k.do(t, "wait", limit, "--for=delete", "sbc/claim")
}

func testScale(t *testing.T, k *kubectl) {
	limit := "--timeout=" + expect.Patience.String()
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 3)
	k.claim(t, builders.ClaimYAML, "create", "-f", "-")
	for _, replicas := range []string{"5", "1", "0", "2"} {
		k.do(t, "scale", "sbs/pool", "--replicas="+replicas)
		k.do(t, "wait", limit, "--for=jsonpath={.status.replicas}="+replicas, "sbs/pool")
		k.do(t, "wait", limit, "--for=jsonpath={.status.availableReplicas}="+replicas, "sbs/pool")
	}
	k.fail(t, "", []string{"scale", "sbs/pool", "--current-replicas=7", "--replicas=1"}, "Expected replicas to be 7, was 2")
	k.fail(t, "", []string{"scale", "sbs/pool", "--replicas=2000000"}, "spec.replicas", "2000000")
	scale := k.do(t, "get", "sbs/pool", "--subresource=scale", "-o", "jsonpath={.kind} {.spec.replicas} {.status.selector}")
	if want := "Scale 2 agents.kruise.io/sandbox-claimed=false,agents.kruise.io/sandbox-pool=pool"; scale != want {
		t.Errorf("scale is %q, want %q", scale, want)
	}
	// Scaling leaves alone what is claimed.
	k.do(t, "get", "sbx", expect.Claimed(t, k.claim(t, "", "get", "sbc", "claim"), 1)[0])
}
