// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestWaiting(t *testing.T) {
	has := func(n int32) func(*v1alpha1.SandboxClaim) {
		return func(c *v1alpha1.SandboxClaim) { c.Status.ClaimedReplicas = n }
	}
	tests := map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		want   int
	}{
		"all":                         {has(0), 5},
		"some":                        {has(2), 3},
		"none":                        {has(5), 0},
		"completed":                   {func(c *v1alpha1.SandboxClaim) { c.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted }, 0},
		"deleted":                     {func(c *v1alpha1.SandboxClaim) { c.DeletionTimestamp = new(metav1.Now()) }, 0},
		"makes fresh ones":            {func(c *v1alpha1.SandboxClaim) { c.Spec.CreateOnNoStock = new(true) }, 0},
		"makes fresh ones by default": {func(c *v1alpha1.SandboxClaim) { c.Spec.CreateOnNoStock = nil }, 0},
		"not looked at yet":           {func(c *v1alpha1.SandboxClaim) { c.Status.Phase = "" }, 0},
		"one by default":              {func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = nil }, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := &v1alpha1.SandboxClaim{}
			claim.Spec.Replicas, claim.Spec.CreateOnNoStock = new(int32(5)), new(false)
			claim.Status.Phase = v1alpha1.SandboxClaimPhaseClaiming
			tc.change(claim)
			if got := Waiting(claim); got != tc.want {
				t.Errorf("waits for %d, want %d", got, tc.want)
			}
		})
	}
}
