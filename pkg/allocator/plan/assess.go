// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Assessment is what becomes of what a claim holds: the first half of a plan.
type Assessment struct {
	// State is what the assessment was made from. Before Next is called, the caller sets what it has found
	// out since: Eligible and Making.
	State State
	// features are those that apply to the claim.
	features []feature
	// claim is the next state.
	claim *v1alpha1.SandboxClaim
	held  holdings
	// missing is how many sandboxes the claim lacks that are neither counted nor on
	// their way.
	missing int
	// expired reports whether the claim's time is up.
	expired bool
	// mayHave is how many more sandboxes the claim may have, by the bound on failures (credit).
	mayHave int
	// trial is set if mayHave is one because something of the claim has to be tried on a sandbox.
	trial bool
	// runtimes are known to be in pod templates, or not.
	runtimes agentRuntimes
}

// holdings are the sandboxes that a claim holds, and what becomes of them.
type holdings struct {
	// listed are the sandboxes that count, and unlisted how many more count that cannot
	// be named, because a client rewrote the status, or are named as what they became.
	listed   []v1alpha1.ClaimedSandbox
	unlisted int
	// starting is how many sandboxes the claim holds that do not count; ready are those
	// of them for which nothing is left to do, and waiting the others.
	starting       int
	ready, waiting []*v1alpha1.Sandbox
	// released are no longer the claim's, counted count from now on, and into marked this server
	// is about to mount volumes.
	released, counted, marked []*v1alpha1.Sandbox
}

// Assess works out what becomes of what a claim holds.
//
//   - What the status lists counts, also where a user has deleted it since: it is
//     not replaced.
//   - A sandbox that is the user's already, and lives, counts if it is not listed: a
//     client lowered the status. If the status counts more than that, the status is
//     believed.
//   - A sandbox for which nothing is left to do counts; one that failed is released.
//     At the end of the claim's time every sandbox that does not count has failed.
//   - With AllOrNothing nothing counts before everything does, so that the claim
//     shows none or all at every moment, and ends with one or the other.
//   - What is starting and not needed any more, because a client raised the status, is
//     released.
//   - One that is kept for debugging is not the claim's any more.
//   - A claim of which too many sandboxes have failed gets no more.
func Assess(s State) *Assessment {
	next := *s.Claim
	a := &Assessment{State: s, features: featuresOf(&s, nil), claim: &next, runtimes: agentRuntimes{}}
	if s.New {
		begin(a.claim, s.Now)
	} else {
		next.Status = *s.Claim.Status.DeepCopy()
	}
	if next.Status.ClaimStartTime == nil { // a client rewrote the status
		next.Status.ClaimStartTime = &metav1.Time{Time: s.Start}
	}
	next.Status.FailedReplicas = max(0, next.Status.FailedReplicas)
	a.expired = IsExpired(a.claim, s.Now) || !s.New && !s.Now.Before(Deadline(a.claim, s.Start))
	a.classify()
	if !claims.AllOrNothing(s.Claim) && !s.isTooLarge() {
		a.count(a.held.ready[:min(len(a.held.ready), a.State.Room-len(a.held.released))])
	}
	reportOn(a, nil)
	onTheWay := a.held.starting - len(a.held.counted) - len(a.held.released)
	a.missing = max(0, claims.Replicas(s.Claim)-int(a.claim.Status.ClaimedReplicas)-onTheWay)
	a.mayHave = credit(a.claim, onTheWay)
	each(a.features, func(f checker) { f.check(a, onTheWay) })
	return a
}

// classify finds out what the sandboxes that the claim holds are to it.
func (a *Assessment) classify() {
	named := make(map[string]bool, len(a.claim.Status.Sandboxes))
	a.held.listed = a.claim.Status.Sandboxes
	for _, entry := range a.held.listed {
		named[entry.Name] = true
	}
	var found []v1alpha1.ClaimedSandbox
	var failed []failure
	for _, sb := range a.State.Held {
		switch {
		case v1alpha1.IsReservedFailed(sb) || sb.DeletionTimestamp != nil:
		case !IsStarting(sb):
			if state := v1alpha1.StateOf(sb, a.State.Now); state != v1alpha1.StateDead && !named[sb.Name] {
				found = append(found, claimed(sb))
			}
		default:
			a.held.starting++
			if f := a.classifyStarting(sb); f != nil {
				failed = append(failed, *f)
			}
		}
	}
	a.held.unlisted = max(0, int(a.claim.Status.ClaimedReplicas)-len(a.held.listed)-len(found))
	a.held.listed = append(slices.Clip(a.held.listed), found...)
	a.releaseFailed(failed)
	a.limitFailures()
	for _, sb := range a.surplus() {
		if len(a.held.released) < a.State.Room {
			a.held.released = append(a.held.released, release(sb, false, a.State.Now))
		}
	}
}

// classifyStarting finds out how far a sandbox is that is starting, and returns why it failed if it
// did.
func (a *Assessment) classifyStarting(sb *v1alpha1.Sandbox) *failure {
	is := progressOf(a, sb)
	late := a.expired || claims.TimesOut(a.claim) && !v1alpha1.IsGated(sb) && !a.State.Now.Before(readyBy(a.claim, sb))
	switch {
	case is.progress == Done:
		a.held.ready = append(a.held.ready, sb)
		return nil
	case is.progress == Failed || late:
		return &failure{sb, is.setup}
	}
	a.held.waiting = append(a.held.waiting, sb)
	return nil
}

// surplus takes those that can never count out of ready and waiting, and returns them:
// what is not needed any more because a client raised the status, and with AllOrNothing
// everything, if the claim gets no more and not all are there; and what does not fit.
func (a *Assessment) surplus() (all []*v1alpha1.Sandbox) {
	lacks, over := a.held.lacks(a.claim), a.expired || a.State.Refused != nil
	if over && claims.AllOrNothing(a.claim) && len(a.held.ready) < lacks || a.State.isTooLarge() {
		lacks = 0
	}
	if n := min(len(a.held.ready), lacks); n == lacks {
		all = slices.Concat(a.held.ready[n:], a.held.waiting)
		a.held.ready, a.held.waiting = a.held.ready[:n], nil
	}
	return all
}

// lacks is how many more sandboxes of the claim have to count.
func (h *holdings) lacks(claim *v1alpha1.SandboxClaim) int {
	return max(0, claims.Replicas(claim)-len(h.listed)-h.unlisted)
}

// count lets sandboxes that are ready count.
func (a *Assessment) count(ready []*v1alpha1.Sandbox) {
	for _, sb := range ready {
		next := shallowCopy(sb)
		setCounted(next, a.claim, true)
		each(a.features, func(f counter) { f.count(a, next) })
		a.held.counted = append(a.held.counted, next)
		a.held.list(next)
	}
}

// list lists a sandbox that counts from now on, once: it may be one that the claim had
// before, and that came back to its pool since. What it was then still counts, as what is
// gone does, or a claim could be given the same sandboxes again and again.
func (h *holdings) list(sb *v1alpha1.Sandbox) {
	if sb.Status.RecycledCount > 0 {
		isSame := func(entry v1alpha1.ClaimedSandbox) bool { return entry.Name == sb.Name }
		others := slices.DeleteFunc(slices.Clone(h.listed), isSame)
		h.unlisted += len(h.listed) - len(others)
		h.listed = others
	}
	h.listed = append(h.listed, claimed(sb))
}

// mayBind is how many sandboxes the transaction may bind. With AllOrNothing all go into one, or
// the claim cannot be served.
func (a *Assessment) mayBind() int {
	switch {
	case a.expired || a.State.Refused != nil:
		return 0
	case claims.AllOrNothing(a.claim):
		return min(a.missing, a.mayHave)
	}
	return max(0, min(a.missing, a.mayHave, a.State.Room-len(a.held.released)-len(a.held.counted)-len(a.held.marked)))
}

// Missing is how many sandboxes the claim lacks that are neither counted nor on
// their way.
func (a *Assessment) Missing() int { return a.missing }

// IsTrial reports whether the claim may have only one sandbox, because its image has to be tried on
// it. SkipTrial removes that limit.
func (a *Assessment) IsTrial() bool { return a.trial && a.missing > 1 }

// hasReleased reports whether the claim releases sandboxes, for instance because they failed, so that
// others are not made for them at once.
func (h *holdings) hasReleased() bool { return len(h.released) > 0 }

// NeedsModel reports whether it has to be known, before a claim is assessed, whether
// its template takes what it adds to its sandboxes: because more have to be made.
func NeedsModel(s *State) bool {
	if !v1alpha1.NeedsFresh(&s.Claim.Spec) || !s.Eligible.CanMake() {
		return false
	}
	onTheWay := 0
	for _, sb := range s.Held {
		if isOnTheWay(sb) {
			onTheWay++
		}
	}
	return claims.Replicas(s.Claim)-int(s.Claim.Status.ClaimedReplicas) > onTheWay
}

// isOnTheWay reports whether a sandbox that a claim holds may still come to count.
func isOnTheWay(sb *v1alpha1.Sandbox) bool {
	return IsStarting(sb) && sb.DeletionTimestamp == nil && !v1alpha1.IsReservedFailed(sb)
}

// Needs returns what has to be looked for. A claim that is refused gets nothing more,
// and neither does one whose time is up, but its status says what it could not get.
func (a *Assessment) Needs() Needs {
	switch {
	case a.missing == 0 || a.State.Refused != nil:
		return Needs{}
	case a.expired:
		return Needs{Explain: !IsExpired(a.claim, a.State.Now) && claims.CreatesOnNoStock(a.claim) && a.State.Eligible.CanMake()}
	case a.held.hasReleased() && claims.AllOrNothing(a.claim):
		return Needs{} // first release, then begin again
	}
	return Needs{Take: a.mayBind(), Make: a.makes()}
}

// makes reports whether sandboxes are made for what the pools lack.
func (a *Assessment) makes() bool {
	return claims.CreatesOnNoStock(a.claim) && a.State.Eligible.CanMake() && a.State.Making.Allowed && !a.held.hasReleased()
}

// until is when the passing of time alone changes something.
func until(a *Assessment) time.Time {
	end := Deadline(a.claim, a.State.Start)
	if !claims.TimesOut(a.claim) {
		return end // what it has may start for as long as that takes
	}
	for _, sb := range a.held.waiting {
		if t := readyBy(a.claim, sb); t.Before(end) && !v1alpha1.IsGated(sb) {
			end = t
		}
	}
	return end
}
