// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentsandbox

import (
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	agents "github.com/sandlot-io/sandlot/apis/agents/v1alpha1"
	agentsv1beta1 "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// sandboxScale is the only subresource that not all versions of a group have.
const sandboxScale = "sandboxes/scale"

// ServedIn returns of the storage of a group what one of its versions serves.
func ServedIn(version schema.GroupVersion, storage map[string]rest.Storage) map[string]rest.Storage {
	if storage[sandboxScale] == nil || version == agents.SchemeGroupVersion {
		return storage
	}
	served := maps.Clone(storage)
	delete(served, sandboxScale)
	return served
}

// scaledSandbox says what the scale of a sandbox is: at 1 it runs, and at 0 it is suspended. It has no other size.
var scaledSandbox = base.Scaled[*v1alpha1.Sandbox]{
	Kind: "sandbox",
	// In each version that sandboxes are served in.
	Field: base.ScaledField{
		v1alpha1.SchemeGroupVersion:      fieldpath.MakePathOrDie("spec", "paused"),
		agentsv1beta1.SchemeGroupVersion: fieldpath.MakePathOrDie("spec", "operatingMode"),
		agents.SchemeGroupVersion:        fieldpath.MakePathOrDie("spec", "replicas"),
	},
	Of: func(sandbox *v1alpha1.Sandbox) (spec autoscalingv1.ScaleSpec, status autoscalingv1.ScaleStatus) {
		status.Selector = agentsv1beta1.SelectorOf(sandbox)
		if !sandbox.Spec.Paused {
			spec.Replicas = 1
		}
		if agentsv1beta1.HasPod(sandbox) {
			status.Replicas = 1
		}
		return spec, status
	},
	Resize: func(sandbox *v1alpha1.Sandbox, replicas int32) { sandbox.Spec.Paused = replicas == 0 },
	Refusal: func(replicas int32) string {
		if replicas != 0 && replicas != 1 {
			return "must be 1, or 0 to suspend the sandbox"
		}
		return ""
	},
}
