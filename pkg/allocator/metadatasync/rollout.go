// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatasync

import (
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/allocator/throttles"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// maxCompared is how many sandboxes one step compares with their claim.
const maxCompared = 1000

// quietTime is how long after a backoff a claim must not change before its next backoff is as short
// as the first: as long as the longest, so that to wait for the end of each gains nothing.
const quietTime = 30 * time.Second

// Rollout is how far the changed labels, annotations and additionalPodMetadata of a claim have
// been written to the sandboxes that it holds: some in each step, in the order of their names. It is
// used by one goroutine at a time, and all of it can be lost.
//
// A change that comes meanwhile goes to the next sandbox first, so that each sandbox is written
// however often the claim changes. Between the rollouts of one claim is a backoff, which grows while
// changes continue, because each of them writes all sandboxes of the claim and all their pods.
type Rollout struct {
	// generation is the one of the claim that is rolled out; 0 before the first.
	generation int64
	// checked are the names of those that have it, and after the last of them.
	checked map[string]struct{}
	after   string
	// room is how many sandboxes a transaction may change, as far as was found out.
	room     int
	report   plan.MetadataReport
	heldBack map[string]struct{}
	spacing  reconciler.Backoff
	// throttledUntil is until when the write limits reject the next step.
	throttledUntil time.Time
}

// NewRollout returns a Rollout that has not begun.
func NewRollout() *Rollout {
	return &Rollout{
		room:    etcdtxn.MaxOps - 1,
		spacing: reconciler.NewBackoff(wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}),
	}
}

// Begin begins a rollout of the current state of the claim, unless it has begun already. If one of an
// older state has written something, the new one has to wait for the backoff.
func (r *Rollout) Begin(claim *v1alpha1.SandboxClaim, now time.Time) {
	if r.generation != claim.Generation {
		if r.checked != nil && r.report.Changed > 0 {
			r.spacing.Start(now)
		}
		r.generation, r.checked, r.report, r.heldBack = claim.Generation, map[string]struct{}{}, plan.MetadataReport{}, map[string]struct{}{}
	}
}

// Next returns when the rollout may write again.
func (r *Rollout) Next() time.Time {
	if r.throttledUntil.After(r.spacing.Until) {
		return r.throttledUntil
	}
	return r.spacing.Until
}

// IsQuiet reports whether the backoff need not be remembered any more.
func (r *Rollout) IsQuiet(now time.Time) bool { return r.spacing.IsOver(now.Add(-quietTime)) }

// IsDone reports whether all sandboxes have the metadata of the claim as it is.
func (r *Rollout) IsDone(claim *v1alpha1.SandboxClaim) bool {
	return r.generation == claim.Generation && r.checked == nil
}

// end notes that all sandboxes have been looked at.
func (r *Rollout) end(now time.Time) {
	r.checked = nil
	r.report.HeldBack = nil
	for key := range r.heldBack {
		r.report.HeldBack = append(r.report.HeldBack, key)
	}
	slices.Sort(r.report.HeldBack)
	r.heldBack = nil
	if r.report.Changed > 0 {
		r.spacing.Start(now)
	}
}

// left returns the sandboxes that are not checked yet, of all that the claim holds, ordered by name:
// first those after the last one that was checked.
func (r *Rollout) left(held []*v1alpha1.Sandbox) []*v1alpha1.Sandbox {
	first := sort.Search(len(held), func(i int) bool { return held[i].Name > r.after })
	var left []*v1alpha1.Sandbox
	for _, sb := range slices.Concat(held[first:], held[:first]) {
		_, checked := r.checked[sb.Name]
		if !checked && sb.DeletionTimestamp == nil && !v1alpha1.IsReservedFailed(sb) {
			left = append(left, sb)
		}
	}
	return left
}

// Throttle notes until when the write limits reject the next step.
func (r *Rollout) Throttle(until time.Time) { r.throttledUntil = until }

// Report returns what the rollout has done.
func (r *Rollout) Report() *plan.MetadataReport { return &r.report }

// markChecked records that a sandbox has what the claim says.
func (r *Rollout) markChecked(sb *v1alpha1.Sandbox) {
	r.checked[sb.Name] = struct{}{}
	r.after = sb.Name
}

// Writer writes the metadata of claims to their sandboxes. Its fields are set before its first use.
type Writer struct {
	Templates *candidates.Templates
	Store     storage.Store
	Clock     clock.PassiveClock
	Throttles *throttles.Throttles
	Lag       *metrics.Lag
}

// Step writes the metadata of a claim, for which the rollout has begun, to some of the sandboxes that
// it holds, ordered by name, in one transaction at most, and returns what it wrote. done reports
// whether there are none left. storage.ErrConflict means that claim or sandboxes are not as they were seen;
// nothing was written then.
func (w *Writer) Step(ctx context.Context, r *Rollout, claim *v1alpha1.SandboxClaim, held []*v1alpha1.Sandbox) (wrote []*v1alpha1.Sandbox, done bool, err error) {
	left := r.left(held)
	if len(left) == 0 {
		r.end(w.Clock.Now())
		return nil, true, nil
	}
	txn := w.Store.Begin()
	defer txn.Release()
	if err := txn.ExpectClaim(claim); err != nil {
		return nil, false, err
	}
	batch, err := w.fill(ctx, txn, r, claim, left[:min(len(left), maxCompared)])
	if err != nil {
		return nil, false, err
	}
	if len(batch.next) > 0 {
		key := throttles.Key{Namespace: claim.Namespace}
		if throttled := w.Throttles.Delay(key, claim.UID, w.Clock.Now()); throttled > 0 {
			return nil, false, &storage.ThrottledError{RetryAfter: throttled}
		}
		defer w.Throttles.Done(key, claim.UID)
		// It counts for no user: any user with the right to change the claim may have caused it.
		txn.AllowThrottling()
		within, cancel := storage.Detached(ctx, storage.CommitTimeout)
		defer cancel()
		if err := w.commit(within, txn, r, batch); err != nil {
			if retryAfter := storage.ThrottledFor(err); retryAfter > 0 {
				w.Throttles.Rejected(key, retryAfter, w.Clock.Now())
			}
			return nil, false, err
		}
		w.Throttles.Accepted(key)
	}
	for _, sb := range batch.looked {
		r.markChecked(sb)
	}
	for _, mark := range batch.marks.HeldBack() {
		r.heldBack[mark] = struct{}{}
	}
	for _, why := range batch.kept {
		r.report.Keep(why)
	}
	r.report.Changed += len(batch.next)
	r.report.Invalid = r.report.Invalid || batch.invalid
	return batch.next, false, nil
}

// batch is what one step does.
type batch struct {
	marks *plan.Marks
	// looked are the sandboxes that the step is done with, next what becomes of those that
	// change, and kept why others stay as they are.
	looked, next []*v1alpha1.Sandbox
	kept         []string
	// invalid reports whether the claim may bring no pod what it says.
	invalid bool
}

// fill puts what becomes of sandboxes into a transaction, until it is full.
func (w *Writer) fill(ctx context.Context, txn storage.Txn, r *Rollout, claim *v1alpha1.SandboxClaim, left []*v1alpha1.Sandbox) (*batch, error) {
	marks, err := plan.NewMarks(claim)
	if err != nil {
		return nil, err
	}
	b := &batch{marks: marks}
	bad := w.Templates.AgentMetadataRefusal(claim)
	b.invalid = bad != nil
	policies := podPolicies{writer: w, claim: claim, known: map[poolLabels]podPolicy{}}
	for _, sb := range left {
		if len(b.next) >= r.room || txn.Bytes() > etcdtxn.MaxBytes/2 {
			break
		}
		if bad != nil {
			b.kept, b.looked = append(b.kept, bad.Errors.ToAggregate().Error()), append(b.looked, sb)
			continue
		}
		policy, err := policies.of(ctx, sb)
		if err != nil {
			return nil, err
		}
		next, err := marks.Resync(sb, policy)
		switch refused := plan.MetadataRefusal(err); {
		case refused != nil:
			b.kept = append(b.kept, refused.Errors.ToAggregate().Error())
		case err != nil: // its template cannot be read
			b.kept = append(b.kept, err.Error())
		case next == nil:
		case candidates.Size(next) > candidates.MaxSize:
			b.kept = append(b.kept, "sandbox "+sb.Name+" is too large to be changed")
		default:
			if err := txn.UpdateSandbox(ctx, next); err != nil {
				return nil, err
			}
			b.next = append(b.next, next)
		}
		b.looked = append(b.looked, sb)
	}
	return b, nil
}

// commit commits a batch. One that etcd takes no more of leaves less room for the next; one
// sandbox that it does not take stays as it is.
func (w *Writer) commit(ctx context.Context, txn storage.Txn, r *Rollout, b *batch) error {
	err := txn.Commit(ctx)
	var conflict *etcdtxn.ConflictError
	switch {
	case err == nil:
		w.Lag.Expect(poolindex.ParseVersion(b.next[0].ResourceVersion))
	case errors.As(err, &conflict):
		return storage.ErrConflict
	case errors.Is(err, etcdtxn.ErrTooLarge) && len(b.next) > 1:
		r.room = len(b.next) / 2
		return storage.ErrReplan
	case errors.Is(err, etcdtxn.ErrTooLarge):
		b.kept, b.next = append(b.kept, "sandbox "+b.next[0].Name+" is too large to be changed"), nil
		return nil
	}
	return err
}

// poolLabels say what a sandbox was made from.
type poolLabels struct{ pool, template string }

// podPolicy is what holds for sandboxes that were born at some time or later.
type podPolicy struct {
	*v1alpha1.PodMetadataPolicy
	since time.Time
}

// nothingNew lets nothing newly be on a pod.
var nothingNew = &v1alpha1.PodMetadataPolicy{}

// podPolicies finds which metadata may newly be on the pods of the sandboxes of a claim, as
// the sets and templates say now: not as a cache says, which may not have heard yet that a
// policy has become narrower.
type podPolicies struct {
	writer *Writer
	claim  *v1alpha1.SandboxClaim
	known  map[poolLabels]podPolicy
	// sets are those of the namespace, by name; nil before they were read.
	sets map[string]*v1alpha1.SandboxSet
}

// of returns the policy for a sandbox. Where what it was made from is gone, also if there is
// another set of the name, nothing new reaches its pod.
func (p *podPolicies) of(ctx context.Context, sb *v1alpha1.Sandbox) (*v1alpha1.PodMetadataPolicy, error) {
	from := poolLabels{sb.Labels[v1alpha1.LabelSandboxPool], sb.Labels[v1alpha1.LabelSandboxTemplate]}
	if !candidates.BringsPodMetadata(p.claim) {
		return nothingNew, nil
	}
	policy, ok := p.known[from]
	if !ok {
		var err error
		if policy, err = p.find(ctx, from); err != nil {
			return nil, err
		}
		p.known[from] = policy
	}
	if sb.CreationTimestamp.Time.Before(policy.since) {
		return nothingNew, nil
	}
	return policy.PodMetadataPolicy, nil
}

func (p *podPolicies) find(ctx context.Context, from poolLabels) (podPolicy, error) {
	if from.pool == "" {
		name := from.template
		if asked, _ := v1alpha1.AskedOf(p.claim); v1alpha1.TemplateLabel(asked) == name {
			name = asked // the label of a long name is cut
		}
		if name == "" {
			return podPolicy{nothingNew, time.Time{}}, nil
		}
		policy, err := p.writer.Templates.PodMetadataOfTemplate(ctx, p.claim.Namespace, name, p.writer.Store.TemplatesNow())
		return podPolicy{policy, time.Time{}}, err
	}
	if err := p.readSets(ctx); err != nil {
		return podPolicy{}, err
	}
	set := p.sets[from.pool]
	if set == nil {
		return podPolicy{nothingNew, time.Time{}}, nil
	}
	policy, err := p.writer.Templates.PodMetadataOf(ctx, set, p.writer.Store.TemplatesNow())
	return podPolicy{policy, set.CreationTimestamp.Time}, err
}

// readSets reads the sets of the namespace, once.
func (p *podPolicies) readSets(ctx context.Context) error {
	if p.sets != nil {
		return nil
	}
	all, _, err := p.writer.Store.Sets(ctx, p.claim.Namespace)
	if err != nil {
		return err
	}
	p.sets = make(map[string]*v1alpha1.SandboxSet, len(all))
	for _, set := range all {
		p.sets[set.Name] = set
	}
	return nil
}
