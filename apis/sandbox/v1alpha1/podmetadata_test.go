// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "testing"

func TestSameMetadata(t *testing.T) {
	base := SandboxClaimSpec{
		Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"a": "1"},
		AdditionalPodMetadata: &PodMetadata{Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"a": "1"}},
	}
	for name, change := range map[string]func(*SandboxClaimSpec){
		"labels":                 func(s *SandboxClaimSpec) { s.Labels["a"] = "2" },
		"annotations":            func(s *SandboxClaimSpec) { s.Annotations["b"] = "1" },
		"additional labels":      func(s *SandboxClaimSpec) { s.AdditionalPodMetadata.Labels = nil },
		"additional annotations": func(s *SandboxClaimSpec) { delete(s.AdditionalPodMetadata.Annotations, "a") },
		"none additional":        func(s *SandboxClaimSpec) { s.AdditionalPodMetadata = nil },
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
	if !SameMetadata(&SandboxClaimSpec{}, &SandboxClaimSpec{AdditionalPodMetadata: &PodMetadata{Labels: map[string]string{}}}) {
		t.Error("none and empty differ")
	}
}
