// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// CheckShortage refuses, as Create would, a claim that would rather fail than wait
// and finds too few sandboxes. It takes nothing, so Create can find less. It is
// for what should not be done for nothing before that, such as charging a quota,
// which nobody gives back.
func (a *Allocator) CheckShortage(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	if claim.Spec.OnShortage != v1alpha1.ShortageFail || createsOnNoStock(claim) {
		return nil
	}
	ctx, answered := a.observeCreate(ctx, claim)
	err := a.unlessExists(ctx, claim, a.checkShortage(ctx, claim))
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

// unlessExists returns ErrClaimExists in the place of a shortage if the claim's
// name is taken: who tries again, because the first answer was lost, must not be
// told that nothing was bound.
func (a *Allocator) unlessExists(ctx context.Context, claim *v1alpha1.SandboxClaim, err error) error {
	var shortage *ShortageError
	if !errors.As(err, &shortage) && !errors.Is(err, ErrSetNotFound) {
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
