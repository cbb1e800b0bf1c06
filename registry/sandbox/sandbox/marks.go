// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
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
	needed := rights.ForOwners(sandbox.OwnerReferences, old.OwnerReferences)
	pool := v1alpha1.PoolOf(old)
	change := func(path *field.Path, key string, claims bool) {
		switch {
		case claims:
			needed = append(needed, rights.Bind(path.Key(key)))
		case pool != nil && rights.IsSystemKey(key): // what the next claim would be given
			needed = append(needed, rights.Adopt(pool.Name, path.Key(key)))
		}
	}
	for _, key := range rights.Changed(sandbox.Annotations, old.Annotations) {
		change(meta.Child("annotations"), key, claimAnnotations.Has(key) || strings.HasPrefix(key, v1alpha1.SandlotKeyPrefix))
	}
	for _, key := range rights.Changed(sandbox.Labels, old.Labels) {
		claimed := key == v1alpha1.LabelSandboxClaimed &&
			(sandbox.Labels[key] == v1alpha1.ClaimedTrue || old.Labels[key] == v1alpha1.ClaimedTrue)
		change(meta.Child("labels"), key, claimed || claimLabels.Has(key))
	}
	if pool != nil && base.SpecChanged(&sandbox.Spec.EmbeddedSandboxTemplate, &old.Spec.EmbeddedSandboxTemplate, base.CanonicalizeTemplate) {
		needed = append(needed, rights.Adopt(pool.Name, field.NewPath("spec", "template")))
	}
	return needed
}
