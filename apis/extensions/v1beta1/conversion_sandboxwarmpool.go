// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"cmp"

	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// WarmPoolToHub converts a warm pool to what is stored. It shares with in whatever is behind
// a pointer. The selector of the status is not stored: it follows from the name.
func WarmPoolToHub(in *SandboxWarmPool, out *hub.SandboxSet) {
	out.ObjectMeta = in.ObjectMeta
	out.Spec = hub.SandboxSetSpec{
		Replicas: in.Spec.Replicas,
		EmbeddedSandboxTemplate: hub.EmbeddedSandboxTemplate{
			TemplateRef: &hub.SandboxTemplateRef{Name: in.Spec.SandboxTemplateRef.Name},
		},
		UpdateStrategy: hub.SandboxSetUpdateStrategy{Type: hub.SandboxSetUpdateType(in.Spec.UpdateStrategy.Type)},
	}
	if defaults := in.Spec.ClaimDefaults; defaults != nil {
		out.Spec.ClaimDefaults = &hub.SandboxClaimDefaults{Lifecycle: lifecycleToHub(defaults.Lifecycle)}
	}
	out.Status = hub.SandboxSetStatus{
		Replicas:           in.Status.Replicas,
		AvailableReplicas:  in.Status.ReadyReplicas,
		ObservedGeneration: in.Status.ObservedGeneration,
		Conditions:         in.Status.Conditions,
	}
}

// WarmPoolFromHub converts a warm pool from what is stored. It shares with in whatever is
// behind a pointer. A set with a pod template of its own is shown as one of a template of
// its name, which is how claims find it.
func WarmPoolFromHub(in *hub.SandboxSet, out *SandboxWarmPool) {
	out.ObjectMeta = in.ObjectMeta
	template := in.Name
	if ref := in.Spec.TemplateRef; ref != nil {
		template = ref.Name
	}
	out.Spec = SandboxWarmPoolSpec{
		Replicas:           in.Spec.Replicas,
		SandboxTemplateRef: SandboxTemplateRef{Name: template},
		UpdateStrategy:     UpdateStrategy{Type: UpdateStrategyType(cmp.Or(in.Spec.UpdateStrategy.Type, hub.SetUpdateRolling))},
	}
	if defaults := in.Spec.ClaimDefaults; defaults != nil {
		out.Spec.ClaimDefaults = &ClaimDefaults{Lifecycle: lifecycleFromHub(defaults.Lifecycle)}
	}
	out.Status = SandboxWarmPoolStatus{
		Replicas:           in.Status.Replicas,
		ReadyReplicas:      in.Status.AvailableReplicas,
		Selector:           WarmPoolSelector(in.Name),
		ObservedGeneration: in.Status.ObservedGeneration,
		Conditions:         in.Status.Conditions,
	}
}

// WarmPoolSelector is the label selector for the unused sandboxes of a pool, and empty
// without a name.
func WarmPoolSelector(name string) string {
	if name == "" {
		return ""
	}
	return hub.AgentLabelPool + "=" + hub.NameHash(name)
}
