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

// explainBroken is why no sandboxes can be made for a claim whose time is up.
func (f *finder) explainBroken(ctx context.Context) (broken, err error) {
	if f.reservation.identityErr != nil {
		return f.reservation.identityErr, nil
	}
	model, err := f.supplier.templates.Model(ctx, f.assessment.State.Claim, &f.assessment.State.Eligible, f.supplier.store)
	switch {
	case err == nil && model.Broken == nil && model.Limit.Left(f.assessment.State.Held) < f.assessment.Missing():
		return model.Limit, nil
	case err == nil:
		return model.Broken, nil
	case ctx.Err() != nil:
		return nil, err
	}
	return unread(ctx, f.assessment.State.Claim, err), nil // its time is up all the same
}

// loadModel finds what sandboxes for the claim look like, or what is broken so that none
// can be made now.
func (f *finder) loadModel(ctx context.Context) (broken, err error) {
	if f.model == nil {
		model, err := f.supplier.findModel(ctx, &f.assessment.State)
		switch {
		case err == nil:
			f.model = model
		case ctx.Err() != nil || f.assessment.State.FailsOnShortage():
			return nil, err
		default: // the claim uses what there is, and a later attempt looks again
			return unread(ctx, f.assessment.State.Claim, err), nil
		}
	}
	if f.model.Refused != nil && (f.assessment.State.New || f.model.Refused.Reason == v1alpha1.ReasonInvalidMetadata) {
		return nil, f.model.Refused
	}
	return f.model.Broken, nil
}

// makeLimit returns how many sandboxes may be made for a claim that lacks some, in this attempt, and
// why not all of them. It returns 0 if a part of them is of no use to the claim.
func (f *finder) makeLimit(lacks int) (int, error) {
	left, wants := f.model.Limit.Left(f.assessment.State.Held), lacks
	if f.assessment.State.FailsOnShortage() { // which has to be known before the first transaction
		wants = f.assessment.Missing() - len(f.reservation.taken)
	}
	switch {
	case wants <= left:
		return lacks, nil
	case claims.AllOrNothing(f.assessment.State.Claim) || f.assessment.State.FailsOnShortage():
		return 0, f.model.Limit
	}
	return left, f.model.Limit
}

// makeFresh makes sandboxes until there are n. If they must not be made, a new claim
// fails, and a stored claim gets none in this attempt.
func (f *finder) makeFresh(ctx context.Context, n int) error {
	s, r := &f.assessment.State, f.reservation
	admitted := len(r.made)
	ownName := claims.SandboxName(s.Claim)
	if ownName != "" && admitted == 0 {
		var err error
		if s.Making.Name, err = f.nameState(ctx, s.Claim); err != nil || s.Making.Name != plan.NameFree {
			return err
		}
	}
	made := slices.Clone(r.made)
	for len(made) < n {
		name := cmp.Or(ownName, podtemplate.NewName(f.model.Sandbox.GenerateName))
		sb, err := f.marks.NewSandbox(f.model.Sandbox, f.model.PodMetadata, name, uuid.NewUUID(), string(uuid.NewUUID()), s.Now)
		if err != nil {
			return err
		}
		made = append(made, sb)
	}
	if f.supplier.admit != nil && len(made) > admitted {
		err := f.supplier.admit(ctx, s.Claim, made[admitted:], max(0, len(made)-r.charged))
		switch {
		case err == nil:
		case s.New:
			return err
		case errors.Is(err, ErrIdentityUnknown):
			r.identityErr = ErrIdentityUnknown
			return nil
		default:
			klog.FromContext(ctx).Error(err, "Failed to create sandboxes for a claim, retrying later", "claim", klog.KObj(s.Claim))
			r.makeBackoff.Start(s.Now)
			r.denied = denial(err)
			s.Making.Denied = r.denied
			return nil
		}
	}
	r.denied, s.Making.Denied = nil, nil
	r.made, r.charged = made, max(r.charged, len(made))
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
func (f *finder) nameState(ctx context.Context, claim *v1alpha1.SandboxClaim) (plan.NameState, error) {
	other, err := f.supplier.store.Sandbox(ctx, claim.Namespace, claim.Name, f.reservation.nameSeen)
	switch {
	case err != nil:
		return plan.NameFree, err
	case other == nil:
		f.reservation.nameSeen = 0
		return plan.NameFree, nil
	case other.DeletionTimestamp != nil:
		return plan.NameLeaving, nil
	}
	return plan.NameTaken, nil
}

// maxDenial is how many bytes of a refusal by admission a claim repeats.
const maxDenial = 512

// errNotAsked is what a claim says where its sandbox could not pass through admission: its user can
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
