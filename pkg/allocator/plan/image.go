// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

// The image that a claim asks for may not exist, and then each sandbox that is bound to the
// claim is lost to the pool. So the image is tried on one sandbox first, and the claim gets the
// others when that one counts. If the first sandbox cannot have the image, the claim gets no
// other until its spec is edited, and ends when its time is up. Claims with AllOrNothing or
// onShortage: Fail take all sandboxes at the same time, because they cannot begin with a part. If
// the first candidate was made with the image, there is nothing to try.

// asksForImage reports whether a claim asks for another image in its sandboxes.
func asksForImage(claim *v1alpha1.SandboxClaim) bool {
	return claim.Spec.InplaceUpdate != nil && claim.Spec.InplaceUpdate.Image != ""
}

// check limits how many more sandboxes the claim may have while none is known to run the image that
// it asks for.
func (inPlaceUpdate) check(a *Assessment, onTheWay int) {
	if !asksForImage(a.claim) {
		return
	}
	forgetImageOfOlderSpec(a)
	switch {
	case a.mayHave == 0 || isImageRunning(a):
	case onTheWay == 0 && (slices.ContainsFunc(a.held.released, func(sb *v1alpha1.Sandbox) bool { return lacksItsImage(a, sb) }) || lacksForImage(a.claim)):
		a.mayHave = 0
	case claims.AllOrNothing(a.claim) || a.claim.Spec.OnShortage == v1alpha1.ShortageFail:
	default:
		a.trial = onTheWay == 0
		a.mayHave = min(a.mayHave, max(0, 1-onTheWay))
	}
}

// SkipTrial lets the claim have more than one sandbox if the candidate c already runs the image.
func (a *Assessment) SkipTrial(c *Candidate) {
	if a.trial && !c.InPlace.Image && inplace.HasImage(c.Template, a.claim.Spec.InplaceUpdate.Image) {
		a.trial, a.mayHave = false, credit(a.claim, 0)
	}
}

// isImageRunning reports whether the claim has a sandbox that counts and has the image that the
// claim asks for now.
func isImageRunning(a *Assessment) bool {
	image := a.claim.Spec.InplaceUpdate.Image
	runs := func(sb *v1alpha1.Sandbox) bool { return inplace.HasImage(sb.Spec.Template, image) }
	counts := func(sb *v1alpha1.Sandbox) bool { return !IsStarting(sb) && !v1alpha1.IsReservedFailed(sb) && runs(sb) }
	return slices.ContainsFunc(a.held.counted, runs) || slices.ContainsFunc(a.State.Held, counts)
}

// forgetImageOfOlderSpec removes the failure of an image from the status if the claim has been
// edited since, so that the image is tried again.
func forgetImageOfOlderSpec(a *Assessment) {
	if a.claim.Generation != a.State.Claim.Status.ObservedGeneration && lacksForImage(a.claim) {
		meta.RemoveStatusCondition(&a.claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	}
}

// lacksItsImage reports whether a sandbox could not be given the image that the claim asks for
// now. The failure of another image, from before an edit of the claim, does not count.
func lacksItsImage(a *Assessment, sb *v1alpha1.Sandbox) bool {
	return inplace.LacksImage(sb) && (!asksForImage(a.claim) || inplace.HasImage(sb.Spec.Template, a.claim.Spec.InplaceUpdate.Image))
}

// release records in the conditions of a sandbox that it could not be given its image, also if the
// node was still trying to pull it.
func (inPlaceUpdate) release(a *Assessment, sb *v1alpha1.Sandbox, why *claims.SetupError) {
	if why == nil && beforeSetup(sb, a.State.Now) == Pending && inplace.InProgress(sb) && inplace.GoalOf(sb).Image {
		inplace.GiveUpImage(sb, a.State.Now)
	}
}
