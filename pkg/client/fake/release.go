// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// release deletes sandboxes of a claim.
func (s store) release(action testing.CreateActionImpl, release *v1alpha1.SandboxClaimRelease) (*v1alpha1.SandboxClaimRelease, error) {
	claim, bound, err := s.asked(action, release.Spec.ClaimUID, release.Spec.SandboxNames)
	if err != nil {
		return nil, err
	}
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		return nil, conflict(claim.Name, "the claim is not Completed yet; a shorter spec.claimTimeout ends it with what it has")
	}
	answer := &v1alpha1.SandboxClaimRelease{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}, Spec: release.Spec}
	for _, sandbox := range bound {
		answer.Status.Released = append(answer.Status.Released, sandbox.Name)
		if len(action.CreateOptions.DryRun) > 0 {
			continue
		}
		if err := s.tracker.Delete(sandboxesResource, sandbox.Namespace, sandbox.Name); err != nil {
			return nil, err
		}
	}
	slices.Sort(answer.Status.Released)
	return answer, nil
}

// runtimeAccess returns the runtimes of a claim's sandboxes, of those to which the test has given
// the annotations of a runtime.
func (s store) runtimeAccess(action testing.CreateActionImpl, access *v1alpha1.SandboxClaimRuntimeAccess) (*v1alpha1.SandboxClaimRuntimeAccess, error) {
	claim, bound, err := s.asked(action, access.Spec.ClaimUID, access.Spec.SandboxNames)
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.SandboxClaimRuntimeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}, Spec: access.Spec}
	for _, sandbox := range bound {
		answer.Status.Sandboxes = append(answer.Status.Sandboxes, v1alpha1.SandboxRuntimeAccess{
			Name: sandbox.Name, UID: sandbox.UID,
			URL:         sandbox.Annotations[v1alpha1.AnnotationRuntimeURL],
			AccessToken: sandbox.Annotations[v1alpha1.AnnotationRuntimeAccessToken],
		})
	}
	return answer, nil
}

// asked returns a claim, and those of its sandboxes that a request is about.
func (s store) asked(action testing.CreateActionImpl, uid types.UID, names []string) (*v1alpha1.SandboxClaim, []*v1alpha1.Sandbox, error) {
	claim, err := s.claim(action.Namespace, action.Name)
	if err != nil {
		return nil, nil, err
	}
	if uid != "" && uid != claim.UID {
		return nil, nil, conflict(claim.Name, "the claim has another UID")
	}
	for i, name := range names {
		if !slices.ContainsFunc(claim.Status.Sandboxes, func(c v1alpha1.ClaimedSandbox) bool { return c.Name == name }) {
			return nil, nil, apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("SandboxClaimRelease").GroupKind(), claim.Name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "sandboxNames").Index(i), name, "is not a sandbox of the claim"),
			})
		}
	}
	bound, err := s.sandboxes(claim.Namespace, func(sandbox *v1alpha1.Sandbox) bool {
		return v1alpha1.IsBoundTo(sandbox, claim) && (len(names) == 0 || slices.Contains(names, sandbox.Name))
	})
	return claim, bound, err
}

func conflict(name, message string) error {
	return apierrors.NewConflict(claimsResource.GroupResource(), name, errors.New(message))
}

// deleteClaim deletes a claim and, with reclaimPolicy Delete, its sandboxes.
func (c *Clientset) deleteClaim(action testing.Action) (bool, runtime.Object, error) {
	del, ok := action.(testing.DeleteActionImpl)
	if !ok {
		return false, nil, nil
	}
	claim, err := c.store.claim(del.Namespace, del.Name)
	if err != nil {
		return true, nil, err
	}
	if want := del.DeleteOptions.Preconditions; want != nil && want.UID != nil && *want.UID != claim.UID {
		return true, nil, conflict(claim.Name, "the claim has another UID")
	}
	if len(del.DeleteOptions.DryRun) > 0 {
		return true, nil, nil
	}
	if claim.Spec.ReclaimPolicy == v1alpha1.ReclaimDelete {
		owned, err := c.store.sandboxes(claim.Namespace, func(sandbox *v1alpha1.Sandbox) bool { return metav1.IsControlledBy(sandbox, claim) })
		if err != nil {
			return true, nil, err
		}
		for _, sandbox := range owned {
			if err := c.Tracker().Delete(sandboxesResource, sandbox.Namespace, sandbox.Name); err != nil {
				return true, nil, err
			}
		}
	}
	return true, nil, c.Tracker().Delete(claimsResource, claim.Namespace, claim.Name)
}
