// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/rights"
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
	)
	claimLabels = sets.New(
		v1alpha1.LabelClaimName,
		v1alpha1.LabelReservedFailedSandbox,
	)
)

// rightsNeeded returns what rightsFor does, of objects of the store.
func rightsNeeded(obj, old runtime.Object) ([]rights.Right, error) {
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
	return rightsFor(sandbox, before), nil
}

// rightsFor returns the rights that a write takes beyond the one to write sandboxes. A
// new sandbox has an empty one before it.
func rightsFor(sandbox, old *v1alpha1.Sandbox) []rights.Right {
	meta := field.NewPath("metadata")
	needed := rights.ForOwners(beyondTheBinding(sandbox, old), old.OwnerReferences)
	pool := v1alpha1.PoolOf(old)
	returns := validation.ReturnsToPool(sandbox, old)
	if returns {
		// That the claim lets it go is a part of that, for which the right to adopt is asked.
		needed = slices.DeleteFunc(needed, func(r rights.Right) bool { return r.Verb == rights.VerbBind && r.Left != nil })
	}
	change := func(path *field.Path, key string, claims, removed bool) {
		switch {
		case claims && returns && removed:
		case claims:
			needed = append(needed, rights.Bind(path.Key(key)))
		case pool != nil && rights.IsSystemKey(key): // what the next claim would be given
			needed = append(needed, rights.Adopt(pool.Name, path.Key(key)))
		}
	}
	for _, key := range rights.Changed(sandbox.Annotations, old.Annotations) {
		_, kept := sandbox.Annotations[key]
		change(meta.Child("annotations"), key, claimAnnotations.Has(key) || strings.HasPrefix(key, v1alpha1.SandlotKeyPrefix), !kept)
	}
	for _, key := range rights.Changed(sandbox.Labels, old.Labels) {
		claimed := key == v1alpha1.LabelSandboxClaimed &&
			(sandbox.Labels[key] == v1alpha1.ClaimedTrue || old.Labels[key] == v1alpha1.ClaimedTrue)
		value, kept := sandbox.Labels[key]
		change(meta.Child("labels"), key, claimed || claimLabels.Has(key), !kept || value == v1alpha1.ClaimedFalse)
	}
	if pool != nil && base.SpecChanged(&sandbox.Spec.EmbeddedSandboxTemplate, &old.Spec.EmbeddedSandboxTemplate, base.CanonicalizeTemplate) {
		needed = append(needed, rights.Adopt(pool.Name, field.NewPath("spec", "template")))
	}
	return needed
}

// beyondTheBinding returns the owner references of a sandbox, but for a new one to the
// claim that it is bound to already. That one says no more than that the sandbox goes with
// its claim, and who may write sandboxes may end each one at any time anyway.
func beyondTheBinding(sandbox, old *v1alpha1.Sandbox) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(sandbox.OwnerReferences), func(ref metav1.OwnerReference) bool {
		claim := &metav1.ObjectMeta{Name: ref.Name, UID: ref.UID}
		return ref.APIVersion == v1alpha1.SchemeGroupVersion.String() && ref.Kind == "SandboxClaim" && ref.UID != "" &&
			v1alpha1.IsBoundTo(old, claim) && v1alpha1.IsBoundTo(sandbox, claim) &&
			!slices.ContainsFunc(old.OwnerReferences, func(had metav1.OwnerReference) bool { return had.UID == ref.UID })
	})
}
