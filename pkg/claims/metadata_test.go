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

func TestSameMetadata(t *testing.T) {
	base := v1alpha1.SandboxClaimSpec{
		Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"a": "1"},
		AdditionalPodMetadata: &v1alpha1.PodMetadata{Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"a": "1"}},
	}
	for name, change := range map[string]func(*v1alpha1.SandboxClaimSpec){
		"labels":                 func(s *v1alpha1.SandboxClaimSpec) { s.Labels["a"] = "2" },
		"annotations":            func(s *v1alpha1.SandboxClaimSpec) { s.Annotations["b"] = "1" },
		"additional labels":      func(s *v1alpha1.SandboxClaimSpec) { s.AdditionalPodMetadata.Labels = nil },
		"additional annotations": func(s *v1alpha1.SandboxClaimSpec) { delete(s.AdditionalPodMetadata.Annotations, "a") },
		"none additional":        func(s *v1alpha1.SandboxClaimSpec) { s.AdditionalPodMetadata = nil },
	} {
		other := base.DeepCopy()
		change(other)
		if SameMetadata(&base, other) || SameMetadata(other, &base) {
			t.Errorf("%s are not seen", name)
		}
	}
	other := base.DeepCopy()
	other.ReserveFailedSandbox = true
	if !SameMetadata(&base, other) {
		t.Error("something else counts")
	}
	if !SameMetadata(&v1alpha1.SandboxClaimSpec{}, &v1alpha1.SandboxClaimSpec{AdditionalPodMetadata: &v1alpha1.PodMetadata{Labels: map[string]string{}}}) {
		t.Error("none and empty differ")
	}
}
