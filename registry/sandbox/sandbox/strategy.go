// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandbox stores Sandboxes: what may be written when, and how they are
// listed. It does not decide which claim gets one.
package sandbox

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Strategy is what create and update mean for a Sandbox.
type Strategy struct {
	base.Strategy
	clock clock.PassiveClock
	// getsToken reports whether the agent-runtime of a sandbox that comes into a pool gets an
	// access token there; nil is none.
	getsToken GetsToken
}

var _ base.MainStrategy = Strategy{}

// NewStrategy returns the strategy of the main resource.
func NewStrategy(scheme *runtime.Scheme, c clock.PassiveClock) Strategy {
	return Strategy{Strategy: base.NewStrategy(scheme), clock: c}
}

// NewStatusStrategy returns the strategy of the status subresource.
func NewStatusStrategy(s Strategy) base.StatusStrategy[*v1alpha1.Sandbox] {
	return base.StatusStrategy[*v1alpha1.Sandbox]{
		MainStrategy: s,
		KeepRest: func(updated, stored *v1alpha1.Sandbox) {
			updated.Spec = stored.Spec
			base.KeepMetadata(&updated.ObjectMeta, &stored.ObjectMeta)
			s.noteRestart(updated, stored)
		},
		Validate: validation.ValidateSandboxStatusUpdate,
	}
}

// PrepareForCreate replaces the client's status with that of every sandbox at its birth.
func (s Strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	sandbox := obj.(*v1alpha1.Sandbox)
	base.SetAPI(ctx, sandbox)
	base.ClearResourceVersionOnApply(ctx, &sandbox.ObjectMeta)
	sandbox.Generation = 1
	canonicalize(&sandbox.Spec)
	labelTemplate(sandbox)
	sandbox.Status = podtemplate.StatusAtBirth(sandbox)
	s.enterPool(ctx, sandbox)
}

// labelTemplate says of which template a sandbox is, where it does not say so
// itself. Its pod gets the label at birth, and is selected by it.
func labelTemplate(sandbox *v1alpha1.Sandbox) {
	if label := labelOfReference(sandbox); label != "" {
		setLabelTemplate(sandbox, label)
	}
}

// labelOfReference returns the label of the SandboxTemplate that a sandbox refers to; empty if it
// refers to none.
func labelOfReference(sandbox *v1alpha1.Sandbox) string {
	ref := sandbox.Spec.TemplateRef
	if ref == nil || ref.Kind != "" && ref.Kind != v1alpha1.TemplateKindSandboxTemplate || ref.Name == "" {
		return ""
	}
	return v1alpha1.TemplateLabel(ref.Name)
}

func setLabelTemplate(sandbox *v1alpha1.Sandbox, value string) {
	if _, ok := sandbox.Labels[v1alpha1.LabelSandboxTemplate]; ok {
		return
	}
	if sandbox.Labels == nil {
		sandbox.Labels = map[string]string{}
	}
	sandbox.Labels[v1alpha1.LabelSandboxTemplate] = value
}

// PrepareForUpdate keeps the status, and the label that PrepareForCreate has given
// to who did not name it, and counts changes of the spec. A change that leaves its
// controller nothing to do is observed by this write.
func (s Strategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	updated, stored := obj.(*v1alpha1.Sandbox), old.(*v1alpha1.Sandbox)
	updated.Status = stored.Status
	if validation.ReturnsToPool(updated, stored) {
		base.KeepAPI(updated, &v1alpha1.Sandbox{}) // the claim it was of is over
	} else {
		base.KeepAPI(updated, stored)
	}
	canonicalize(&updated.Spec)
	if label := stored.Labels[v1alpha1.LabelSandboxTemplate]; label != "" && updated.Spec.TemplateRef != nil {
		setLabelTemplate(updated, label)
	}
	if base.SpecChanged(&updated.Spec, &stored.Spec, canonicalize) {
		updated.Generation = stored.Generation + 1
		if s.nothingToDo(updated, stored) {
			updated.Status = *stored.Status.DeepCopy()
			claims.Observe(&updated.Status, updated.Generation)
		}
	}
	if !v1alpha1.IsInPool(stored) {
		s.enterPool(ctx, updated)
	}
}

// nothingToDo reports whether a change of a sandbox is one of its times alone, while none of
// them has come, before or after. The status that follows from that is known: without this,
// the whole object would be written once more, for observedGeneration. A sandbox that was not
// observed before has other changes that its controller has to see.
func (s Strategy) nothingToDo(updated, stored *v1alpha1.Sandbox) bool {
	other := updated.Spec
	other.ShutdownTime, other.PauseTime = stored.Spec.ShutdownTime, stored.Spec.PauseTime
	return updated.DeletionTimestamp == nil && !v1alpha1.SandboxExpired(stored) && !s.isDue(&updated.Spec) && !s.isDue(&stored.Spec) &&
		claims.IsObserved(&stored.Status, stored.Generation) && !base.SpecChanged(&other, &stored.Spec, canonicalize)
}

// isDue reports whether a time has come at which a controller pauses a sandbox or ends it.
func (s Strategy) isDue(spec *v1alpha1.SandboxSpec) bool {
	now := s.clock.Now()
	return slices.ContainsFunc([]*metav1.Time{spec.ShutdownTime, spec.PauseTime}, func(t *metav1.Time) bool {
		return t != nil && !now.Before(t.Time)
	})
}

func canonicalize(spec *v1alpha1.SandboxSpec) {
	base.CanonicalizeTemplate(&spec.EmbeddedSandboxTemplate)
	spec.ShutdownTime = base.WholeSeconds(spec.ShutdownTime)
	spec.PauseTime = base.WholeSeconds(spec.PauseTime)
}

// Validate validates a new sandbox.
func (Strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	sandbox := obj.(*v1alpha1.Sandbox)
	return append(base.ForbidResourceVersion(&sandbox.ObjectMeta), validation.ValidateSandbox(sandbox)...)
}

// ValidateUpdate validates a change of a sandbox.
func (Strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateSandboxUpdate(obj.(*v1alpha1.Sandbox), old.(*v1alpha1.Sandbox))
}

// WarningsOnCreate warns of times that have passed, of fields that are not known, and of
// what a pause does not keep.
func (s Strategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	sandbox := obj.(*v1alpha1.Sandbox)
	warnings := s.warnings(sandbox, &v1alpha1.SandboxSpec{})
	if metav1.GetControllerOfNoCopy(sandbox) != nil {
		return warnings // what it is a copy of was warned of
	}
	warnings = append(warnings, base.UnknownFieldWarnings(ctx, &sandbox.Spec.EmbeddedSandboxTemplate, &v1alpha1.EmbeddedSandboxTemplate{})...)
	return append(warnings, validation.PersistenceWarnings(sandbox.Spec.PersistentContents)...)
}

// WarningsOnUpdate warns likewise of what is new.
func (s Strategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	spec, stored := &obj.(*v1alpha1.Sandbox).Spec, &old.(*v1alpha1.Sandbox).Spec
	warnings := s.warnings(obj.(*v1alpha1.Sandbox), stored)
	warnings = append(warnings, base.UnknownFieldWarnings(ctx, &spec.EmbeddedSandboxTemplate, &stored.EmbeddedSandboxTemplate)...)
	if slices.Equal(spec.PersistentContents, stored.PersistentContents) {
		return warnings // controllers write it often
	}
	return append(warnings, validation.PersistenceWarnings(spec.PersistentContents)...)
}

func (s Strategy) warnings(sandbox *v1alpha1.Sandbox, old *v1alpha1.SandboxSpec) []string {
	spec := &sandbox.Spec
	var warnings []string
	now, path := s.clock.Now(), field.NewPath("spec")
	if !spec.ShutdownTime.Equal(old.ShutdownTime) {
		what := "the sandbox is deleted at once"
		if v1alpha1.KeptAtShutdown(sandbox) {
			what = "the pod of the sandbox is deleted at once, and the sandbox stays"
		}
		warnings = append(warnings, base.PastTimeWarning(path.Child("shutdownTime"), spec.ShutdownTime, now, what)...)
	}
	// One that is resumed with its old pause time is paused again.
	if !spec.PauseTime.Equal(old.PauseTime) || old.Paused && !spec.Paused {
		warnings = append(warnings, base.PastTimeWarning(path.Child("pauseTime"), spec.PauseTime, now, "the sandbox is paused at once")...)
	}
	return warnings
}

// GetAttrs returns what selectors of lists and watches select by.
func GetAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	sandbox, ok := obj.(*v1alpha1.Sandbox)
	if !ok {
		return nil, nil, fmt.Errorf("%T is not a Sandbox", obj)
	}
	fieldSet := generic.ObjectMetaFieldsSet(&sandbox.ObjectMeta, true)
	fieldSet["status.phase"] = string(sandbox.Status.Phase)
	return sandbox.Labels, fieldSet, nil
}
