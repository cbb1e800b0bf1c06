// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// chosen is what is said of a choice that nothing comes of any more.
const chosen = "is immutable once the claim is Completed, because it gets no more sandboxes; create another claim"

// validateChoicesUnchanged keeps what a claim that is Completed says of where its sandboxes
// come from: it would not be true of those that it has. While it is Claiming it may be
// changed, which rescues one that names what is not there.
func validateChoicesUnchanged(claim, old *v1alpha1.SandboxClaim, path *field.Path) field.ErrorList {
	if old.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		return nil
	}
	var errs field.ErrorList
	is, was := &claim.Spec, &old.Spec
	for _, name := range changedSource(is, was) {
		errs = append(errs, field.Forbidden(path.Child(name), chosen))
	}
	if is.OnShortage != was.OnShortage {
		errs = append(errs, field.Forbidden(path.Child("onShortage"), chosen))
	}
	return errs
}

// changedSource returns the names of the fields that say where the sandboxes of a claim come from
// and that a change of the claim changes.
func changedSource(is, was *v1alpha1.SandboxClaimSpec) []string {
	var names []string
	for _, source := range []struct {
		name string
		same bool
	}{
		{"templateName", is.TemplateName == was.TemplateName},
		{"sandboxTemplateRef", apiequality.Semantic.DeepEqual(is.SandboxTemplateRef, was.SandboxTemplateRef)},
		{"warmPoolRef", apiequality.Semantic.DeepEqual(is.WarmPoolRef, was.WarmPoolRef)},
		{"warmPool", is.WarmPool == was.WarmPool},
		{"createOnNoStock", apiequality.Semantic.DeepEqual(is.CreateOnNoStock, was.CreateOnNoStock)},
	} {
		if !source.same {
			names = append(names, source.name)
		}
	}
	return names
}

// ChoosesPods reports whether a change of a claim chooses what the next sandboxes of the claim
// run: which pool or template they are of, and what is put into them; or who reaches those that it
// has through the gateway of the E2B API, and by whose key they are said to be made.
func ChoosesPods(is, was *v1alpha1.SandboxClaimSpec) bool {
	return len(changedSource(is, was)) > 0 ||
		is.Annotations[v1alpha1.AnnotationE2BPrivate] != was.Annotations[v1alpha1.AnnotationE2BPrivate] ||
		is.Annotations[v1alpha1.AnnotationE2BKeyID] != was.Annotations[v1alpha1.AnnotationE2BKeyID] ||
		!apiequality.Semantic.DeepEqual(is.InplaceUpdate, was.InplaceUpdate) ||
		!apiequality.Semantic.DeepEqual(is.Env, was.Env) ||
		!sameVolumeClaims(is.VolumeClaimTemplates, was.VolumeClaimTemplates)
}
