// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// replicasPaths is the field that a scale writes, in each version that sets are served in.
var replicasPaths = base.ScaledField{}

func init() {
	for _, version := range v1alpha1.ServedVersions {
		replicasPaths[version] = fieldpath.MakePathOrDie("spec", "replicas")
	}
}

// ScaleREST serves the size of a pool as autoscaling/v1 Scale.
type ScaleREST = base.ScaleREST[*v1alpha1.SandboxSet]

func newScaleREST(store *genericregistry.Store, c clock.PassiveClock) *ScaleREST {
	return &ScaleREST{TableConvertor: newScaleTableConvertor(c), Store: store, Scaled: Scaled(selectorOf)}
}

// Scaled says what the scale of a set is. selector finds the unused sandboxes of a set.
func Scaled(selector func(*v1alpha1.SandboxSet) string) base.Scaled[*v1alpha1.SandboxSet] {
	return base.Scaled[*v1alpha1.SandboxSet]{
		Kind: "set", Field: replicasPaths,
		Of: func(set *v1alpha1.SandboxSet) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) {
			return autoscalingv1.ScaleSpec{Replicas: ptr.Deref(set.Spec.Replicas, 0)},
				autoscalingv1.ScaleStatus{Replicas: set.Status.Replicas, Selector: selector(set)}
		},
		Resize: func(set *v1alpha1.SandboxSet, replicas int32) { set.Spec.Replicas = &replicas },
		Refusal: func(replicas int32) string {
			if replicas < 0 {
				return "must be greater than or equal to 0"
			}
			return ""
		},
	}
}

// selectorOf finds the unused sandboxes of a set. It is computed until the
// controller has written it, so that an autoscaler that is faster than the
// controller never gets an empty one, which selects everything.
func selectorOf(set *v1alpha1.SandboxSet) string {
	if set.Status.Selector != "" {
		return set.Status.Selector
	}
	return labels.Set{
		v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse,
		v1alpha1.LabelSandboxPool:    set.Name,
	}.String()
}

// AddScaleToScheme registers autoscaling/v1 Scale, in its own version and in the
// internal one, to which patches are converted on their way. For the latter the
// same holds as for the kinds of our own group: one Go type under two versions,
// and only in the scheme of the API server.
func AddScaleToScheme(scheme *runtime.Scheme) {
	internal := schema.GroupVersion{Group: autoscalingv1.GroupName, Version: runtime.APIVersionInternal}
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})
	scheme.AddKnownTypes(internal, &autoscalingv1.Scale{})
}
