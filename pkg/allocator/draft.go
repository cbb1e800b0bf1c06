// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podresize"
)

// draft works out the next true state that can be written now.
//
//  1. Sandboxes that the claim holds and that became ready count; those that
//     failed are let go.
//  2. What is missing is bound from the pool, and made where the pool has none
//     and the claim wants that.
//  3. The claim is complete when nothing is missing, ends with what it has when
//     its time is up, and goes on otherwise.
//
// With AllOrNothing nothing counts before everything does, so that the claim
// shows none or all at every moment, and ends with one or the other.
func (j *job) draft(ctx context.Context) (*draft, error) {
	ctx, span := tracing.Start(ctx, "Find sandboxes")
	defer span.End(slow)
	now := j.a.options.Clock.Now()
	d := &draft{claim: j.claim.DeepCopy()}
	if j.at == 0 {
		begin(d.claim, now)
	}
	if d.claim.Status.ClaimStartTime == nil { // a client rewrote the status
		d.claim.Status.ClaimStartTime = &metav1.Time{Time: j.start}
	}
	j.resolved, j.goals, j.recipe = nil, nil, nil
	var err error
	d.expired = j.at != 0 && !now.Before(j.deadline())
	if d.supply, err = j.a.supply(ctx, j.claim, j.at == 0); err != nil {
		if !d.expired || ctx.Err() != nil {
			return nil, err
		}
		d.broken = err // its time is up all the same
	}
	j.retryAside(d, now)
	if d.refused, err = j.refusal(ctx, d); err != nil && (ctx.Err() != nil || j.at == 0) {
		return nil, err // of one that is stored it is met again where a sandbox is to be made
	}
	if d.refused != nil && j.at == 0 {
		return nil, d.refused
	}

	listed := slices.Concat(d.claim.Status.Sandboxes, j.found)
	ready := j.sort(d, now)
	if !atomicClaim(d.claim) {
		listed = append(listed, j.count(d, ready)...)
	}
	report(d.claim, listed, j.unlisted, nil)
	d.missing = max(0, int(replicas(d.claim)-d.claim.Status.ClaimedReplicas)-(len(j.fresh)-len(d.counts)-len(d.drops)))
	if d.missing > 0 {
		if err := j.fillUnless(ctx, d, now); err != nil {
			return nil, err
		}
	}
	listed = append(listed, j.standing(d, ready)...)
	d.date(now)
	d.missing -= len(d.binds) + len(d.fresh)
	report(d.claim, listed, j.unlisted, d.supply.problem)
	resizes := j.settled(d)
	resizes.report(d.claim, now)
	j.conclude(d, now)
	j.look(d, now)
	span.AddEvent("Found", attribute.Int("from pool", len(d.binds)), attribute.Int("made", len(d.fresh)), attribute.Int("missing", d.missing))
	return d, nil
}

// look takes in, and tells, what is in the way of the claim after a draft.
func (j *job) look(d *draft, now time.Time) {
	if d.refused != nil && unfinished(d.claim) {
		d.broken = d.refused // which it may be no more when all that starts is ready
	}
	if d.broken != nil && d.missing > 0 {
		unmade(d.claim, d.broken)
	}
	j.unserved = !d.supply.found || len(d.supply.sources) == 0
	j.stuck.Store(d.missing > 0 && (d.supply.problem != nil || d.broken != nil))
	j.scheduleRetry(d, now)
}

// standing says what the sandboxes from the pool are to the claim, and returns
// the entries of those that count now. With AllOrNothing they count, and those
// that were ready before with them, once all are there.
func (j *job) standing(d *draft, ready []*v1alpha1.Sandbox) []v1alpha1.ClaimedSandbox {
	var entries []v1alpha1.ClaimedSandbox
	as := counted
	if atomicClaim(d.claim) {
		if len(ready)+len(d.binds) < int(replicas(d.claim)) || len(d.drops) > 0 || anyResizing(d.binds) {
			as = starting
		} else {
			entries = j.count(d, ready)
		}
	}
	for _, b := range d.binds {
		if as == starting || podresize.InProgress(b.sandbox) {
			j.binding.stand(b.sandbox, starting)
			continue
		}
		j.binding.stand(b.sandbox, counted)
		entries = append(entries, claimed(b.sandbox))
	}
	return entries
}

// conclude ends the claim in the draft, if it has all it asked for, or if it gets no
// more and nothing that it holds may still come to count.
func (j *job) conclude(d *draft, now time.Time) {
	switch {
	case d.claim.Status.ClaimedReplicas >= replicas(d.claim):
		complete(d.claim, now)
	case !d.expired && d.refused == nil || len(d.counts)+len(d.drops) < len(j.fresh):
	case d.refused != nil:
		reject(d.claim, now, d.refused)
	default:
		timeOut(d.claim, now, now.Sub(claimStart(d.claim, j.start)), d.supply.problem)
	}
}

// sort lets go of the sandboxes that the claim holds and that have failed, as
// far as a transaction can take them, and returns those that are ready. At the end
// of the claim's time every one that is not ready has failed, and with AllOrNothing
// every one, unless all are ready; so they have where the claim gets no more.
func (j *job) sort(d *draft, now time.Time) []*v1alpha1.Sandbox {
	over := d.expired || d.refused != nil && atomicClaim(d.claim)
	var ready, failed []*v1alpha1.Sandbox
	for _, name := range slices.Sorted(maps.Keys(j.fresh)) {
		sb := j.fresh[name]
		switch state := v1alpha1.StateOf(sb.Sandbox, now); {
		case state == v1alpha1.StateRunning && sb.Status.PodInfo.PodIP != "" && !podresize.InProgress(sb.Sandbox):
			ready = append(ready, sb.Sandbox)
		case over, !now.Before(sb.until), ended(sb.Sandbox):
			failed = append(failed, dropped(sb.Sandbox, j.claim.Spec.ReserveFailedSandbox, now))
		}
	}
	if over && atomicClaim(d.claim) && len(ready) < int(replicas(d.claim)) {
		for _, sb := range ready {
			failed = append(failed, dropped(sb, false, now))
		}
		ready = nil
	}
	d.drops = failed[:min(len(failed), j.room)]
	return ready
}

// count adds sandboxes that are ready to the draft, as far as it has room, and
// returns their entries.
func (j *job) count(d *draft, ready []*v1alpha1.Sandbox) []v1alpha1.ClaimedSandbox {
	var entries []v1alpha1.ClaimedSandbox
	for _, sb := range ready[:min(len(ready), j.room-len(d.drops))] {
		sb = sb.DeepCopy()
		j.binding.stand(sb, counted)
		d.counts = append(d.counts, sb)
		entries = append(entries, claimed(sb))
	}
	return entries
}

func isStarting(sb *v1alpha1.Sandbox) bool {
	return sb.Annotations[v1alpha1.AnnotationStarting] == "true"
}

// ended says whether a fresh sandbox can no longer become ready.
func ended(sb *v1alpha1.Sandbox) bool {
	switch sb.Status.Phase {
	case v1alpha1.SandboxFailed, v1alpha1.SandboxSucceeded, v1alpha1.SandboxTerminating:
		return true
	}
	return sb.DeletionTimestamp != nil
}

// dropped is the state of a sandbox that the claim lets go: kept for debugging
// where that was asked for, else no longer the claim's and due to be shut down.
func dropped(sb *v1alpha1.Sandbox, reserve bool, now time.Time) *v1alpha1.Sandbox {
	sb = sb.DeepCopy()
	owner := sb.Annotations[v1alpha1.AnnotationOwner]
	sb.OwnerReferences = slices.DeleteFunc(sb.OwnerReferences, func(o metav1.OwnerReference) bool { return string(o.UID) == owner })
	delete(sb.Annotations, v1alpha1.AnnotationStarting)
	if reserve {
		sb.Labels = merged(sb.Labels, map[string]string{v1alpha1.LabelReservedFailedSandbox: "true"})
		return sb
	}
	delete(sb.Annotations, v1alpha1.AnnotationOwner)
	delete(sb.Labels, v1alpha1.LabelClaimName)
	shutdown := metav1.NewTime(now.Truncate(time.Second))
	sb.Spec.ShutdownTime = &shutdown
	sb.Generation++
	return sb
}

// fillUnless adds what the draft is missing. A claim that asks for what its template
// does not take gets nothing more, and neither does one whose time is up, but that is
// told what it could not get.
func (j *job) fillUnless(ctx context.Context, d *draft, now time.Time) (err error) {
	switch {
	case d.refused != nil:
	case !d.expired:
		return j.fill(ctx, d, now)
	case createsOnNoStock(d.claim) && d.supply.canMake():
		if d.broken, err = j.a.brokenRecipe(ctx, d.claim, &d.supply); err != nil && ctx.Err() == nil {
			d.broken, err = err, nil // its time is up all the same
		}
	}
	return err
}

// fill adds what the draft is missing, as far as one transaction can take it.
func (j *job) fill(ctx context.Context, d *draft, now time.Time) error {
	if len(d.drops) > 0 {
		j.createAfter = now.Add(j.recreate.Step())
		if atomicClaim(d.claim) {
			return nil // first let go, then begin again
		}
	}
	room := min(d.missing, j.room-len(d.drops)-len(d.counts))
	if done, err := j.fillUp(ctx, d, room, now); done || err != nil {
		return err
	}
	if j.at == 0 && d.claim.Spec.OnShortage == v1alpha1.ShortageFail {
		if err := j.gatherAll(ctx, d); err != nil {
			return err
		}
	} else if err := j.gather(ctx, d, room, false); err != nil {
		return err
	}
	if len(j.held) < d.missing && atomicClaim(d.claim) {
		if j.at == 0 || d.broken != nil || d.supply.problem != nil {
			j.letGo() // others can do with them
		}
		return nil
	}
	d.binds = slices.Clone(j.held[:min(room, len(j.held))])
	return nil
}

// gatherAll gathers for a claim that would rather fail than wait: all that it is
// missing, so that no other claim counts on the same ones.
func (j *job) gatherAll(ctx context.Context, d *draft) error {
	if err := j.gatherSurely(ctx, d, d.missing, false); err != nil {
		return err
	}
	have := len(j.held)
	if have >= d.missing {
		return nil
	}
	available := min(d.missing, have+j.a.queue.stock(d.supply.sources))
	return j.a.shortage(d.claim, &d.supply, d.missing, available, d.broken)
}

// fillUp adds what there is in the pools, and fresh sandboxes for the rest, if the
// claim takes them. It is not done if none can be made now.
func (j *job) fillUp(ctx context.Context, d *draft, room int, now time.Time) (done bool, err error) {
	if !createsOnNoStock(d.claim) || now.Before(j.createAfter) || !d.supply.canMake() {
		return false, nil
	}
	if err := j.gatherSurely(ctx, d, room, true); err != nil {
		return false, err
	}
	if len(j.held) < room {
		if !d.supply.canMake() { // what was there has gone meanwhile
			return false, nil
		}
		if err = j.findRecipe(ctx, d); err != nil {
			if ctx.Err() != nil || j.at == 0 && d.claim.Spec.OnShortage == v1alpha1.ShortageFail {
				return false, err
			}
			// The claim goes on with what there is, and looks again.
			j.recipe = &recipe{broken: err}
		}
		d.broken = j.recipe.broken
	}
	if d.broken == nil {
		d.binds = slices.Clone(j.held[:min(room, len(j.held))])
		return true, j.make(ctx, d, room-len(d.binds), now)
	}
	return false, nil
}

// findRecipe finds how the claim's sandboxes are made, once in a draft.
func (j *job) findRecipe(ctx context.Context, d *draft) (err error) {
	if j.recipe == nil {
		j.recipe, err = j.a.newRecipe(ctx, j.claim, &d.supply, j.a.store)
	}
	return err
}

// make adds n fresh sandboxes to the draft. If they must not be made, a new claim
// fails; one that goes on does so without them, and asks again later.
func (j *job) make(ctx context.Context, d *draft, n int, now time.Time) error {
	admitted := len(j.made)
	made := slices.Clone(j.made)
	for len(made) < n {
		sb, err := j.recipe.fresh(j.binding, now)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(made, func(other *v1alpha1.Sandbox) bool { return other.Name == sb.Name }) {
			made = append(made, sb)
		}
	}
	if err := j.admit(ctx, made[admitted:]); err != nil {
		if j.at == 0 {
			return err
		}
		klog.FromContext(ctx).Error(err, "No sandboxes are made for a claim that goes on", "claim", klog.KObj(j.claim))
		j.createAfter = now.Add(j.recreate.Step())
		if atomicClaim(d.claim) {
			d.binds = nil
		}
		return nil
	}
	j.made = made
	d.fresh = slices.Clone(j.made[:max(0, n)])
	return nil
}

func (j *job) admit(ctx context.Context, made []*v1alpha1.Sandbox) error {
	if j.a.options.Admit == nil || len(made) == 0 {
		return nil
	}
	return j.a.options.Admit(ctx, j.claim, made)
}

// gather fetches candidates until n are held or there are no more. makes says
// that what is missing will be made, so that any number will do.
func (j *job) gather(ctx context.Context, d *draft, n int, makes bool) error {
	for len(j.held) < n {
		taken := j.a.queue.collect(j.waiter)
		if len(taken) == 0 && !j.a.queue.inLine(j.waiter) {
			taken = j.a.queue.take(d.supply.sources, n-len(j.held), j.atomic(d) && !makes)
		}
		if len(taken) == 0 {
			return nil
		}
		for i, c := range taken {
			b, err := j.prepare(ctx, c)
			if err != nil {
				j.a.queue.release(taken[i:])
				return err
			}
			if b != nil {
				j.held = append(j.held, *b)
			}
		}
	}
	return nil
}

// differs says whether there is anything in the draft that is not stored.
func (d *draft) differs(stored *v1alpha1.SandboxClaim) bool {
	return len(d.binds)+len(d.fresh)+len(d.drops)+len(d.counts) > 0 ||
		!apiequality.Semantic.DeepEqual(d.claim.Status, stored.Status)
}
