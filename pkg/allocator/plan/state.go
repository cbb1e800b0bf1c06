// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

// State is what is known of a claim. None of its objects is changed.
type State struct {
	// Claim is as admitted or as stored.
	Claim *v1alpha1.SandboxClaim
	// New reports whether the claim is not stored yet.
	New bool
	// Start is the start of the claim by the clock of this server. The start in its status may
	// be by the clock of another server.
	Start time.Time
	// Held are the sandboxes that name the claim as their owner, ordered by name.
	Held []*v1alpha1.Sandbox
	// Eligible is where sandboxes of the claim can come from.
	Eligible claims.Eligible
	// Broken is why it could not be found out where they can come from; nil otherwise.
	Broken error
	// Refused is why the claim gets no more than it has; nil otherwise.
	Refused *RefusedError
	// Metadata is what is known of a change of the claim's metadata.
	Metadata MetadataChange
	// Room is how many sandboxes one transaction may change.
	Room int
	// Making is what is known about making sandboxes for the claim.
	Making Making
	// Setups is what this server knows of the runtimes that it sets up for the claim.
	Setups Setups
	// Now is the time.
	Now time.Time
}

// FailsOnShortage reports whether the claim would rather not be stored than lack sandboxes.
func (s *State) FailsOnShortage() bool {
	return s.New && s.Claim.Spec.OnShortage == v1alpha1.ShortageFail
}

// isTooLarge reports whether what the claim lacks does not fit into a transaction.
func (s *State) isTooLarge() bool {
	return s.Refused != nil && s.Refused.Reason == v1alpha1.ReasonTooLarge
}

// Making is what is known about making sandboxes for a claim.
type Making struct {
	// Allowed reports whether sandboxes may be made at this time.
	Allowed bool
	// Denied is why admission let no sandbox be made; nil otherwise.
	Denied error
	// Name is whether a sandbox can be made under the name that it is to have.
	Name NameState
}

// NameState is whether a sandbox can be made under a name that no other could have instead.
type NameState int

const (
	// NameFree is a name that no sandbox is known to have.
	NameFree NameState = iota
	// NameLeaving is one that a sandbox has that is being deleted.
	NameLeaving
	// NameTaken is one that a sandbox has.
	NameTaken
)

// Needs is what has to be looked for between Assess and Next.
type Needs struct {
	// Take is how many sandboxes of pools to take.
	Take int
	// Make reports whether sandboxes are to be made for what the pools lack.
	Make bool
	// Explain reports whether it is only asked why none can be made.
	Explain bool
}

// Offer is what was found. None of its objects is changed.
type Offer struct {
	// Candidates are sandboxes of pools, in the order in which they are to be used.
	Candidates []Candidate
	// Made are sandboxes made for the claim by Marks.NewSandbox.
	Made []*v1alpha1.Sandbox
	// WouldMake is how many would be made beside these, of which only the number counts,
	// because the plan is not to be written.
	WouldMake int
	// Broken is why none can be made although the claim wants that; nil otherwise.
	Broken error
}

// Candidate is a sandbox of a pool that is to be bound.
type Candidate struct {
	// Sandbox is as stored.
	Sandbox *v1alpha1.Sandbox
	// Template is the pod template that it is bound with; nil if it has none.
	Template *runtime.RawExtension
	// Resize reports whether Template says more than what the pod runs with.
	Resize bool
	// ResizeFailed is why the pod stays smaller than the template that the claim asks
	// for, or has not the cpu of its inplaceUpdate; nil otherwise.
	ResizeFailed error
	// InPlace is what of Template the claim's inplaceUpdate has put there.
	InPlace inplace.Goal
	// Lock is the value of the sandbox's lock.
	Lock string
	// PodMetadata says which of the claim's labels and annotations reach the pod, as its
	// pool says; nil is all.
	PodMetadata *v1alpha1.PodMetadataPolicy
}

// changesPod reports whether the pod is changed in place for the claim.
func (c *Candidate) changesPod() bool { return c.Resize || c.InPlace.Any() }

// Plan is the next true state of a claim and of the sandboxes that change with it,
// to be written in one transaction.
type Plan struct {
	// Claim is the claim's next state, which shares its spec and metadata with the one
	// that the plan was made from.
	Claim *v1alpha1.SandboxClaim
	// Released are sandboxes that the claim held and no longer holds.
	Released []*v1alpha1.Sandbox
	// Counted are sandboxes that the claim held and that count from now on.
	Counted []*v1alpha1.Sandbox
	// Marked are sandboxes that the claim holds and that this server is about to have
	// volumes mounted into.
	Marked []*v1alpha1.Sandbox
	// Bound are the next states of the first candidates of the offer, and Made the
	// first of those that were made.
	Bound, Made []*v1alpha1.Sandbox
	// Wants is what the claim waits for after this.
	Wants Wants
	// Until is when the passing of time alone changes something.
	Until time.Time
	// Broken is why no sandboxes can be made, or Problem why nothing can serve the
	// claim as things are, although it lacks some; nil otherwise.
	Broken  error
	Problem *claims.Problem
	// Took is how long the claim has taken until the plan.
	Took time.Duration

	before *v1alpha1.SandboxClaim
}

// Wants is what a claim waits for.
type Wants struct {
	// Need is how many sandboxes of pools it waits for.
	Need int
	// AtOnce reports whether it takes all of them at once or none.
	AtOnce bool
	// Yields reports whether other claims may be served before it, because the pools
	// are not meant to ever hold as much as it needs at once.
	Yields bool
}

// RefusedError means that a claim asks for something that it cannot have, whatever
// the stock.
type RefusedError struct {
	// Reason is that of the claim's conditions if the claim ends like this.
	Reason string
	// Message is that of the claim's status.
	Message string
	// Conflict reports whether what the claim adds may be added, and the template says
	// otherwise, or has not the container that it is for.
	Conflict bool
	// Errors name the fields of the claim. No values are in them.
	Errors field.ErrorList
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Message }

// readyBy returns the time at which a sandbox that is not ready has failed. One second is added
// because boundAt has a precision of one second. Time behind a scheduling gate does not count;
// callers check IsGated first. Nor does the time that a process may take to end before the image of
// its container is changed.
func readyBy(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) time.Time {
	since := boundAt(sb)
	if removed := v1alpha1.GatesRemovedAt(sb); removed.After(since) {
		since = removed
	}
	return since.Add(durationOr(claim.Spec.WaitReadyTimeout, v1alpha1.DefaultWaitReadyTimeout) + inplace.TimeToEnd(sb) + time.Second)
}

// boundAt is when a sandbox became its claim's: when it was made for it, or taken
// from a pool, where it may have been for long.
func boundAt(sb *v1alpha1.Sandbox) time.Time {
	if t, err := time.Parse(time.RFC3339, sb.Annotations[v1alpha1.AnnotationClaimTimestamp]); err == nil {
		return t
	}
	return sb.CreationTimestamp.Time
}

func durationOr(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}
