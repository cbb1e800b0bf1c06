// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var inplaceUpdatePath = field.NewPath("spec", "inplaceUpdate")

// ignoredResources warns of resources in the inplaceUpdate of a claim that are not
// applied, if they are new.
func ignoredResources(update, old *v1alpha1.SandboxClaimInplaceUpdateOptions) []string {
	if update.Resources == nil || apiequality.Semantic.DeepEqual(update, old) {
		return nil
	}
	path := inplaceUpdatePath.Child("resources")
	var warnings []string
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"requests", update.Resources.Requests}, {"limits", update.Resources.Limits}} {
		others := len(list.of)
		if _, ok := list.of[corev1.ResourceCPU]; ok {
			others--
		}
		if others > 0 {
			warnings = append(warnings, fmt.Sprintf("%s: only cpu is changed in place; memory and all other resources are ignored", path.Child(list.name)))
		}
	}
	return warnings
}
