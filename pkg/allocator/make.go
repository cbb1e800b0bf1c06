// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// fillUp takes what there is in the pools, and makes sandboxes for the rest. done is
// false if not all can be made now, because of what broken says or because there is
// nothing to make them from any more.
func (t *turn) fillUp(ctx context.Context, a *plan.Assessment, n int) (done bool, broken, err error) {
	if err := t.takeSurely(ctx, a, n, true); err != nil {
		return false, nil, err
	}
	lacks := n - len(t.hand.taken)
	if lacks <= 0 {
		return true, nil, nil
	}
	if !a.State.Eligible.CanMake() {
		return false, nil, nil
	}
	if t.hand.unknown != nil {
		return false, t.hand.unknown, nil
	}
	if broken, err = t.needModel(ctx, a); broken != nil || err != nil {
		return false, broken, err
	}
	if lacks, broken = t.mayMake(a, lacks); broken != nil && lacks == 0 {
		return false, broken, nil
	}
	if t.dry {
		t.wouldMake = lacks
		return broken == nil, broken, nil
	}
	if err := t.makeFresh(ctx, a, lacks); err != nil {
		return false, nil, err
	}
	if t.hand.unknown != nil {
		return false, t.hand.unknown, nil
	}
	if claims.AllOrNothing(a.State.Claim) && len(t.hand.taken)+len(t.hand.made) < n {
		t.letGo() // others can use them until some can be made
	}
	return broken == nil, broken, nil
}

// whyBroken is why no sandboxes can be made for a claim whose time is up.
func (t *turn) whyBroken(ctx context.Context, a *plan.Assessment) (broken, err error) {
	if t.hand.unknown != nil {
		return t.hand.unknown, nil
	}
	model, err := t.planner.templates.freshModel(ctx, a.State.Claim, &a.State.Eligible, t.planner.stock.store)
	switch {
	case err == nil && model.broken == nil && model.limit.Left(a.State.Held) < a.Missing():
		return model.limit, nil
	case err == nil:
		return model.broken, nil
	case ctx.Err() != nil:
		return nil, err
	}
	return unread(ctx, a.State.Claim, err), nil // its time is up all the same
}

// needModel finds what sandboxes for the claim look like, or what is broken so that none
// can be made now.
func (t *turn) needModel(ctx context.Context, a *plan.Assessment) (broken, err error) {
	if t.model == nil {
		model, err := t.modelOfClaim(ctx, &a.State.Eligible)
		switch {
		case err == nil:
			t.model = model
		case ctx.Err() != nil || a.FailsOnShortage():
			return nil, err
		default: // the claim goes on with what there is, and looks again
			return unread(ctx, a.State.Claim, err), nil
		}
	}
	if t.model.refused != nil && (a.State.New || t.model.refused.Reason == v1alpha1.ReasonInvalidMetadata) {
		return nil, t.model.refused
	}
	return t.model.broken, nil
}

// mayMake returns how many sandboxes may be made for a claim that lacks some, in this attempt, and
// why not all of them. Where a part of them would be made for nothing, there are
// none.
func (t *turn) mayMake(a *plan.Assessment, lacks int) (int, error) {
	left, wants := t.model.limit.Left(a.State.Held), lacks
	if a.FailsOnShortage() { // which has to be known before the first transaction
		wants = a.Missing() - len(t.hand.taken)
	}
	switch {
	case wants <= left:
		return lacks, nil
	case claims.AllOrNothing(a.State.Claim) || a.FailsOnShortage():
		return 0, t.model.limit
	}
	return left, t.model.limit
}

// makeFresh makes sandboxes until there are n. If they must not be made, a new claim
// fails; one that goes on does so without them, and tries again later.
func (t *turn) makeFresh(ctx context.Context, a *plan.Assessment, n int) error {
	admitted := len(t.hand.made)
	if claims.SandboxName(a.State.Claim) != "" && admitted == 0 {
		var err error
		if a.State.Name, err = t.nameState(ctx, a.State.Claim); err != nil || a.State.Name != plan.NameFree {
			return err
		}
	}
	made := slices.Clone(t.hand.made)
	for len(made) < n {
		name := cmp.Or(claims.SandboxName(a.State.Claim), podtemplate.NewName(t.model.sandbox.GenerateName))
		sb, err := t.marks.NewSandbox(t.model.sandbox, t.model.podMetadata, name, uuid.NewUUID(), string(uuid.NewUUID()), a.State.Now)
		if err != nil {
			return err
		}
		made = append(made, sb)
	}
	if t.planner.admit != nil && len(made) > admitted {
		if err := t.planner.admit(ctx, a.State.Claim, made[admitted:], max(0, len(made)-t.hand.charged)); err != nil {
			if a.State.New {
				return err
			}
			if errors.Is(err, ErrIdentityUnknown) {
				t.hand.unknown = ErrIdentityUnknown
				return nil
			}
			klog.FromContext(ctx).Error(err, "Failed to create sandboxes for a claim, retrying later", "claim", klog.KObj(a.State.Claim))
			t.hand.making.begin(a.State.Now)
			t.hand.denied = denial(err)
			a.State.Denied = t.hand.denied
			return nil
		}
	}
	t.hand.denied, a.State.Denied = nil, nil
	t.hand.made, t.hand.charged = made, max(t.hand.charged, len(made))
	return nil
}

// unreadError is something that could not be read. Its text is for the status of a
// claim, whose user can do nothing about what is wrong with the store or the cluster.
type unreadError struct{ error }

func (unreadError) Error() string { return "what they are made from cannot be read now" }

func (e unreadError) Unwrap() error { return e.error }

// unread logs why something could not be read, and returns what a claim's status says.
func unread(ctx context.Context, claim *v1alpha1.SandboxClaim, err error) error {
	klog.FromContext(ctx).Error(err, "Failed to read the template of sandboxes for a claim", "claim", klog.KObj(claim))
	return unreadError{err}
}

// nameState returns whether a sandbox can be made for the claim under the claim's name. A sandbox
// that is made for a claim of agent-sandbox has the claim's name and no other. While another
// sandbox has it, the claim waits, and the deletion of that sandbox makes the claim due. This is
// found out before admission sees the new sandbox, because admission would charge a quota at each
// try. The transaction finds out whether the name is free.
func (t *turn) nameState(ctx context.Context, claim *v1alpha1.SandboxClaim) (plan.NameState, error) {
	other, err := t.planner.stock.store.Sandbox(ctx, claim.Namespace, claim.Name, t.hand.nameSeen)
	switch {
	case err != nil:
		return plan.NameFree, err
	case other == nil:
		t.hand.nameSeen = 0
		return plan.NameFree, nil
	case other.DeletionTimestamp != nil:
		return plan.NameLeaving, nil
	}
	return plan.NameTaken, nil
}

// maxDenial is how many bytes of a refusal by admission a claim repeats.
const maxDenial = 512

// errNotAsked is what a claim says where admission could not judge its sandbox: its user can
// do nothing about why.
var errNotAsked = errors.New("admission of its Sandbox cannot be asked now")

// denial is what a claim that is stored says of why admission let no sandbox be made for it:
// what its create would have been answered.
func denial(err error) error {
	var refusal apierrors.APIStatus
	if !errors.As(err, &refusal) || refusal.Status().Code >= http.StatusInternalServerError {
		return errNotAsked
	}
	message := refusal.Status().Message
	if len(message) > maxDenial {
		message = strings.ToValidUTF8(message[:maxDenial], "") + "..."
	}
	return errors.New(message)
}
