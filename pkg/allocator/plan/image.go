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

// An image that a claim asks for may not exist, and each sandbox that is bound with it is
// lost to the pool then. So the image is tried on one sandbox, and the claim gets others
// only when a sandbox with that image counts. If the first one cannot have the image, the
// claim gets no other until its inplaceUpdate is edited, or its time is up. A claim for all
// or nothing, and one that would rather fail than wait, take all that they need at the same
// time, because they cannot begin with a part.

// asksForImage reports whether a claim asks for another image in its sandboxes.
func asksForImage(claim *v1alpha1.SandboxClaim) bool {
	return claim.Spec.InplaceUpdate != nil && claim.Spec.InplaceUpdate.Image != ""
}

// whileTried returns how many of n more sandboxes the claim may have, as long as it is not
// known that sandboxes can have its image.
func (a *Assessment) whileTried(n, onTheWay int) int {
	switch {
	case n == 0 || !asksForImage(a.claim) || a.imageRuns():
		return n
	case onTheWay == 0 && (a.imageFails || lacksForImage(a.claim)):
		return 0
	case claims.AllOrNothing(a.claim) || a.claim.Spec.OnShortage == v1alpha1.ShortageFail:
		return n
	}
	return min(n, max(0, 1-onTheWay))
}

// imageRuns reports whether a sandbox of the claim counts that has the image that the
// claim asks for now.
func (a *Assessment) imageRuns() bool {
	image := a.claim.Spec.InplaceUpdate.Image
	runs := func(sb *v1alpha1.Sandbox) bool { return inplace.HasImage(sb.Spec.Template, image) }
	counts := func(sb *v1alpha1.Sandbox) bool { return !IsStarting(sb) && !v1alpha1.IsReservedFailed(sb) && runs(sb) }
	return slices.ContainsFunc(a.counted, runs) || slices.ContainsFunc(a.Held, counts)
}

// tryEditedImage forgets that an image failed when the claim has been edited since.
func (a *Assessment) tryEditedImage() {
	if asksForImage(a.claim) && a.claim.Generation != a.claim.Status.ObservedGeneration && lacksForImage(a.claim) {
		meta.RemoveStatusCondition(&a.claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	}
}

// lacksItsImage reports whether a sandbox could not be given the image that the claim asks
// for now. What became of another image, before the claim was edited, says nothing of this.
func (a *Assessment) lacksItsImage(sb *v1alpha1.Sandbox) bool {
	return inplace.LacksImage(sb) && (!asksForImage(a.claim) || inplace.HasImage(sb.Spec.Template, a.claim.Spec.InplaceUpdate.Image))
}

// endImage notes on a sandbox that is let go that it could not be given its image, also
// where the node was still trying.
func (a *Assessment) endImage(failed *v1alpha1.Sandbox) {
	if progressOf(failed, a.Now) == Pending && inplace.InProgress(failed) && inplace.GoalOf(failed).Image {
		inplace.GiveUpImage(failed, a.Now)
	}
	a.imageFails = a.imageFails || a.lacksItsImage(failed)
}
