// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podresize"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// Preview returns what Create would return now, and writes and takes nothing.
// A claim that would have to wait is shown Claiming with what it would have got.
// Errors: ErrSetNotFound, *RefusedError and *ShortageError, as from Create, and the store's.
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
	get, err := a.wouldGet(ctx, claim, &s, wanted, wouldFail)
	if err != nil {
		return nil, err
	}
	short, makes := len(get) < wanted, createsOnNoStock(claim) && s.canMake()
	var broken error
	if short && makes {
		if broken, err = a.brokenRecipe(ctx, claim, &s); err != nil {
			return nil, err
		}
		if refused := (*RefusedError)(nil); errors.As(broken, &refused) {
			return nil, refused
		}
		makes = broken == nil
	}
	if short && !makes {
		if wouldFail {
			return nil, a.shortage(claim, &s, wanted, len(get), broken)
		}
		if atomicClaim(claim) {
			get = nil
		}
	}
	show(claim, get, s.problem, now)
	if broken != nil {
		unmade(claim, broken)
	}
	return claim, nil
}

// show tells in a claim's status what it would be given, and ends it if that is all
// and counts at once.
func show(claim *v1alpha1.SandboxClaim, get []*v1alpha1.Sandbox, p *problem, now time.Time) {
	var counted []v1alpha1.ClaimedSandbox
	var resizes resizes
	for _, sb := range get {
		resizes.add(sb)
		if !podresize.InProgress(sb) {
			counted = append(counted, claimed(sb))
		}
	}
	all := len(counted) == int(replicas(claim))
	if !all && atomicClaim(claim) {
		counted = nil
	}
	report(claim, counted, 0, p)
	resizes.report(claim, now)
	if all {
		complete(claim, now)
	}
}

// brokenRecipe says why no sandboxes can be made for a claim, nil if they can.
func (a *Allocator) brokenRecipe(ctx context.Context, claim *v1alpha1.SandboxClaim, s *supply) (broken, err error) {
	r, err := a.newRecipeSurely(ctx, claim, s)
	if err != nil {
		return nil, err
	}
	return r.broken, nil
}

// wouldGet returns up to wanted sandboxes that the claim would be given, with what
// would become of their size. With sure it looks past an index that lags before it
// returns fewer.
func (a *Allocator) wouldGet(ctx context.Context, claim *v1alpha1.SandboxClaim, s *supply, wanted int, sure bool) ([]*v1alpha1.Sandbox, error) {
	if sure && a.queue.stock(s.sources) < wanted {
		var err error
		if *s, err = a.supplyBeyondCatalog(ctx, claim, *s); err != nil {
			return nil, err
		}
		if err := a.refreshUntil(ctx, s.sources, wanted); err != nil {
			return nil, err
		}
	}
	j := &job{a: a, claim: claim}
	var get []*v1alpha1.Sandbox
	for _, c := range a.queue.peek(s.sources, wanted) {
		sb, err := j.wouldBind(ctx, c)
		if err != nil {
			return nil, err
		}
		if sb != nil {
			get = append(get, sb)
		}
	}
	return get, nil
}

// wouldBind returns a candidate with what would become of its size, nil if it is gone
// or nobody can have it as things are.
func (j *job) wouldBind(ctx context.Context, c poolindex.Candidate) (*v1alpha1.Sandbox, error) {
	sb, err := j.a.store.Sandbox(ctx, c.Pool.Namespace, c.Name)
	if err != nil || sb == nil {
		return nil, err
	}
	have := sb.Spec.Template
	if have == nil && sb.Spec.TemplateRef != nil {
		found, err := j.inlined(ctx, sb)
		if err != nil || found.template == nil {
			return nil, err
		}
		have = found.template
	}
	raised, err := j.raise(ctx, c, have)
	if err != nil {
		return nil, err
	}
	sb = sb.DeepCopy()
	raised.mark(sb, j.a.options.Clock.Now())
	return sb, nil
}
