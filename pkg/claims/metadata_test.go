// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestMetadataBehind(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		want   bool
	}{
		"changed":  {func(*v1alpha1.SandboxClaim) {}, true},
		"observed": {func(c *v1alpha1.SandboxClaim) { c.Status.ObservedGeneration = 3 }, false},
		"waits":    {func(c *v1alpha1.SandboxClaim) { c.Status.Phase = v1alpha1.SandboxClaimPhaseClaiming }, false},
		"deleted":  {func(c *v1alpha1.SandboxClaim) { c.DeletionTimestamp = new(metav1.Now()) }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			claim.Status.Phase, claim.Status.ObservedGeneration = v1alpha1.SandboxClaimPhaseCompleted, 2
			tc.change(claim)
			if got := MetadataBehind(claim); got != tc.want {
				t.Errorf("behind: %t", got)
			}
			if MetadataBehind(claim) && (Unfinished(claim) || Waiting(claim) != 0) {
				t.Error("it is taken for one that waits")
			}
		})
	}
}
