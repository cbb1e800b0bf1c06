// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandboxclaim stores SandboxClaims: what may be written when, how they
// are listed, and that creating one binds its sandboxes. Which sandboxes those
// are is the binder's choice.
package sandboxclaim

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/utils/clock"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Strategy is what create and update mean for a SandboxClaim.
type Strategy struct {
	base.Strategy
	clock  clock.PassiveClock
	limits validation.ClaimLimits
}

var _ base.MainStrategy = Strategy{}

// NewStrategy returns the strategy of the main resource. limits bound what one claim may
// ask for.
func NewStrategy(scheme *runtime.Scheme, c clock.PassiveClock, limits validation.ClaimLimits) Strategy {
	return Strategy{Strategy: base.NewStrategy(scheme), clock: c, limits: limits}
}

// NewStatusStrategy returns the strategy of the status subresource. It keeps the fields that only the
// allocator writes, and would not restore: claimStartTime, waiting, failedReplicas and failures.
func NewStatusStrategy(s Strategy) base.StatusStrategy[*v1alpha1.SandboxClaim] {
	return base.StatusStrategy[*v1alpha1.SandboxClaim]{
		MainStrategy: s,
		KeepRest: func(updated, stored *v1alpha1.SandboxClaim) {
			updated.Spec = stored.Spec
			base.KeepMetadata(&updated.ObjectMeta, &stored.ObjectMeta)
			status, before := &updated.Status, &stored.Status
			status.ClaimStartTime, status.Waiting = before.ClaimStartTime, before.Waiting
			status.FailedReplicas, status.Failures = before.FailedReplicas, before.Failures
			if status.Phase == v1alpha1.SandboxClaimPhaseCompleted {
				status.Waiting = nil
			}
		},
		Kept: []fieldpath.Path{
			fieldpath.MakePathOrDie("status", "claimStartTime"), fieldpath.MakePathOrDie("status", "waiting"),
			fieldpath.MakePathOrDie("status", "failedReplicas"), fieldpath.MakePathOrDie("status", "failures"),
		},
		Validate: validation.ValidateSandboxClaimStatusUpdate,
	}
}

// GetResetFields keeps server-side apply from owning what the server writes
// itself: the status, and who claimed.
func (Strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	var own []fieldpath.Path
	for _, key := range append([]string{v1alpha1.AnnotationAPI}, claimedBy...) {
		own = append(own, fieldpath.MakePathOrDie("metadata", "annotations", key))
	}
	return base.ResetFields(own...)
}

// PrepareForCreate drops the client's status, and notes who claims. What is
// bound is written into the status later, by the transaction that stores the
// claim.
func (s Strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	claim := obj.(*v1alpha1.SandboxClaim)
	base.ClearResourceVersionOnApply(ctx, &claim.ObjectMeta)
	claim.UID = withTime(claim.UID, s.clock.Now())
	claim.Status = v1alpha1.SandboxClaimStatus{}
	claim.Generation = 1
	base.SetAPI(ctx, claim)
	if v1alpha1.OfAgentSandbox(claim) {
		setChoices(claim)
	}
	canonicalize(&claim.Spec)

	who := map[string]string{}
	if info, ok := genericapirequest.UserFrom(ctx); ok {
		who[v1alpha1.AnnotationClaimedBy] = info.GetName()
		who[v1alpha1.AnnotationClaimedByIdentity] = recordIdentity(claim, info)
	}
	setClaimedBy(claim, who)
}

// PrepareForUpdate keeps the status and who claimed, and counts changes of the
// spec. After a change by another user the claim asks for something else than its
// maker did, and nothing more is made for it with the maker's rights.
func (Strategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	updated, stored := obj.(*v1alpha1.SandboxClaim), old.(*v1alpha1.SandboxClaim)
	updated.Status = stored.Status
	base.KeepAPI(updated, stored)
	if v1alpha1.OfAgentSandbox(stored) {
		keepSource(&updated.Spec, &stored.Spec)
		v1alpha1.SetDefaults_SandboxClaim(updated)
	}
	setClaimedBy(updated, stored.Annotations)
	canonicalize(&updated.Spec)
	if base.SpecChanged(&updated.Spec, &stored.Spec, canonicalize) {
		updated.Generation = stored.Generation + 1
		if by, ok := genericapirequest.UserFrom(ctx); !ok || by.GetName() != stored.Annotations[v1alpha1.AnnotationClaimedBy] {
			delete(updated.Annotations, v1alpha1.AnnotationClaimedByIdentity)
		}
		if nothingToDo(updated, stored) {
			updated.Status.ObservedGeneration = updated.Generation
		}
	}
}

// nothingToDo reports whether a change of a Completed claim leaves nothing to do. Then no server
// works on the claim, so the update itself sets observedGeneration: kubectl wait would wait for
// it. A change of metadata leaves something to do, because it is written to the sandboxes, and so
// does an earlier change that is not observed yet.
func nothingToDo(updated, stored *v1alpha1.SandboxClaim) bool {
	status := &stored.Status
	return status.Phase == v1alpha1.SandboxClaimPhaseCompleted && status.ObservedGeneration == stored.Generation &&
		(v1alpha1.SameMetadata(&updated.Spec, &stored.Spec) || status.ClaimedReplicas == 0 && len(status.Sandboxes) == 0)
}

func canonicalize(spec *v1alpha1.SandboxClaimSpec) {
	base.CanonicalizeList(spec.VolumeClaimTemplates)
	spec.ShutdownTime, spec.PauseTime = base.WholeSeconds(spec.ShutdownTime), base.WholeSeconds(spec.PauseTime)
	if spec.Lifecycle != nil {
		spec.Lifecycle.ShutdownTime = base.WholeSeconds(spec.Lifecycle.ShutdownTime)
	}
}

// Validate validates a new claim.
func (s Strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	claim := obj.(*v1alpha1.SandboxClaim)
	return append(base.ForbidResourceVersion(&claim.ObjectMeta), validation.ValidateSandboxClaim(claim, s.limits)...)
}

// ValidateUpdate validates a change of a claim.
func (s Strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateSandboxClaimUpdate(obj.(*v1alpha1.SandboxClaim), old.(*v1alpha1.SandboxClaim), s.limits)
}

// WarningsOnCreate warns of what is allowed and does not do what it seems to.
func (s Strategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	claim := obj.(*v1alpha1.SandboxClaim)
	warnings := append(s.warnings(&claim.Spec, &v1alpha1.SandboxClaimSpec{}), appliedWarnings(claim, field.NewPath("spec"))...)
	return append(warnings, base.UnknownClaimFieldWarnings(ctx, claim.Spec.VolumeClaimTemplates, nil)...)
}

// WarningsOnUpdate returns the same warnings, but only for what the update changes.
func (s Strategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	claim, stored := obj.(*v1alpha1.SandboxClaim), old.(*v1alpha1.SandboxClaim)
	warnings := append(s.warnings(&claim.Spec, &stored.Spec), lateEdits(claim, stored)...)
	return append(warnings, base.UnknownClaimFieldWarnings(ctx, claim.Spec.VolumeClaimTemplates, stored.Spec.VolumeClaimTemplates)...)
}

func (s Strategy) warnings(spec, old *v1alpha1.SandboxClaimSpec) []string {
	var warnings []string
	path := field.NewPath("spec")
	if len(spec.Runtimes) > 0 && len(old.Runtimes) == 0 {
		warnings = append(warnings, fmt.Sprintf("%s: has no effect on a claim; runtimes are set on the SandboxSet", path.Child("runtimes")))
	}
	if spec.SkipInitRuntime && len(spec.EnvVars) > 0 && len(old.EnvVars) == 0 {
		warnings = append(warnings, fmt.Sprintf("%s: has no effect with skipInitRuntime, because the agent-runtime is what takes them", path.Child("envVars")))
	}
	if !spec.ShutdownTime.Equal(old.ShutdownTime) {
		warnings = append(warnings, base.PastTimeWarning(path.Child("shutdownTime"), spec.ShutdownTime, s.clock.Now(),
			"the claimed sandboxes are deleted at once")...)
	}
	if spec.InplaceUpdate != nil {
		warnings = append(warnings, ignoredResources(spec.InplaceUpdate, old.InplaceUpdate)...)
	}
	if spec.Lifecycle != nil {
		warnings = append(warnings, lifecycleWarnings(spec, old, path, s.clock.Now())...)
	}
	return warnings
}

// GetAttrs returns what selectors of lists and watches select by.
func GetAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	claim, ok := obj.(*v1alpha1.SandboxClaim)
	if !ok {
		return nil, nil, fmt.Errorf("%T is not a SandboxClaim", obj)
	}
	fieldSet := generic.ObjectMetaFieldsSet(&claim.ObjectMeta, true)
	fieldSet["status.phase"] = string(claim.Status.Phase)
	return claim.Labels, fieldSet, nil
}
