// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
)

// GiveBack gives back what a claim has, and the claim: its sandboxes are deleted, and then
// the claim itself. A claim that still waits is ended first, by a claimTimeout of a second.
// It may be repeated. A claim that is gone is given back; what was left to its user then
// stays, because only a claim that is there can release.
//
// It requires the rights to delete sandboxclaims and, unless the claim has reclaimPolicy
// Delete, to create sandboxclaims/release; for claims that may still wait also to get,
// watch and patch sandboxclaims.
func GiveBack(ctx context.Context, agents typed.AgentsV1alpha1Interface, claim *v1alpha1.SandboxClaim) error {
	claims := agents.SandboxClaims(claim.Namespace)
	if claim.Spec.ReclaimPolicy != v1alpha1.ReclaimDelete {
		if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
			ended, err := end(ctx, claims, claim)
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("ending SandboxClaim %s/%s: %w", claim.Namespace, claim.Name, err)
			}
			claim = ended
		}
		if _, err := Release(ctx, agents, claim); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	err := repeat(ctx, func() error {
		return claims.Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(claim.UID))})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting SandboxClaim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// end makes a claim that waits end with what it has.
func end(ctx context.Context, claims typed.SandboxClaimInterface, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	// With another UID the patch is refused.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID},
		"spec":     map[string]any{"claimTimeout": "1s"},
	})
	if err != nil {
		return nil, err
	}
	ending := claim
	err = repeat(ctx, func() (err error) {
		ending, err = claims.Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return await(ctx, claims, ending, DefaultRetryFor)
}

// Release deletes sandboxes of a claim that is Completed, and keeps the claim: those of the
// names given, or all. It returns the names of those that it has deleted; ones that were
// gone already are not among them. It continues until all are deleted or the context ends, and
// may be repeated. A claim of that name with another UID is left alone: the error is a Conflict
// then, as it is for a claim that is not Completed.
func Release(ctx context.Context, agents typed.AgentsV1alpha1Interface, claim *v1alpha1.SandboxClaim, names ...string) ([]string, error) {
	var released []string
	for {
		var answer *v1alpha1.SandboxClaimRelease
		err := repeat(ctx, func() (err error) {
			answer, err = agents.SandboxClaims(claim.Namespace).Release(ctx, claim.Name, &v1alpha1.SandboxClaimRelease{
				Spec: v1alpha1.SandboxClaimReleaseSpec{SandboxNames: names, ClaimUID: claim.UID},
			}, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return released, fmt.Errorf("releasing sandboxes of SandboxClaim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		released = append(released, answer.Status.Released...)
		if answer.Status.Remaining == 0 {
			slices.Sort(released)
			return released, nil
		}
	}
}

// maxAccess is how many sandboxes one request asks for.
const maxAccess = 1000

// RuntimeAccess returns where the agent-runtimes of the sandboxes of a claim are, with
// their access tokens: of those named, or of all that the claim lists. Those that are gone
// are left out. A token is a secret: keep it out of logs.
func RuntimeAccess(ctx context.Context, agents typed.AgentsV1alpha1Interface, claim *v1alpha1.SandboxClaim, names ...string) ([]v1alpha1.SandboxRuntimeAccess, error) {
	if len(names) == 0 {
		for _, sandbox := range claim.Status.Sandboxes {
			names = append(names, sandbox.Name)
		}
	}
	var access []v1alpha1.SandboxRuntimeAccess
	for some := range slices.Chunk(names, maxAccess) {
		var answer *v1alpha1.SandboxClaimRuntimeAccess
		err := repeat(ctx, func() (err error) {
			answer, err = agents.SandboxClaims(claim.Namespace).RuntimeAccess(ctx, claim.Name, &v1alpha1.SandboxClaimRuntimeAccess{
				Spec: v1alpha1.SandboxClaimRuntimeAccessSpec{SandboxNames: some, ClaimUID: claim.UID},
			}, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("asking for the runtimes of SandboxClaim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		access = append(access, answer.Status.Sandboxes...)
	}
	return access, nil
}

// repeat does what may be done twice until there is a clear answer.
func repeat(ctx context.Context, do func() error) error {
	p := newPatience(DefaultRetryFor)
	for {
		err := do()
		if err == nil || judge(err) == final {
			return err
		}
		if ctx.Err() != nil {
			return over(ctx, err)
		}
		if err := p.again(ctx, err); err != nil {
			return err
		}
	}
}
