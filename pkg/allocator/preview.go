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
	set, err := a.store.Set(ctx, claim.Namespace, claim.Spec.TemplateName)
	if err != nil {
		return nil, err
	}
	makes := createsOnNoStock(claim) && set != nil
	fails := claim.Spec.OnShortage == v1alpha1.ShortageFail && !makes
	if set == nil && fails {
		return nil, ErrSetNotFound
	}
	wanted := int(replicas(claim))
	counted, err := a.wouldGet(ctx, claim, wanted, fails)
	if err != nil {
		return nil, err
	}
	short := len(counted) < wanted
	if short && fails {
		return nil, &ShortageError{
			Set: set.Name, Wanted: wanted, Available: len(counted), RetryAfter: a.options.RetryAfter,
		}
	}
	if short && !makes && atomicClaim(claim) {
		counted = nil
	}
	report(claim, counted, 0, set != nil)
	if !short {
		complete(claim, now)
	}
	return claim, nil
}

// wouldGet returns up to wanted sandboxes that the claim would be given. With
// sure it looks past an index that lags before it returns fewer.
func (a *Allocator) wouldGet(ctx context.Context, claim *v1alpha1.SandboxClaim, wanted int, sure bool) ([]v1alpha1.ClaimedSandbox, error) {
	p := poolOf(claim)
	if sure && a.index.Available(p) < wanted {
		if err := a.refresh(ctx, p); err != nil {
			return nil, err
		}
	}
	var get []v1alpha1.ClaimedSandbox
	for _, c := range a.queue.peek(p, wanted) {
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
