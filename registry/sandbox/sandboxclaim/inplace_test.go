// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestWarningsOfInplaceUpdates(t *testing.T) {
	one := resource.MustParse("1")
	with := func(image string, requests, limits corev1.ResourceList) *v1alpha1.SandboxClaimInplaceUpdateOptions {
		return &v1alpha1.SandboxClaimInplaceUpdateOptions{
			Image: image, Resources: &v1alpha1.SandboxClaimInplaceUpdateResources{Requests: requests, Limits: limits},
		}
	}
	cpu, both := corev1.ResourceList{"cpu": one}, corev1.ResourceList{"cpu": one, "memory": one}
	const ignored = ": only cpu is changed in place; memory and all other resources are ignored"
	const late = "spec.inplaceUpdate: has no effect any more: the claim is Completed, and its sandboxes stay as they are"
	tests := map[string]struct {
		old, is *v1alpha1.SandboxClaimInplaceUpdateOptions
		phase   v1alpha1.SandboxClaimPhase
		want    []string
	}{
		"cpu":               {is: with("a", cpu, cpu)},
		"requests":          {is: with("a", both, cpu), want: []string{"spec.inplaceUpdate.resources.requests" + ignored}},
		"limits, no cpu":    {is: with("", nil, corev1.ResourceList{"gpu": one}), want: []string{"spec.inplaceUpdate.resources.limits" + ignored}},
		"as before":         {old: with("a", both, both), is: with("a", both, both), phase: "Completed"},
		"before the end":    {old: with("a", cpu, nil), is: with("b", cpu, nil), phase: "Claiming"},
		"after the end":     {old: with("a", cpu, nil), is: with("b", cpu, nil), phase: "Completed", want: []string{late}},
		"gone after it":     {old: with("a", cpu, nil), phase: "Completed", want: []string{late}},
		"both, after it":    {is: with("a", both, nil), phase: "Completed", want: []string{"spec.inplaceUpdate.resources.requests" + ignored, late}},
		"nothing, after it": {phase: "Completed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim, old := &v1alpha1.SandboxClaim{}, &v1alpha1.SandboxClaim{}
			claim.Spec.InplaceUpdate, old.Spec.InplaceUpdate, old.Status.Phase = tc.is, tc.old, tc.phase
			if diff := cmp.Diff(tc.want, newStrategy().WarningsOnUpdate(t.Context(), claim, old)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	claim := &v1alpha1.SandboxClaim{}
	claim.Spec.InplaceUpdate = with("a", both, cpu)
	if got := newStrategy().WarningsOnCreate(t.Context(), claim); len(got) != 1 {
		t.Errorf("create warns %q", got)
	}
}
