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

// limitForImage returns how many of n more sandboxes the claim may have. It is less than n only
// while no sandbox is known to run the image that the claim asks for.
func (a *Assessment) limitForImage(n, onTheWay int) int {
	switch {
	case n == 0 || !asksForImage(a.claim) || a.imageRuns():
		return n
	case onTheWay == 0 && (a.imageFails || lacksForImage(a.claim)):
		return 0
	case claims.AllOrNothing(a.claim) || a.claim.Spec.OnShortage == v1alpha1.ShortageFail:
		return n
	}
	a.limitedByImage = onTheWay == 0
	return min(n, max(0, 1-onTheWay))
}

// IsLimitedByImage reports whether the claim may have only one sandbox because its image has to be
// tried. LiftImageLimit removes that limit.
func (a *Assessment) IsLimitedByImage() bool { return a.limitedByImage && a.missing > 1 }

// LiftImageLimit removes that limit if the candidate c already runs the image.
func (a *Assessment) LiftImageLimit(c *Candidate) {
	if a.limitedByImage && !c.InPlace.Image && inplace.HasImage(c.Template, a.claim.Spec.InplaceUpdate.Image) {
		a.limitedByImage, a.mayHave = false, a.credit(0)
	}
}

// imageRuns reports whether the claim has a sandbox that counts and has the image that the
// claim asks for now.
func (a *Assessment) imageRuns() bool {
	image := a.claim.Spec.InplaceUpdate.Image
	runs := func(sb *v1alpha1.Sandbox) bool { return inplace.HasImage(sb.Spec.Template, image) }
	counts := func(sb *v1alpha1.Sandbox) bool { return !IsStarting(sb) && !v1alpha1.IsReservedFailed(sb) && runs(sb) }
	return slices.ContainsFunc(a.counted, runs) || slices.ContainsFunc(a.Held, counts)
}

// forgetImageOfOlderSpec removes the failure of an image from the status if the claim has been
// edited since, so that the image is tried again.
func (a *Assessment) forgetImageOfOlderSpec() {
	if asksForImage(a.claim) && a.claim.Generation != a.claim.Status.ObservedGeneration && lacksForImage(a.claim) {
		meta.RemoveStatusCondition(&a.claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	}
}

// lacksItsImage reports whether a sandbox could not be given the image that the claim asks for
// now. The failure of another image, from before an edit of the claim, does not count.
func (a *Assessment) lacksItsImage(sb *v1alpha1.Sandbox) bool {
	return inplace.LacksImage(sb) && (!asksForImage(a.claim) || inplace.HasImage(sb.Spec.Template, a.claim.Spec.InplaceUpdate.Image))
}

// recordImageFailure records in the conditions of a sandbox that is released that it could not
// be given its image, also if the node was still trying to pull it.
func (a *Assessment) recordImageFailure(failed *v1alpha1.Sandbox) {
	if progressOf(failed, a.Now) == Pending && inplace.InProgress(failed) && inplace.GoalOf(failed).Image {
		inplace.GiveUpImage(failed, a.Now)
	}
	a.imageFails = a.imageFails || a.lacksItsImage(failed)
}
