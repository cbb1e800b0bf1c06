// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// claimCheck refuses a new claim.
type claimCheck func(ctx context.Context, claim *v1alpha1.SandboxClaim) error

// checkBefore returns the admission of new claims with checks before it. Admission charges a claim to
// the quota of its namespace, and the charge of a claim that fails after that is not returned: a client
// that tries again until there is stock would use up its quota. So the checks refuse before admission
// what would fail after it. A dry run charges nothing, and its preview says what is short.
func (r *REST) checkBefore(admit rest.ValidateObjectFunc, isDryRun bool, more ...claimCheck) rest.ValidateObjectFunc {
	checks := []claimCheck{r.checkVolumes}
	if !isDryRun {
		checks = append(checks, r.checkServable)
	}
	checks = append(checks, more...)
	return func(ctx context.Context, obj runtime.Object) error {
		if claim, ok := obj.(*v1alpha1.SandboxClaim); ok {
			for _, check := range checks {
				if err := check(ctx, claim); err != nil {
					return err
				}
			}
		}
		if admit == nil {
			return nil
		}
		return admit(ctx, obj)
	}
}

// checkVolumes refuses a claim whose volumes cannot be mounted, as far as the server knows now.
func (r *REST) checkVolumes(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	if r.CheckVolumes == nil || len(claim.Spec.DynamicVolumesMount) == 0 {
		return nil
	}
	switch wrong, err := r.CheckVolumes(ctx, claim); {
	case err != nil:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the volumes of claim %s cannot be looked at now: %v", claim.Name, err))
	case len(wrong) > 0:
		return apierrors.NewInvalid(kindOf(claim), claim.Name, wrong)
	}
	return nil
}

// checkServable refuses a claim that cannot be served as it asks, as far as the server knows now.
func (r *REST) checkServable(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	if err := r.binder.Check(ctx, claim); err != nil && !r.isLenient(ctx, claim, err) {
		return statusError(claim, err)
	}
	if v1alpha1.OfAgentSandbox(claim) && r.isStrict(ctx) {
		return r.checkStrictly(ctx, claim)
	}
	return nil
}

// checkName returns a check that refuses a claim whose name is taken, as far as the watch cache shows. The transaction
// decides all the same. If the claim cannot be read now, the create finds out.
func checkName(claims *genericregistry.Store) claimCheck {
	return func(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
		for _, at := range []string{"0", ""} { // the watch cache, and then etcd
			if _, err := claims.Get(ctx, claim.Name, &metav1.GetOptions{ResourceVersion: at}); err != nil {
				return nil //nolint:nilerr // it is not there, or cannot be read
			}
		}
		return apierrors.NewAlreadyExists(claims.DefaultQualifiedResource, claim.Name)
	}
}
