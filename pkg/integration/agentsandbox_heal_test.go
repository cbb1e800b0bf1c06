// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// awaitOther waits until a claim is Ready with another sandbox than it had, and returns it.
func awaitOther(t *testing.T, s *testutil.Server, claim *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	had := sandboxOf(claim)
	var now *unstructured.Unstructured
	expect.Eventually(t.Context(), t, func(context.Context) error {
		now = getAgent(t, s, agentClaims, claim.GetName())
		if has := sandboxOf(now); has == "" || has == had || agentReady(t, now).Status != metav1.ConditionTrue {
			return fmt.Errorf("after %s it has %q and is %v", had, has, now.Object["status"])
		}
		return nil
	})
	return now
}

// TestTrap07Heals: a claim whose sandbox is deleted has another one, and is the same claim.
func TestTrap07Heals(t *testing.T) {
	s := agentPool(t, 3)
	claim := createAgent(t, s, newAgentClaim("claim", map[string]any{}))
	before := claim.GetUID()
	for range 2 {
		if err := agent(t, s, agentSandboxes).Delete(t.Context(), sandboxOf(claim), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		claim = awaitOther(t, s, claim)
	}
	if claim.GetUID() != before {
		t.Errorf("the claim is another one")
	}
	sandbox := getAgent(t, s, agentSandboxes, sandboxOf(claim))
	if owner := metav1.GetControllerOf(sandbox); owner == nil || owner.UID != before {
		t.Errorf("its sandbox belongs to %v", owner)
	}
}
