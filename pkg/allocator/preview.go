// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/shortfall"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Preview returns what Create would return now, and writes and takes nothing. A claim
// that would have to wait is shown Claiming with what it would have got. Errors:
// ErrSetNotFound, *RefusedError and *ShortageError, as from Create, and the store's.
func (a *Allocator) Preview(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	now := a.options.Clock.Now()
	claim = a.options.withFirstObserved(ctx, claim, now)
	try := &attempt{finder: finder{supplier: a.supplier, reservation: newReservation(), dry: true}, state: plan.State{Claim: claim, New: true, Start: now}}
	try.finder.reservation.room = claims.Replicas(claim) // all its transactions in one
	p, err := try.plan(ctx)
	if err != nil {
		return nil, a.supplier.refusal(ctx, claim, err)
	}
	shortfall.WarnOfRuntimes(ctx, claim, try.finder.marks.WithoutRuntime())
	if n := try.finder.wouldMake; n > 0 {
		if p.Claim.Status.Waiting == nil {
			p.Claim.Status.Waiting = &v1alpha1.ClaimWaiting{}
		}
		p.Claim.Status.Waiting.Starting += int32(n)
		p.Claim.Status.Message += claims.PreviewMessage(n)
	}
	return p.Claim, nil
}
