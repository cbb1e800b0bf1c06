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
func (a *attempt) explainBroken(ctx context.Context, assessment *plan.Assessment) (broken, err error) {
	if a.reservation.unknown != nil {
		return a.reservation.unknown, nil
	}
	model, err := a.planner.templates.Model(ctx, assessment.State.Claim, &assessment.State.Eligible, a.planner.store)
	switch {
	case err == nil && model.Broken == nil && model.Limit.Left(assessment.State.Held) < assessment.Missing():
		return model.Limit, nil
	case err == nil:
		return model.Broken, nil
	case ctx.Err() != nil:
		return nil, err
	}
	return unread(ctx, assessment.State.Claim, err), nil // its time is up all the same
}

// loadModel finds what sandboxes for the claim look like, or what is broken so that none
// can be made now.
func (a *attempt) loadModel(ctx context.Context, assessment *plan.Assessment) (broken, err error) {
	if a.model == nil {
		model, err := a.findModel(ctx, &assessment.State.Eligible)
		switch {
		case err == nil:
			a.model = model
		case ctx.Err() != nil || assessment.FailsOnShortage():
			return nil, err
		default: // the claim goes on with what there is, and looks again
			return unread(ctx, assessment.State.Claim, err), nil
		}
	}
	if a.model.Refused != nil && (assessment.State.New || a.model.Refused.Reason == v1alpha1.ReasonInvalidMetadata) {
		return nil, a.model.Refused
	}
	return a.model.Broken, nil
}

// makeLimit returns how many sandboxes may be made for a claim that lacks some, in this attempt, and
// why not all of them. Where a part of them would be made for nothing, there are
// none.
func (a *attempt) makeLimit(assessment *plan.Assessment, lacks int) (int, error) {
	left, wants := a.model.Limit.Left(assessment.State.Held), lacks
	if assessment.FailsOnShortage() { // which has to be known before the first transaction
		wants = assessment.Missing() - len(a.reservation.taken)
	}
	switch {
	case wants <= left:
		return lacks, nil
	case claims.AllOrNothing(assessment.State.Claim) || assessment.FailsOnShortage():
		return 0, a.model.Limit
	}
	return left, a.model.Limit
}

// makeFresh makes sandboxes until there are n. If they must not be made, a new claim
// fails; one that goes on does so without them, and tries again later.
func (a *attempt) makeFresh(ctx context.Context, assessment *plan.Assessment, n int) error {
	admitted := len(a.reservation.made)
	if claims.SandboxName(assessment.State.Claim) != "" && admitted == 0 {
		var err error
		if assessment.State.Name, err = a.nameState(ctx, assessment.State.Claim); err != nil || assessment.State.Name != plan.NameFree {
			return err
		}
	}
	made := slices.Clone(a.reservation.made)
	for len(made) < n {
		name := cmp.Or(claims.SandboxName(assessment.State.Claim), podtemplate.NewName(a.model.Sandbox.GenerateName))
		sb, err := a.marks.NewSandbox(a.model.Sandbox, a.model.PodMetadata, name, uuid.NewUUID(), string(uuid.NewUUID()), assessment.State.Now)
		if err != nil {
			return err
		}
		made = append(made, sb)
	}
	if a.planner.admit != nil && len(made) > admitted {
		if err := a.planner.admit(ctx, assessment.State.Claim, made[admitted:], max(0, len(made)-a.reservation.charged)); err != nil {
			if assessment.State.New {
				return err
			}
			if errors.Is(err, ErrIdentityUnknown) {
				a.reservation.unknown = ErrIdentityUnknown
				return nil
			}
			klog.FromContext(ctx).Error(err, "Failed to create sandboxes for a claim, retrying later", "claim", klog.KObj(assessment.State.Claim))
			a.reservation.makeBackoff.start(assessment.State.Now)
			a.reservation.denied = denial(err)
			assessment.State.Denied = a.reservation.denied
			return nil
		}
	}
	a.reservation.denied, assessment.State.Denied = nil, nil
	a.reservation.made, a.reservation.charged = made, max(a.reservation.charged, len(made))
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
func (a *attempt) nameState(ctx context.Context, claim *v1alpha1.SandboxClaim) (plan.NameState, error) {
	other, err := a.planner.store.Sandbox(ctx, claim.Namespace, claim.Name, a.reservation.nameSeen)
	switch {
	case err != nil:
		return plan.NameFree, err
	case other == nil:
		a.reservation.nameSeen = 0
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
