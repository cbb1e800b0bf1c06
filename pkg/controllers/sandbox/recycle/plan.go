// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package recycle

import (
	"fmt"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// observation is what is known when a plan is made. Nothing in it is changed.
type observation struct {
	sandbox *v1alpha1.Sandbox
	// set is that of the name in the sandbox's label, or nil.
	set *v1alpha1.SandboxSet
	// member is a sandbox as the set makes them now; nil if it can make none, and
	// noMember is why.
	member   *v1alpha1.Sandbox
	noMember error
	// timeout is how long it may take to recycle a sandbox.
	timeout time.Duration
	now     time.Time
}

// action is what is to be done about a sandbox.
type action int

const (
	// leave: nothing.
	leave action = iota
	// reject: tell why it is not recycled, and end the request.
	reject
	// begin: begin to recycle it.
	begin
	// restore: give it back to its pool.
	restore
	// fail: give it up.
	fail
)

// plan is what is to be done.
type plan struct {
	action action
	// reason and message are those of the condition and the event of reject and fail.
	reason, message string
	// again is after what time to look again even if no event comes; 0 is never.
	again time.Duration
}

// decide makes the plan for a sandbox.
func (o *observation) decide() plan {
	sb := o.sandbox
	switch {
	case sb.DeletionTimestamp != nil:
		return plan{}
	case sb.Status.Phase == v1alpha1.SandboxRecycling:
		return o.goOn()
	case !isAskedFor(sb):
		return plan{}
	case isGivenUp(sb):
		return plan{action: fail, reason: reasonOf(sb), message: sb.Status.Message}
	}
	if why := rejection(sb); why != "" {
		return plan{action: reject, reason: v1alpha1.ReasonRecyclingRejected, message: why}
	}
	if why := o.obstacle(); why != "" {
		return plan{action: fail, reason: v1alpha1.ReasonRecyclingFailed, message: why}
	}
	return plan{action: begin}
}

// goOn is the plan for a sandbox that is being recycled.
func (o *observation) goOn() plan {
	left := StartedAt(o.sandbox).Add(o.timeout).Sub(o.now)
	switch {
	case left <= 0:
		return plan{action: fail, reason: v1alpha1.ReasonRecyclingTimeout, message: fmt.Sprintf("The sandbox was not recycled within %s", o.timeout)}
	case !needsSet(o.sandbox):
		return plan{again: left}
	}
	if why := o.obstacle(); why != "" {
		return plan{action: fail, reason: v1alpha1.ReasonRecyclingFailed, message: why}
	}
	return plan{action: restore, again: left}
}

// needsSet reports whether the plan for a sandbox depends on its set.
func needsSet(sb *v1alpha1.Sandbox) bool {
	switch {
	case sb.DeletionTimestamp != nil:
		return false
	case sb.Status.Phase == v1alpha1.SandboxRecycling:
		return IsCleaned(sb) && !v1alpha1.IsInPool(sb)
	}
	return isAskedFor(sb) && rejection(sb) == ""
}

// isAskedFor reports whether a sandbox is to be recycled.
func isAskedFor(sb *v1alpha1.Sandbox) bool {
	return sb.Annotations[v1alpha1.AnnotationCleanup] == v1alpha1.CleanupTrue
}

// isGivenUp reports whether a sandbox was given up while it was recycled.
func isGivenUp(sb *v1alpha1.Sandbox) bool {
	reason := reasonOf(sb)
	return sb.Status.Phase == v1alpha1.SandboxFailed &&
		(reason == v1alpha1.ReasonRecyclingFailed || reason == v1alpha1.ReasonRecyclingTimeout)
}

// rejection is why a sandbox is not recycled and continues as it is; empty if it is not so.
func rejection(sb *v1alpha1.Sandbox) string {
	phase := sb.Status.Phase
	switch {
	case sb.Annotations[v1alpha1.AnnotationCleanupEnabled] != v1alpha1.CleanupTrue:
		return "The annotation " + v1alpha1.AnnotationCleanupEnabled + " is not true"
	case v1alpha1.IsInPool(sb):
		return "The sandbox is in a pool already"
	case !isClaimed(sb):
		return "The sandbox is not claimed"
	case sb.Annotations[v1alpha1.AnnotationStarting] != "":
		return "The sandbox is still starting for its claim"
	case sb.Spec.Paused || phase == v1alpha1.SandboxPaused || phase == v1alpha1.SandboxResuming:
		return "The sandbox is paused or comes back from a pause"
	case phase != v1alpha1.SandboxRunning:
		return fmt.Sprintf("The sandbox is %s, not %s", phase, v1alpha1.SandboxRunning)
	case len(sb.Spec.VolumeClaimTemplates) > 0:
		return "The sandbox has PersistentVolumeClaims"
	}
	return ""
}

// isClaimed reports whether a sandbox is bound to a claim: by what only claims write.
func isClaimed(sb *v1alpha1.Sandbox) bool {
	owner := sb.Annotations[v1alpha1.AnnotationOwner]
	return owner != "" && owner != v1alpha1.OwnerScaleDown && sb.Annotations[v1alpha1.AnnotationLock] != "" &&
		sb.Labels[v1alpha1.LabelSandboxClaimed] == v1alpha1.ClaimedTrue
}

// obstacle is why a sandbox cannot go back to the pool that it came from; empty if it can.
func (o *observation) obstacle() string {
	pool, revision := o.sandbox.Labels[v1alpha1.LabelSandboxPool], o.sandbox.Labels[v1alpha1.LabelTemplateHash]
	switch {
	case pool == "" || revision == "":
		return "The sandbox comes from no pool"
	case o.set == nil:
		return fmt.Sprintf("SandboxSet %s is gone", pool)
	case o.set.DeletionTimestamp != nil:
		return fmt.Sprintf("SandboxSet %s is being deleted", pool)
	case !IsOf(o.sandbox, o.set):
		return fmt.Sprintf("SandboxSet %s is another one than that which the sandbox comes from", pool)
	case revision != o.set.Status.UpdateRevision:
		return fmt.Sprintf("The sandbox is of revision %s, SandboxSet %s of %s by now", revision, pool, o.set.Status.UpdateRevision)
	case o.member == nil:
		return fmt.Sprintf("SandboxSet %s can make no sandboxes: %v", pool, o.noMember)
	}
	return ""
}

// retention is for how long a sandbox is kept that was given up. What was given back to a
// pool has nothing of its user any more.
func retention(sb *v1alpha1.Sandbox) time.Duration {
	if v1alpha1.IsInPool(sb) {
		return 0
	}
	return v1alpha1.CleanupRetention(sb.Annotations[v1alpha1.AnnotationCleanupRetainOnFailure])
}
