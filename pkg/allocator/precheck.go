// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Check refuses, as Create would, a claim that would rather fail than wait and finds
// too few sandboxes, or one that adds what its template does not take. It takes
// nothing, so Create can find less. It is for what should not be done for nothing
// before that, such as charging a quota, which nobody gives back.
func (a *Allocator) Check(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	var check func(context.Context, *v1alpha1.SandboxClaim) error
	switch {
	case v1alpha1.NeedsFresh(&claim.Spec):
		check = a.checkInjection
	case claim.Spec.OnShortage == v1alpha1.ShortageFail && !createsOnNoStock(claim):
		check = a.checkShortage
	default:
		return nil
	}
	ctx, answered := a.observeCreate(ctx, claim)
	err := a.unlessExists(ctx, claim, check(ctx, claim))
	if err != nil {
		answered(nil, err) // otherwise it is Create that answers
	}
	return err
}

func (a *Allocator) checkShortage(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	wanted := int(replicas(claim))
	s, err := a.supply(ctx, claim, true)
	if err != nil || a.queue.stock(s.sources) >= wanted {
		return err
	}
	if s, err = a.supplyBeyondCatalog(ctx, claim, s); err != nil {
		return err
	}
	if err := a.refreshUntil(ctx, s.sources, wanted); err != nil {
		return err
	}
	if available := a.queue.stock(s.sources); available < wanted {
		return a.shortage(claim, &s, wanted, available, nil)
	}
	return nil
}

func (a *Allocator) checkInjection(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	s, err := a.supply(ctx, claim, true)
	if err != nil || !s.canMake() {
		return err
	}
	if r, err := a.newRecipeSurely(ctx, claim, &s); err == nil && r.refused != nil {
		return r.refused
	}
	return nil // also if it cannot be read now, which is for Create to tell
}

// unlessExists returns ErrClaimExists in the place of a refusal if the claim's
// name is taken: who tries again, because the first answer was lost, must not be
// told that nothing was bound.
func (a *Allocator) unlessExists(ctx context.Context, claim *v1alpha1.SandboxClaim, err error) error {
	var shortage *ShortageError
	var refused *RefusedError
	if !errors.As(err, &shortage) && !errors.As(err, &refused) && !errors.Is(err, ErrSetNotFound) {
		return err
	}
	stored, readErr := a.store.Claim(ctx, claim.Namespace, claim.Name)
	switch {
	case readErr != nil:
		return readErr
	case stored != nil:
		return ErrClaimExists
	}
	return err
}
