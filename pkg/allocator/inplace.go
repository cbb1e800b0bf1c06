// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

var inplaceUpdatePath = field.NewPath("spec", "inplaceUpdate")

// inPlace returns the pod template of a claim's sandbox with the claim's inplaceUpdate in
// it. A new claim is refused where the template does not take all of it, with a
// *RefusedError. One that is stored gets the rest; where the template cannot be read, that
// is the template as it is.
func inPlace(template *runtime.RawExtension, claim *v1alpha1.SandboxClaim) (inplace.Applied, error) {
	as, err := inplace.Apply(template, claim.Spec.InplaceUpdate, inplaceUpdatePath)
	if err != nil {
		as.Rejected = field.ErrorList{field.Invalid(inplaceUpdatePath, "", err.Error())}
	}
	if len(as.Rejected) > 0 && claim.ResourceVersion == "" {
		return as, refusal(v1alpha1.ReasonInplaceUpdateRejected, as.Rejected)
	}
	return as, nil
}

// changeModel puts a claim's inplaceUpdate into the model of its fresh sandboxes: they are
// made with it. The cluster would take no pod of a template that does not take it, so none
// are made then. The model is changed.
func changeModel(claim *v1alpha1.SandboxClaim, model *v1alpha1.Sandbox) (*RefusedError, error) {
	as, err := inplace.Apply(model.Spec.Template, claim.Spec.InplaceUpdate, inplaceUpdatePath)
	if err != nil {
		return nil, malformed(err)
	}
	if len(as.Rejected) > 0 {
		return refusal(v1alpha1.ReasonInplaceUpdateRejected, as.Rejected), nil
	}
	model.Spec.Template = as.Template
	return nil, nil
}
