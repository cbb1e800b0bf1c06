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
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// inPlaceUpdate is the feature of claims whose sandboxes are changed in place. It waits until the pod
// of a sandbox is as large as the template that the claim asks for, and has the image and the cpu
// that its inplaceUpdate says.
//
// A claim on a template may be served from a pool whose patch makes its sandboxes
// smaller, because they are cheaper to keep. What such a claim gets is as large as the
// template says all the same: the transaction that binds the sandbox puts the
// template's cpu and memory into it and marks it as being resized. Its controller
// resizes the pod, and the sandbox counts when it is ready again. A resize that fails
// leaves the sandbox as it was, also in its template, and it counts all the same; the claim's
// condition InplaceUpdate reports. A claim that names the set itself asks for what the set says.
//
// The inplaceUpdate of a claim takes the same way. An image that the pod cannot have is
// different from a resize that fails: the sandbox is not what was asked for, and is
// released.
type inPlaceUpdate struct{}

var (
	_ progresser = inPlaceUpdate{}
	_ releaser   = inPlaceUpdate{}
	_ checker    = inPlaceUpdate{}
	_ counter    = inPlaceUpdate{}
	_ cleaner    = inPlaceUpdate{}
	_ binder     = inPlaceUpdate{}
	_ reporter   = inPlaceUpdate{}
)

// applies reports whether the claim asks for an update, or it or one of its sandboxes reports one, or
// a sandbox that was found for it is to be changed.
func (inPlaceUpdate) applies(s *State, found []Candidate) bool {
	hasUpdate := func(sb *v1alpha1.Sandbox) bool {
		return inplace.LacksImage(sb) || meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate) != nil
	}
	needsUpdate := func(c Candidate) bool { return c.changesPod() || c.ResizeFailed != nil }
	return s.Claim.Spec.InplaceUpdate != nil ||
		meta.FindStatusCondition(s.Claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate) != nil ||
		slices.ContainsFunc(s.Held, hasUpdate) || slices.ContainsFunc(found, needsUpdate)
}

func (inPlaceUpdate) progress(_ *Assessment, sb *v1alpha1.Sandbox, before preparation) preparation {
	return preparation{progress: max(before.progress, updateProgress(sb))}
}

// updateProgress returns how far the update of a sandbox is.
func updateProgress(sb *v1alpha1.Sandbox) Progress {
	switch {
	case inplace.InProgress(sb):
		return Pending
	case inplace.LacksImage(sb):
		return Failed
	}
	return Done
}

// bind notes what becomes of the sandbox's size and image.
func (inPlaceUpdate) bind(a *Assessment, b *binding) {
	switch c := b.candidate; {
	case c == nil: // it is made as the claim asks for it
	case c.changesPod():
		goal := c.InPlace
		goal.Size = c.Resize
		if c.ResizeFailed != nil {
			goal.Failed = c.ResizeFailed.Error()
		}
		inplace.Begin(b.sandbox, goal, a.State.Now)
		b.waits = true
	case c.ResizeFailed != nil:
		inplace.Fail(b.sandbox, a.State.Now, c.ResizeFailed)
	}
}

func (inPlaceUpdate) clean(sb *v1alpha1.Sandbox) { inplace.Forget(sb) }

// count puts back into the template of a sandbox what its pod was not given.
func (inPlaceUpdate) count(_ *Assessment, sb *v1alpha1.Sandbox) {
	changed, err := inplace.TakeBack(sb)
	if err != nil || !changed || !nextGeneration(sb) {
		return // a template that cannot be read stays as it is
	}
	if revision, err := podtemplate.SandboxRevision(sb); err == nil {
		sb.Status.UpdateRevision = revision
	}
}

// report writes in the claim's status how the updates went of what the claim holds after the plan,
// or if there are none, of what it releases because of its image.
func (inPlaceUpdate) report(a *Assessment, p *Plan) {
	var left, lost resizes
	leaving := make(map[string]bool, len(p.Counted)+len(p.Released))
	for _, sb := range p.Counted {
		leaving[sb.Name] = true
		left.add(sb)
	}
	for _, sb := range p.Released {
		leaving[sb.Name] = true
		if lacksItsImage(a, sb) {
			lost.add(sb)
		}
	}
	for _, sb := range p.Bound {
		left.add(sb)
	}
	for _, sb := range a.State.Held {
		if sb.DeletionTimestamp == nil && !v1alpha1.IsReservedFailed(sb) && !leaving[sb.Name] {
			left.add(sb)
		}
	}
	if left.succeeded+left.failed+left.running == 0 {
		left = lost
	}
	left.report(a.claim, a.State.Now)
}

const (
	// namedFailures is how many sandboxes a claim names that could not be resized.
	namedFailures = 3
	// maxReason bounds what is reported of one of them.
	maxReason = 256
)

// resizes counts how the updates in place of a claim's sandboxes went.
type resizes struct {
	succeeded, failed, running int
	// reasons are those of the first that failed, ordered by name: the order in which
	// sandboxes are added changes when they come to count.
	reasons []string
}

// add takes in a sandbox. One that never was to be changed changes nothing.
func (r *resizes) add(sb *v1alpha1.Sandbox) {
	update := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
	switch {
	case update == nil:
	case update.Status == metav1.ConditionTrue:
		r.succeeded++
	case inplace.InProgress(sb):
		r.running++
	default:
		r.failed++
		if len(r.reasons) == namedFailures && sb.Name > r.reasons[namedFailures-1] {
			return
		}
		reason := update.Message
		if len(reason) > maxReason {
			reason = strings.ToValidUTF8(reason[:maxReason], "") + "..."
		}
		reason = sb.Name + ": " + reason
		at, _ := slices.BinarySearch(r.reasons, reason)
		r.reasons = slices.Insert(slices.Clip(r.reasons), at, reason) // copies of the count share no memory
		r.reasons = r.reasons[:min(len(r.reasons), namedFailures)]
	}
}

// lacksForImage reports whether a claim lacks sandboxes, and its status says that it released some
// because of their image.
func lacksForImage(claim *v1alpha1.SandboxClaim) bool {
	reported := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	return reported != nil && reported.Reason == v1alpha1.ReasonFailed && claim.Status.ClaimedReplicas < replicas(claim)
}

// report writes in the claim's status how resizes went; nothing, if there were none. Why
// sandboxes with a bad image were released stays until there is something else to report.
func (r *resizes) report(claim *v1alpha1.SandboxClaim, now time.Time) {
	notDone, doing, done := "could not be resized", "Resizing %d sandboxes", "Resized %d sandboxes"
	asked := claim.Spec.InplaceUpdate != nil
	if asked {
		notDone, doing, done = "could not be updated in place", "Updating %d sandboxes in place", "Updated %d sandboxes in place"
	}
	switch {
	case r.failed > 0:
		message := fmt.Sprintf("%d of %d sandboxes %s: %s",
			r.failed, r.failed+r.succeeded+r.running, notDone, strings.Join(r.reasons, "; "))
		if more := r.failed - len(r.reasons); more > 0 {
			message += fmt.Sprintf("; and %d more", more)
		}
		condition(claim, now, v1alpha1.ClaimConditionInplaceUpdate, metav1.ConditionFalse, v1alpha1.ReasonFailed, message)
	case r.running > 0:
		condition(claim, now, v1alpha1.ClaimConditionInplaceUpdate, metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating,
			fmt.Sprintf(doing, r.running))
	case r.succeeded > 0:
		condition(claim, now, v1alpha1.ClaimConditionInplaceUpdate, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
			fmt.Sprintf(done, r.succeeded))
	case asked && lacksForImage(claim):
	default:
		meta.RemoveStatusCondition(&claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	}
}
