// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Next works out the next true state that can be written now: what the claim holds,
// as assessed, and what is offered, as far as one transaction takes it. marks are
// those of the claim.
//
// The claim is complete when nothing is missing, and ends with what it has when its time
// is up. Otherwise it stays Claiming. An error means that the template of a candidate
// cannot be read.
func (a *Assessment) Next(o Offer, marks *Marks) (*Plan, error) {
	p := &Plan{
		Claim: a.claim, before: a.State.Claim, Took: a.State.Now.Sub(a.State.Start), Until: until(a),
		Broken: o.Broken, Problem: a.State.Eligible.Problem,
	}
	if a.State.Broken != nil {
		p.Broken = a.State.Broken
	}
	// A candidate may have to be changed in place, which no feature knew before.
	a.features = featuresOf(&a.State, o.Candidates)
	waits, err := a.bindOffer(p, &o, marks)
	if err != nil {
		return nil, err
	}
	countBound(a, p.Bound, waits)
	p.Released, p.Counted, p.Marked = a.held.released, a.held.counted, a.held.marked
	left := max(0, a.missing-len(p.Bound)-len(p.Made)-o.WouldMake)
	reportOn(a, p.Problem)
	conclude(a, p)
	forgetIdentity(a.claim)
	if a.State.Refused != nil && claims.Unfinished(a.claim) {
		p.Broken = a.State.Refused // which it may be no more when all that starts is ready
	}
	a.claim.Status.Waiting = nil
	if claims.Unfinished(a.claim) || int(a.claim.Status.ClaimedReplicas) < claims.Replicas(a.claim) {
		describe(a, p, left, len(o.Candidates)+len(o.Made)+o.WouldMake)
	}
	if left == 0 {
		p.Broken, p.Problem = nil, nil
	}
	p.Wants = wants(a, min(left, max(0, a.mayHave-len(p.Bound)-len(p.Made)-o.WouldMake)), p.Broken)
	each(a.features, func(f reporter) { f.report(a, p) })
	return p, nil
}

// bindOffer adds to a plan what of an offer becomes the claim's. It returns which of the sandboxes
// from the pools have to be changed or set up before they count.
func (a *Assessment) bindOffer(p *Plan, o *Offer, marks *Marks) (waits []bool, err error) {
	candidates, made := use(a, o)
	waits = make([]bool, len(candidates))
	for i := range candidates {
		sb, err := marks.claimCandidate(&candidates[i], a.State.Now)
		if err != nil {
			return nil, err
		}
		if waits[i], err = bindFeatures(a, marks, sb, &candidates[i]); err != nil {
			return nil, err
		}
		p.Bound = append(p.Bound, sb)
	}
	for _, sb := range made {
		next := dated(sb, a.State.Now)
		if _, err := bindFeatures(a, marks, next, nil); err != nil {
			return nil, err
		}
		p.Made = append(p.Made, next)
	}
	return waits, nil
}

// use returns what of an offer fits into the transaction and is of use.
func use(a *Assessment, o *Offer) (candidates []Candidate, made []*v1alpha1.Sandbox) {
	atOnce := claims.AllOrNothing(a.claim)
	n := a.mayBind()
	candidates = o.Candidates[:min(n, len(o.Candidates))]
	if a.State.New && len(candidates) == 0 && !atOnce && n == a.State.Room && n > 1 {
		n-- // so that the transaction can have a guard
	}
	made = o.Made[:min(n-len(candidates), len(o.Made))]
	if atOnce && len(candidates)+len(made)+o.WouldMake < a.missing {
		return nil, nil
	}
	return candidates, made
}

// countBound lets the sandboxes from the pools count, except those that have to be changed or set up
// first. With AllOrNothing they count once all are there, together with those that were ready before.
func countBound(a *Assessment, bound []*v1alpha1.Sandbox, waits []bool) {
	atOnce, all := claims.AllOrNothing(a.claim), false
	if atOnce {
		all = len(a.held.ready)+len(bound) >= a.held.lacks(a.claim) && !a.held.hasReleased() && !slices.Contains(waits, true)
		if all {
			a.count(a.held.ready)
		}
	}
	for i, sb := range bound {
		counts := all || !atOnce && !waits[i]
		setCounted(sb, a.claim, counts)
		if counts {
			a.held.list(sb)
		}
	}
}

// conclude ends the claim, if nothing that it holds may still come to count, and it has
// all it asked for or gets no more.
func conclude(a *Assessment, p *Plan) {
	isRefused := a.State.Refused != nil && claims.EndsRefused(a.claim)
	switch {
	case len(p.Counted)+len(p.Released) < a.held.starting: // it stays Claiming
	case int(a.claim.Status.ClaimedReplicas) >= claims.Replicas(a.claim):
		complete(a.claim, a.State.Now)
	case isRefused:
		reject(a.claim, a.State.Now, a.State.Refused)
	case !a.expired: // it stays Claiming
	case IsExpired(a.claim, a.State.Now):
		lapse(a.claim, a.State.Now)
	default:
		timeOut(a.claim, a.State.Now, a.State.Now.Sub(a.State.Start), p.Problem)
	}
}

// Claimer returns the user whom the work on a claim counts for in the write limits: its creator,
// or none if another user has changed its spec since.
func Claimer(claim *v1alpha1.SandboxClaim) string {
	if claim.Annotations[v1alpha1.AnnotationClaimedByIdentity] == "" {
		return ""
	}
	return claim.Annotations[v1alpha1.AnnotationClaimedBy]
}

// forgetIdentity removes the record of the creator from a claim that has ended: nothing is made for
// it any more, unless it gets another sandbox when its own is gone.
func forgetIdentity(claim *v1alpha1.SandboxClaim) {
	if _, ok := claim.Annotations[v1alpha1.AnnotationClaimedByIdentity]; ok && !claims.Unfinished(claim) && !claims.IsRebound(claim) {
		claim.Annotations = maps.Clone(claim.Annotations)
		delete(claim.Annotations, v1alpha1.AnnotationClaimedByIdentity)
	}
}

// Wants is what the claim waits for before anything is found for it.
func (a *Assessment) Wants() Wants { return wants(a, min(a.missing, a.mayHave), nil) }

// wants is what the claim waits for if it lacks missing sandboxes.
func wants(a *Assessment, missing int, broken error) Wants {
	capacity := 0
	for _, set := range a.State.Eligible.Pools {
		capacity += claims.Capacity(set, a.claim)
	}
	if !claims.Unfinished(a.claim) || a.State.Refused != nil || a.expired {
		missing = 0 // it takes nothing more
	}
	// Those that are made fill up what the pools have.
	atOnce := claims.AllOrNothing(a.claim) && (broken != nil || !a.makes())
	return Wants{Need: missing, AtOnce: atOnce, Yields: !a.State.Eligible.Found || atOnce && claims.Replicas(a.claim) > capacity}
}

// Sandboxes are those that the plan changes, in the order of the transaction, and how
// many of them exist already: the rest is made.
func (p *Plan) Sandboxes() (all []*v1alpha1.Sandbox, existing int) {
	all = make([]*v1alpha1.Sandbox, 0, len(p.Released)+len(p.Counted)+len(p.Marked)+len(p.Bound)+len(p.Made))
	all = append(append(append(append(all, p.Released...), p.Counted...), p.Marked...), p.Bound...)
	return append(all, p.Made...), len(all)
}

// ChangesSandboxes reports whether any sandbox changes with the plan.
func (p *Plan) ChangesSandboxes() bool {
	return len(p.Released)+len(p.Counted)+len(p.Marked)+len(p.Bound)+len(p.Made) > 0
}

// Binds reports whether the plan binds or creates sandboxes for the claim.
func (p *Plan) Binds() bool { return len(p.Bound)+len(p.Made) > 0 }

// Claimer returns the user whom the plan counts for in the write limits; empty if it counts for
// the namespace alone.
func (p *Plan) Claimer() string { return Claimer(p.before) }

// Ends reports whether the plan ends the claim.
func (p *Plan) Ends() bool { return !claims.Unfinished(p.Claim) }

// Changes reports whether anything in the plan is not stored.
func (p *Plan) Changes() bool {
	return p.ChangesSandboxes() || !apiequality.Semantic.DeepEqual(p.Claim.Status, p.before.Status)
}

// IsOnlyProgress reports whether the plan does nothing but count more sandboxes as
// ready, or as resized, which can wait a moment, so that a claim of thousands is not
// written again for each of them.
func (p *Plan) IsOnlyProgress(room int) bool {
	if p.Ends() || len(p.Bound)+len(p.Made)+len(p.Released)+len(p.Marked) > 0 || len(p.Counted) >= room/2 {
		return false
	}
	return len(p.Counted) > 0 || isOnlyResizes(&p.before.Status, &p.Claim.Status)
}

// ObservesSpec reports whether the plan answers a change of the claim's spec.
func (p *Plan) ObservesSpec() bool {
	return p.Claim.Status.ObservedGeneration != p.before.Status.ObservedGeneration
}

// CanSplit reports whether a part of the plan is as true as the whole.
func (p *Plan) CanSplit() bool {
	return !claims.AllOrNothing(p.Claim) || len(p.Counted)+len(p.Marked)+len(p.Bound)+len(p.Made) == 0
}

// isOnlyResizes reports whether two statuses differ in nothing but how resizes go.
func isOnlyResizes(before, after *v1alpha1.SandboxClaimStatus) bool {
	was, is := before.DeepCopy(), after.DeepCopy()
	meta.RemoveStatusCondition(&was.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	meta.RemoveStatusCondition(&is.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	return apiequality.Semantic.DeepEqual(was, is)
}

// Resizes counts the resizes that the plan ends, by how they went.
func (p *Plan) Resizes() (succeeded, failed, releasedUnready int) {
	var ended, released resizes
	for _, sb := range slices.Concat(p.Counted, p.Bound) {
		if !IsStarting(sb) {
			ended.add(sb)
		}
	}
	for _, sb := range p.Released {
		released.add(sb)
	}
	return ended.succeeded, ended.failed, released.succeeded + released.failed + released.running
}
