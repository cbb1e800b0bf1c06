// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// MetadataChange is what is known of a change of a claim's metadata after it was stored.
type MetadataChange struct {
	// Behind reports whether sandboxes that the claim holds may not have it yet.
	Behind bool
	// Report is what came of it; nil while that is not known, or not of interest.
	Report *MetadataReport
}

// MetadataReport is what came of bringing a claim's metadata to its sandboxes.
type MetadataReport struct {
	// Changed is how many sandboxes were changed, and Kept how many stay as they were.
	Changed, Kept int
	// Invalid reports whether some were kept because of what the claim says by itself, and
	// not because of what their templates say.
	Invalid bool
	// Why says of the first of those that were kept why.
	Why []string
	// HeldBack are the fields that are not on all pods, sorted.
	HeldBack []string
}

// Keep takes in that a sandbox stays as it was.
func (r *MetadataReport) Keep(why string) {
	r.Kept++
	if len(why) > maxReason {
		why = strings.ToValidUTF8(why[:maxReason], "") + "..."
	}
	if len(r.Why) < maxConflicts && !slices.Contains(r.Why, why) {
		r.Why = append(r.Why, why)
	}
}

// MetadataSynced returns a claim of which all sandboxes have been brought its metadata. held
// are its sandboxes, if they are known: a claim of agent-sandbox is Ready as its own is.
func MetadataSynced(claim *v1alpha1.SandboxClaim, r *MetadataReport, held []*v1alpha1.Sandbox, now time.Time) *v1alpha1.SandboxClaim {
	next := *claim
	next.Status = *claim.Status.DeepCopy()
	next.Status.ObservedGeneration = claim.Generation
	r.setCondition(&next, now)
	setReadyOfHeld(&next, claim, held, now)
	return &next
}

// setCondition sets the condition of a claim. A change that mattered to no sandbox leaves none
// behind where there was none.
func (r *MetadataReport) setCondition(claim *v1alpha1.SandboxClaim, now time.Time) {
	was := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionMetadataSynced)
	switch {
	case r.Kept > 0:
		reason := v1alpha1.ReasonInvalidMetadata
		if !claims.EndsRefused(claim) && !r.Invalid { // whose clients give up where they read that
			reason = claims.AgentReasonError
		}
		condition(claim, now, v1alpha1.ClaimConditionMetadataSynced, metav1.ConditionFalse, reason,
			v1alpha1.InvalidMetadataMessage(fmt.Sprintf("%d sandboxes keep the metadata that they had: %s", r.Kept, strings.Join(r.Why, "; "))))
	case was != nil || r.Changed > 0:
		message := "The sandboxes have the metadata that the claim says"
		if len(r.HeldBack) > 0 {
			message += "; not on all of their pods: " + strings.Join(r.HeldBack[:min(len(r.HeldBack), maxWarned)], ", ")
		}
		if more := len(r.HeldBack) - maxWarned; more > 0 {
			message += fmt.Sprintf(" and %d more", more)
		}
		condition(claim, now, v1alpha1.ClaimConditionMetadataSynced, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, message)
	}
}

// maxWarned is how many fields that are held back a message names.
const maxWarned = 5
