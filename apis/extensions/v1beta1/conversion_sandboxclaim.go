// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/internal/convert"
	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// ClaimToHub converts a claim to what is stored. It shares with in whatever is behind a
// pointer, but the lifecycle and env.
func ClaimToHub(in *SandboxClaim, out *hub.SandboxClaim) {
	out.ObjectMeta = in.ObjectMeta
	out.Spec = hub.SandboxClaimSpec{
		WarmPoolRef:           (*hub.SandboxClaimWarmPoolRef)(in.Spec.WarmPoolRef),
		SandboxTemplateRef:    (*hub.SandboxClaimTemplateRef)(in.Spec.SandboxTemplateRef),
		WarmPool:              in.Spec.WarmPool,
		AdditionalPodMetadata: (*hub.PodMetadata)(in.Spec.AdditionalPodMetadata),
		Env:                   convert.Each(in.Spec.Env, func(in *EnvVar, out *hub.SandboxClaimEnvVar) { *out = hub.SandboxClaimEnvVar(*in) }),
		VolumeClaimTemplates:  in.Spec.VolumeClaimTemplates,
	}
	out.Spec.Lifecycle = lifecycleToHub(in.Spec.Lifecycle)
	out.Status = hub.SandboxClaimStatus{Conditions: in.Status.Conditions}
	if sandbox := in.Status.Sandbox; sandbox.Name != "" || sandbox.PodIPs != nil {
		out.Status.Sandboxes = []hub.ClaimedSandbox{{Name: sandbox.Name, PodIPs: sandbox.PodIPs}}
	}
}

// ClaimFromHub converts a claim from what is stored. It shares with in whatever is behind a
// pointer, but the lifecycle, env and conditions that are not shown as they are stored.
//
// A claim made in agents.kruise.io by templateName is shown with the warmPoolRef that says
// the same. Which of several sandboxes is shown says SandboxOf.
func ClaimFromHub(in *hub.SandboxClaim, out *SandboxClaim) {
	out.ObjectMeta = in.ObjectMeta
	out.Spec = SandboxClaimSpec{
		WarmPoolRef:           (*SandboxWarmPoolRef)(in.Spec.WarmPoolRef),
		AdditionalPodMetadata: (*PodMetadata)(in.Spec.AdditionalPodMetadata),
		Env:                   convert.Each(in.Spec.Env, func(in *hub.SandboxClaimEnvVar, out *EnvVar) { *out = EnvVar(*in) }),
		VolumeClaimTemplates:  in.Spec.VolumeClaimTemplates,
	}
	if in.Spec.WarmPoolRef == nil && in.Spec.TemplateName != "" {
		out.Spec.WarmPoolRef = &SandboxWarmPoolRef{Name: in.Spec.TemplateName}
	}
	// The other group says of every claim which pools may serve it, this one only of those
	// by template.
	if in.Spec.SandboxTemplateRef != nil {
		out.Spec.SandboxTemplateRef = (*SandboxTemplateRef)(in.Spec.SandboxTemplateRef)
		out.Spec.WarmPool = in.Spec.WarmPool
	}
	out.Spec.Lifecycle = lifecycleFromHub(in.Spec.Lifecycle)
	out.Status = SandboxClaimStatus{
		Conditions: seenConditions(in.Status.Conditions, in.Status.ObservedGeneration),
		Sandbox:    SandboxOf(in),
	}
}

func lifecycleToHub(in *Lifecycle) *hub.SandboxClaimLifecycle {
	if in == nil {
		return nil
	}
	return &hub.SandboxClaimLifecycle{
		ShutdownTime: in.ShutdownTime, TTLSecondsAfterFinished: in.TTLSecondsAfterFinished, ShutdownPolicy: hub.ShutdownPolicy(in.ShutdownPolicy),
	}
}

func lifecycleFromHub(in *hub.SandboxClaimLifecycle) *Lifecycle {
	if in == nil {
		return nil
	}
	return &Lifecycle{
		ShutdownTime: in.ShutdownTime, TTLSecondsAfterFinished: in.TTLSecondsAfterFinished, ShutdownPolicy: ShutdownPolicy(in.ShutdownPolicy),
	}
}

// SandboxOf is the sandbox of a claim that this API shows. In a claim made in it, the
// annotation names it, which the server writes: it may not count yet, and be listed
// nowhere. Others may have several sandboxes, and any annotation: for them it chooses one
// of those listed, and without it the first is shown. One of this API that has expired has
// none any more.
func SandboxOf(claim *hub.SandboxClaim) ClaimedSandbox {
	if hub.OfAgentSandbox(claim) && hub.HasExpired(claim) {
		return ClaimedSandbox{}
	}
	name, listed := claim.Annotations[hub.AgentAnnotationSandboxName], claim.Status.Sandboxes
	for i := range listed {
		if listed[i].Name == name {
			return ClaimedSandbox{Name: name, PodIPs: listed[i].PodIPs}
		}
	}
	switch {
	case name != "" && hub.OfAgentSandbox(claim):
		return ClaimedSandbox{Name: name}
	case len(listed) > 0:
		return ClaimedSandbox{Name: listed[0].Name, PodIPs: listed[0].PodIPs}
	}
	return ClaimedSandbox{}
}

// seenConditions are the conditions that this API has, sorted by type. Those of the other group need not
// say which generation they are about: it is that of the status then.
func seenConditions(stored []metav1.Condition, observed int64) []metav1.Condition {
	seen, same := 0, true
	for i := range stored {
		if isSeen(&stored[i]) {
			seen++
			same = same && (stored[i].ObservedGeneration != 0 || observed == 0)
		}
	}
	byType := func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) }
	if same && seen == len(stored) && slices.IsSortedFunc(stored, byType) {
		return stored
	}
	out := make([]metav1.Condition, 0, seen)
	for i := range stored {
		if !isSeen(&stored[i]) {
			continue
		}
		out = append(out, stored[i])
		if last := &out[len(out)-1]; last.ObservedGeneration == 0 {
			last.ObservedGeneration = observed
		}
	}
	slices.SortFunc(out, byType)
	return out
}

func isSeen(condition *metav1.Condition) bool {
	return condition.Type == hub.ClaimConditionReady || condition.Type == hub.ClaimConditionFinished
}
