// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// testCascade deletes what owns sandboxes, and what owns nothing, in the three ways
// that there are. kubectl returns when the object is gone.
func testCascade(t *testing.T, k *kubectl) {
	for kind, story := range map[string]func(t *testing.T, k *kubectl, policy string){
		"set": cascadeFromSet, "claim": cascadeFromClaim, "single": cascadeFromNothing,
	} {
		for _, policy := range []string{"background", "foreground", "orphan"} {
			t.Run(kind+" "+policy, func(t *testing.T) {
				t.Parallel()
				story(t, kubectlFor(t, k.server, "cascade-"+kind+"-"+policy), policy)
			})
		}
	}
	t.Run("held", func(t *testing.T) {
		t.Parallel()
		cascadeHeld(t, kubectlFor(t, k.server, "cascade-held"))
	})
}

func cascadeFromSet(t *testing.T, k *kubectl, policy string) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 3)
	claimed := expect.Claimed(t, k.claim(t, builders.ClaimYAML, "create", "-f", "-"), 1)
	expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, "pool", 3)
	pool := k.unclaimed(t)

	k.do(t, "delete", "sbs/pool", "--cascade="+policy)

	k.left(t, policy, claimed, pool)
}

func cascadeFromClaim(t *testing.T, k *kubectl, policy string) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 2)
	claim := k.claim(t, builders.ClaimYAML+"  replicas: 2\n  reclaimPolicy: Delete\n", "create", "-f", "-")
	expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, "pool", 2)
	pool := k.unclaimed(t)

	k.do(t, "delete", "sbc/claim", "--cascade="+policy)

	k.left(t, policy, pool, expect.Claimed(t, claim, 2))
}

// Sandboxes, templates, and claims that keep what they claimed own nothing.
func cascadeFromNothing(t *testing.T, k *kubectl, policy string) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 1)
	claimed := expect.Claimed(t, k.claim(t, builders.ClaimYAML, "create", "-f", "-"), 1)
	expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, "pool", 1)
	pool := k.unclaimed(t)
	k.feed(t, sandboxYAML+"---"+templateYAML, "create", "-f", "-")

	k.do(t, "delete", "sbx/alone", "sbt/template", "sbc/claim", "--cascade="+policy)
	k.left(t, policy, append(claimed, pool...), nil)
	k.do(t, "delete", "sbx/"+claimed[0], "--cascade="+policy)
	k.left(t, policy, pool, nil)
	// One of a pool is replaced.
	k.do(t, "delete", "sbx/"+pool[0], "--cascade="+policy)
	expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, "pool", 1)
	if slices.Contains(k.unclaimed(t), pool[0]) {
		t.Errorf("sandbox %s is left", pool[0])
	}
}

// What is deleted in the foreground stays for as long as something of it does.
func cascadeHeld(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 2)
	claim := k.claim(t, builders.ClaimYAML+"  replicas: 2\n  reclaimPolicy: Delete\n", "create", "-f", "-")
	expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, "pool", 2)
	for owner, owned := range map[string][]string{"sbs/pool": k.unclaimed(t), "sbc/claim": expect.Claimed(t, claim, 2)} {
		k.do(t, "patch", "sbx/"+owned[0], "--type=merge", "--patch", `{"metadata":{"finalizers":["example.com/last-words"]}}`)
		k.do(t, "delete", owner, "--cascade=foreground", "--wait=false")
		k.do(t, "wait", "--for=delete", "--timeout", expect.Patience.String(), "sbx/"+owned[1])
		for _, object := range []string{owner, "sbx/" + owned[0]} {
			if since := k.do(t, "get", object, "-o", "jsonpath={.metadata.deletionTimestamp}"); since == "" {
				t.Errorf("%s is not being deleted", object)
			}
		}
		k.do(t, "patch", "sbx/"+owned[0], "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`)
		k.do(t, "wait", "--for=delete", "--timeout", expect.Patience.String(), owner)
		k.fail(t, "", []string{"get", "sbx/" + owned[0]}, "NotFound")
	}
}

// unclaimed returns the names of the sandboxes that are not claimed.
func (k *kubectl) unclaimed(t *testing.T) []string {
	var names []string
	for name, sandbox := range k.server.sandboxes(t, k.namespace) {
		if sandbox.Labels[v1alpha1.LabelSandboxClaimed] != v1alpha1.ClaimedTrue {
			names = append(names, name)
		}
	}
	return names
}

// left requires that there are no sandboxes but others, and, if an owner was
// deleted as the parent of orphans, what it owned, which has no owner now.
func (k *kubectl) left(t *testing.T, policy string, others, owned []string) {
	t.Helper()
	want := slices.Clone(others)
	if policy == "orphan" {
		want = append(want, owned...)
	}
	slices.Sort(want)
	check := func(context.Context) error {
		sandboxes := k.server.sandboxes(t, k.namespace)
		for name, sandbox := range sandboxes {
			if !slices.Contains(want, name) {
				continue
			}
			if sandbox.DeletionTimestamp != nil || slices.Contains(owned, name) && len(sandbox.OwnerReferences) > 0 {
				t.Fatalf("sandbox %s is to be left, and is %+v", name, sandbox.ObjectMeta)
			}
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(sandboxes))); diff != "" {
			return fmt.Errorf("sandboxes (-want +left):\n%s", diff)
		}
		return nil
	}
	if policy == "background" { // they follow
		expect.Eventually(t.Context(), t, check)
	} else if err := check(t.Context()); err != nil {
		t.Fatal(err)
	}
}
