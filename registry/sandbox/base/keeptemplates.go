// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"bytes"
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// KeepStoredTemplates returns an update in which a PUT keeps the stored text of each pod template and volume
// claim template that decodes to the same. Typed clients cannot send back exactly what they have
// read, because their types add "resources": {} and "status": {}. Such a PUT must not write the
// object, change the owner of a field or make a new revision of a pool.
//
// A patch or an apply contains only what it changes, so its text is stored.
func KeepStoredTemplates(info rest.UpdatedObjectInfo) rest.UpdatedObjectInfo {
	return &keepStoredTemplates{info}
}

type keepStoredTemplates struct {
	rest.UpdatedObjectInfo
}

// UpdatedObject implements rest.UpdatedObjectInfo.
func (u *keepStoredTemplates) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	updated, err := u.UpdatedObjectInfo.UpdatedObject(ctx, old)
	if err != nil || !isPut(ctx) {
		return updated, err
	}
	rewritten := old.DeepCopyObject()
	if !copyTexts(rewritten, updated) {
		return updated, nil
	}
	// Managed fields are computed from the difference to the object that the update starts from, so
	// update again from an object that has the new texts.
	if updated, err = u.UpdatedObjectInfo.UpdatedObject(ctx, rewritten); err != nil {
		return nil, err
	}
	copyTexts(updated, old)
	return updated, nil
}

func isPut(ctx context.Context) bool {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	return ok && info.Verb == "update"
}

// copyTexts copies the templates of one object to another if they decode to the same and have
// another text. It reports whether it has copied any.
func copyTexts(into, from runtime.Object) bool {
	template, claims := rawTemplates(into)
	fromTemplate, fromClaims := rawTemplates(from)
	taken := false
	if template != nil && fromTemplate != nil && rewritten(*template, *fromTemplate, v1alpha1.SamePodTemplate) {
		*template, taken = (*fromTemplate).DeepCopy(), true
	}
	for i := range min(len(claims), len(fromClaims)) {
		if rewritten(&claims[i], &fromClaims[i], v1alpha1.SameVolumeClaimTemplate) {
			fromClaims[i].DeepCopyInto(&claims[i])
			taken = true
		}
	}
	return taken
}

// rawTemplates returns the field of an object that holds a pod template, or nil, and its
// volume claim templates.
func rawTemplates(obj runtime.Object) (**runtime.RawExtension, []runtime.RawExtension) {
	switch obj := obj.(type) {
	case *v1alpha1.Sandbox:
		return &obj.Spec.Template, obj.Spec.VolumeClaimTemplates
	case *v1alpha1.SandboxSet:
		return &obj.Spec.Template, obj.Spec.VolumeClaimTemplates
	case *v1alpha1.SandboxTemplate:
		return &obj.Spec.Template, obj.Spec.VolumeClaimTemplates
	case *v1alpha1.SandboxClaim:
		return nil, obj.Spec.VolumeClaimTemplates
	}
	return nil, nil
}

// rewritten reports whether two texts decode to the same but differ in more than white space and
// the order of keys.
func rewritten(a, b *runtime.RawExtension, same func(a, b *runtime.RawExtension) bool) bool {
	if a == nil || b == nil {
		return false
	}
	canonicalA, canonicalB := CanonicalExtension(a), CanonicalExtension(b)
	if canonicalA == nil || canonicalB == nil || bytes.Equal(canonicalA.Raw, canonicalB.Raw) {
		return false
	}
	return same(a, b)
}
