// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// checkSourceBefore admits only updates that leave a claim of agent-sandbox with a pool of the
// template that it names beside the pool, if they change one of them. A pool may have another
// template since: that is no reason to refuse every other change.
func (r *REST) checkSourceBefore(admit rest.ValidateObjectUpdateFunc) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, obj, old runtime.Object) error {
		updated, isClaim := obj.(*v1alpha1.SandboxClaim)
		stored, wasClaim := old.(*v1alpha1.SandboxClaim)
		if isClaim && wasClaim && !sameSource(&updated.Spec, &stored.Spec) {
			if err := r.binder.CheckSource(ctx, updated); err != nil {
				return statusError(updated, err)
			}
		}
		if admit == nil {
			return nil
		}
		return admit(ctx, obj, old)
	}
}

func sameSource(a, b *v1alpha1.SandboxClaimSpec) bool {
	return apiequality.Semantic.DeepEqual(a.WarmPoolRef, b.WarmPoolRef) &&
		apiequality.Semantic.DeepEqual(a.SandboxTemplateRef, b.SandboxTemplateRef)
}
