// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// A sandbox is believed by its marks: its owner reference says in which pool it is,
// and what a claim writes says whose it is. So the right to write sandboxes is not
// enough to write those.

// claimAnnotations and claimLabels are what claims write. Of LabelSandboxClaimed only
// ClaimedTrue is a claim's.
var (
	claimAnnotations = sets.New(
		v1alpha1.AnnotationLock,
		v1alpha1.AnnotationOwner,
		v1alpha1.AnnotationClaimTimestamp,
		v1alpha1.AnnotationInitRuntimeRequest,
		v1alpha1.AnnotationUpdatedMetadataInClaim,
		v1alpha1.AnnotationE2BKeyID,
		v1alpha1.AnnotationE2BPrivate,
	)
	claimLabels = sets.New(
		v1alpha1.LabelClaimName,
		v1alpha1.LabelReservedFailedSandbox,
		v1alpha1.LabelSandboxID,
		v1alpha1.AgentLabelClaimUID,
	)
)

// rightsNeeded returns what rightsFor does, of objects of the store.
func rightsNeeded(obj, old runtime.Object) ([]accesscheck.Right, error) {
	if obj == nil {
		return nil, nil // who may delete sandboxes may delete those of pools and claims
	}
	sandbox, ok := obj.(*v1alpha1.Sandbox)
	if !ok {
		return nil, fmt.Errorf("checking a write: %T is not a Sandbox", obj)
	}
	before := &v1alpha1.Sandbox{}
	if old != nil {
		if before, ok = old.(*v1alpha1.Sandbox); !ok {
			return nil, fmt.Errorf("checking a write: %T is not a Sandbox", old)
		}
	}
	if validation.ReturnsToPool(sandbox, before) {
		return rightsFor(sandbox, letGo(before, sandbox)), nil
	}
	needed := rightsFor(sandbox, before)
	if old == nil && leavesItsTemplate(sandbox) {
		needed = append(needed, accesscheck.Bind(field.NewPath("metadata", "labels").Key(v1alpha1.LabelSandboxTemplate)))
	}
	return needed, nil
}

// podChangeRights returns the rights that an update requires because it changes what the next pod
// of a sandbox runs. An update that returns a sandbox to its pool requires none: it restores what
// the pool has.
func podChangeRights(obj, old runtime.Object) []accesscheck.Right {
	sandbox, ok := obj.(*v1alpha1.Sandbox)
	before, was := old.(*v1alpha1.Sandbox)
	if !ok || !was || !validation.ChangesPod(sandbox, before) || validation.ReturnsToPool(sandbox, before) {
		return nil
	}
	return accesscheck.ToChangePod(isHeld(before), before.Labels[v1alpha1.LabelClaimedBy], field.NewPath("spec", "template"))
}

// leavesItsTemplate reports whether a new sandbox has the label of another SandboxTemplate than it
// refers to. The NetworkPolicy of a template selects by that label. Members of pools refer to a
// revision of the template, and adopting them is a right of its own.
func leavesItsTemplate(sandbox *v1alpha1.Sandbox) bool {
	label, of := sandbox.Labels[v1alpha1.LabelSandboxTemplate], labelOfReference(sandbox)
	return of != "" && label != of && v1alpha1.PoolOf(sandbox) == nil
}

// isHeld reports whether a sandbox is or was bound to a claim. Any mark of a claim counts, because
// programs that claim by themselves do not write all of them.
func isHeld(sandbox *v1alpha1.Sandbox) bool {
	owner := sandbox.Annotations[v1alpha1.AnnotationOwner]
	return owner != "" && owner != v1alpha1.OwnerScaleDown || sandbox.Annotations[v1alpha1.AnnotationLock] != "" ||
		sandbox.Labels[v1alpha1.LabelSandboxClaimed] == v1alpha1.ClaimedTrue || sandbox.Labels[v1alpha1.LabelClaimedBy] != ""
}

// letGo is a sandbox without the marks of claims that are taken away when it goes back to
// its pool: that is a part of the return, which the right to adopt is asked for.
func letGo(old, returned *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	free := *old
	free.OwnerReferences = slices.DeleteFunc(slices.Clone(old.OwnerReferences), func(ref metav1.OwnerReference) bool {
		return v1alpha1.OwnerKind(&ref) == "SandboxClaim" && !slices.ContainsFunc(returned.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == ref.Kind && r.UID == ref.UID })
	})
	free.Labels, free.Annotations = maps.Clone(old.Labels), maps.Clone(old.Annotations)
	gone := func(kept map[string]string) func(key, _ string) bool {
		return func(key, _ string) bool { _, ok := kept[key]; return !ok }
	}
	maps.DeleteFunc(free.Labels, gone(returned.Labels))
	maps.DeleteFunc(free.Annotations, gone(returned.Annotations))
	if _, ok := free.Labels[v1alpha1.LabelSandboxClaimed]; ok {
		free.Labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedFalse
	}
	return &free
}

// rightsFor returns the rights that a write takes beyond the one to write sandboxes. A
// new sandbox has an empty one before it.
func rightsFor(sandbox, old *v1alpha1.Sandbox) []accesscheck.Right {
	meta := field.NewPath("metadata")
	needed := accesscheck.ForOwners(beyondTheBinding(sandbox, old), old.OwnerReferences)
	pool := v1alpha1.PoolOf(old)
	change := func(path *field.Path, key string, claims bool) {
		switch {
		case claims:
			needed = append(needed, accesscheck.Bind(path.Key(key)))
		case pool != nil && accesscheck.IsSystemKey(key): // what the next claim would be given
			needed = append(needed, accesscheck.Adopt(pool.Name, path.Key(key)))
		}
	}
	for _, key := range accesscheck.Changed(sandbox.Annotations, old.Annotations) {
		if key == v1alpha1.AnnotationAPI { // base.SetAPI and base.KeepAPI write it, whatever the request has
			continue
		}
		change(meta.Child("annotations"), key, claimAnnotations.Has(key) || strings.HasPrefix(key, v1alpha1.SandlotKeyPrefix))
	}
	for _, key := range accesscheck.Changed(sandbox.Labels, old.Labels) {
		claimed := key == v1alpha1.LabelSandboxClaimed &&
			(sandbox.Labels[key] == v1alpha1.ClaimedTrue || old.Labels[key] == v1alpha1.ClaimedTrue)
		change(meta.Child("labels"), key, claimed || claimLabels.Has(key) || strings.HasPrefix(key, v1alpha1.SandlotKeyPrefix))
	}
	if pool != nil {
		needed = append(needed, rightsInPool(pool.Name, sandbox, old)...)
	}
	return needed
}

// rightsInPool returns the rights that a write takes because it changes the spec of a sandbox in the
// pool of a set, or holds the sandbox by another finalizer.
func rightsInPool(set string, sandbox, old *v1alpha1.Sandbox) []accesscheck.Right {
	var needed []accesscheck.Right
	if slices.ContainsFunc(sandbox.Finalizers, func(f string) bool { return !slices.Contains(old.Finalizers, f) }) {
		needed = append(needed, accesscheck.Adopt(set, field.NewPath("metadata", "finalizers")))
	}
	if base.SpecChanged(&sandbox.Spec, &old.Spec, canonicalize) {
		before := old.Spec.DeepCopy()
		canonicalize(before)
		for _, path := range changedInPool(field.NewPath("spec"), reflect.ValueOf(&sandbox.Spec).Elem(), reflect.ValueOf(before).Elem()) {
			needed = append(needed, accesscheck.Adopt(set, path))
		}
	}
	return needed
}

// freeInPool are the fields of the spec of a sandbox in a pool that a user can change without the
// right to adopt, because the next claim is not given them: a sandbox that is paused is not claimed,
// and one that is resumed is claimed when it is available again.
var freeInPool = sets.New("paused")

// changedInPool returns the paths of the fields of a spec that differ, except for freeInPool. Both
// must be canonical.
func changedInPool(path *field.Path, spec, old reflect.Value) []*field.Path {
	var changed []*field.Path
	for part, value := range spec.Fields() {
		before := old.FieldByIndex(part.Index)
		switch name, _, _ := strings.Cut(part.Tag.Get("json"), ","); {
		case name == "": // inline
			changed = append(changed, changedInPool(path, value, before)...)
		case !freeInPool.Has(name) && !apiequality.Semantic.DeepEqual(value.Interface(), before.Interface()):
			changed = append(changed, path.Child(name))
		}
	}
	return changed
}

// beyondTheBinding returns the owner references of a sandbox, except for a new one to the
// claim that it is bound to already. That one says no more than that the sandbox goes with
// its claim, and who may write sandboxes may end each one at any time anyway.
func beyondTheBinding(sandbox, old *v1alpha1.Sandbox) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(sandbox.OwnerReferences), func(ref metav1.OwnerReference) bool {
		claim := &metav1.ObjectMeta{Name: ref.Name, UID: ref.UID}
		return v1alpha1.OwnerKind(&ref) == "SandboxClaim" && ref.UID != "" &&
			v1alpha1.IsBoundTo(old, claim) && v1alpha1.IsBoundTo(sandbox, claim) &&
			!slices.ContainsFunc(old.OwnerReferences, func(had metav1.OwnerReference) bool { return had.UID == ref.UID })
	})
}
