// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// withoutPolicy refuses what a claim adds where no SandboxTemplate could let it. It says
// where the policy would have to be: the set has no such field.
func withoutPolicy(claim *v1alpha1.SandboxClaim, e *claims.Eligible) *RefusedError {
	set := "the set"
	if e.MakeFrom != nil {
		set = "SandboxSet " + e.MakeFrom.Name
	}
	refuse := func(reason, policy string, path *field.Path) *RefusedError {
		return refusal(reason, field.ErrorList{field.Forbidden(path, fmt.Sprintf("not allowed by the template policy: "+
			"%s refers to no SandboxTemplate, which alone can have one: it takes a SandboxTemplate with %s, and the set's templateRef to it",
			set, policy))})
	}
	if len(claim.Spec.Env) > 0 {
		return refuse(v1alpha1.ReasonEnvVarsInjectionRejected, "envVarsInjectionPolicy", envPath)
	}
	return refuse(v1alpha1.ReasonVolumeClaimTemplatesRejected, "volumeClaimTemplatesPolicy", volumesPath)
}
