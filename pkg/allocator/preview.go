// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Preview returns what Create would return now, and writes and takes nothing.
// A claim that would have to wait is shown Claiming with what it would have got.
// Errors: ErrSetNotFound and *ShortageError, as from Create, and the store's.
func (a *Allocator) Preview(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	claim = claim.DeepCopy()
	now := a.options.Clock.Now()
	begin(claim, now)
	s, err := a.supply(ctx, claim, true)
	if err != nil {
		return nil, err
	}
	wanted := int(replicas(claim))
	wouldFail := claim.Spec.OnShortage == v1alpha1.ShortageFail
	counted, err := a.wouldGet(ctx, claim, &s, wanted, wouldFail)
	if err != nil {
		return nil, err
	}
	short, makes := len(counted) < wanted, createsOnNoStock(claim) && s.canMake()
	var broken error
	if short && makes {
		if broken, err = a.brokenRecipe(ctx, claim, &s); err != nil {
			return nil, err
		}
		makes = broken == nil
	}
	if short && !makes {
		if wouldFail {
			return nil, a.shortage(claim, &s, wanted, len(counted), broken)
		}
		if atomicClaim(claim) {
			counted = nil
		}
	}
	report(claim, counted, 0, s.problem)
	if broken != nil {
		unmade(claim, broken)
	}
	if !short {
		complete(claim, now)
	}
	return claim, nil
}

// brokenRecipe says why no sandboxes can be made for a claim, nil if they can.
func (a *Allocator) brokenRecipe(ctx context.Context, claim *v1alpha1.SandboxClaim, s *supply) (broken, err error) {
	r, err := a.newRecipe(ctx, claim.Namespace, s)
	if err != nil {
		return nil, err
	}
	return r.broken, nil
}

// wouldGet returns up to wanted sandboxes that the claim would be given. With
// sure it looks past an index that lags before it returns fewer.
func (a *Allocator) wouldGet(ctx context.Context, claim *v1alpha1.SandboxClaim, s *supply, wanted int, sure bool) ([]v1alpha1.ClaimedSandbox, error) {
	if sure && a.queue.stock(s.sources) < wanted {
		var err error
		if *s, err = a.supplyBeyondCatalog(ctx, claim, *s); err != nil {
			return nil, err
		}
		if err := a.refreshUntil(ctx, s.sources, wanted); err != nil {
			return nil, err
		}
	}
	var get []v1alpha1.ClaimedSandbox
	for _, c := range a.queue.peek(s.sources, wanted) {
		sb, err := a.store.Sandbox(ctx, c.Pool.Namespace, c.Name)
		if err != nil {
			return nil, err
		}
		if sb != nil {
			get = append(get, claimed(sb))
		}
	}
	return get, nil
}
