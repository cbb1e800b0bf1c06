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
	if is.TemplateName != was.TemplateName {
		errs = append(errs, field.Forbidden(path.Child("templateName"), chosen))
	}
	if !apiequality.Semantic.DeepEqual(is.SandboxTemplateRef, was.SandboxTemplateRef) {
		errs = append(errs, field.Forbidden(path.Child("sandboxTemplateRef"), chosen))
	}
	if !apiequality.Semantic.DeepEqual(is.WarmPoolRef, was.WarmPoolRef) {
		errs = append(errs, field.Forbidden(path.Child("warmPoolRef"), chosen))
	}
	if is.WarmPool != was.WarmPool {
		errs = append(errs, field.Forbidden(path.Child("warmPool"), chosen))
	}
	if !apiequality.Semantic.DeepEqual(is.CreateOnNoStock, was.CreateOnNoStock) {
		errs = append(errs, field.Forbidden(path.Child("createOnNoStock"), chosen))
	}
	if is.OnShortage != was.OnShortage {
		errs = append(errs, field.Forbidden(path.Child("onShortage"), chosen))
	}
	return errs
}

// ChoosesPods reports whether a change of a claim chooses what the next sandboxes of the claim
// run: which pool or template they are of, and what is put into them.
func ChoosesPods(is, was *v1alpha1.SandboxClaimSpec) bool {
	return is.TemplateName != was.TemplateName || is.WarmPool != was.WarmPool ||
		!apiequality.Semantic.DeepEqual(is.SandboxTemplateRef, was.SandboxTemplateRef) ||
		!apiequality.Semantic.DeepEqual(is.WarmPoolRef, was.WarmPoolRef) ||
		!apiequality.Semantic.DeepEqual(is.CreateOnNoStock, was.CreateOnNoStock) ||
		!apiequality.Semantic.DeepEqual(is.InplaceUpdate, was.InplaceUpdate) ||
		!apiequality.Semantic.DeepEqual(is.Env, was.Env) ||
		!sameVolumeClaims(is.VolumeClaimTemplates, was.VolumeClaimTemplates)
}
