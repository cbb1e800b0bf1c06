// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/etcdtxn"
)

// job brings one claim to its end. It alternates between drafting what can be
// written now and waiting for what may change that: candidates dealt by the
// queue, news of its fresh sandboxes, a change of the claim, a point in time.
//
// One goroutine at a time works on a job: the one of the create call until the
// first transaction is written, then the job's own. Others reach it through
// inbox and read what publish left.
type job struct {
	a *Allocator

	// claim as last written or read, at revision at; 0 before it is stored.
	claim *v1alpha1.SandboxClaim
	at    int64
	// start is the claim's start, to the nanosecond where this server saw it.
	start   time.Time
	binding *binding
	waiter  *waiter
	// resolved are the pod templates that candidates refer to. It holds for one draft.
	resolved map[v1alpha1.SandboxTemplateRef]inlined
	// goals are what becomes of candidates. It holds for one draft.
	goals []goal
	// recipe makes fresh sandboxes. It holds for one draft.
	recipe *recipe

	// held are candidates that are ready to be written.
	held []bind
	// fresh are the sandboxes that the claim holds and that do not count yet: see
	// v1alpha1.AnnotationStarting.
	fresh map[string]freshSandbox
	// made are fresh sandboxes that are to be written.
	made []*v1alpha1.Sandbox
	// found are sandboxes that count although the status does not list them: a
	// client rewrote it.
	found []v1alpha1.ClaimedSandbox
	// unlisted is how many more count than can be named, for the same reason.
	unlisted int
	// resizes are those of what counts.
	resizes resizes
	// room is how many sandboxes a transaction may change.
	room int
	// recreate spaces out the making of sandboxes that keep failing.
	recreate    wait.Backoff
	createAfter time.Time
	// retryAt is when to look again at what is in the way and nobody may tell of.
	retry   wait.Backoff
	retryAt time.Time
	// wroteAt is when the claim was last written; reportAt is when progress that
	// was held back is due.
	wroteAt, reportAt time.Time
	// stale: what we know of the claim is not what is stored.
	stale bool

	wake      chan struct{}
	done      chan struct{}
	published atomic.Pointer[v1alpha1.SandboxClaim]
	// stuck: nothing can serve the claim as things are, or nothing can be made for
	// it, so that a change of any template may matter.
	stuck atomic.Bool
	// unserved: no pool of a set serves it.
	unserved bool
	inbox    inbox
}

// freshSandbox is a sandbox made for the claim, as last seen. It has failed if
// it is not ready at until.
type freshSandbox struct {
	*v1alpha1.Sandbox
	until time.Time
}

// progressInterval is how often a claim's progress is written while nothing but
// its count changes, or that of its resizes.
const progressInterval = 500 * time.Millisecond

// inbox is what the watches tell a job.
type inbox struct {
	sync.Mutex
	closed    bool                         // nobody reads it any more
	claim     int64                        // the newest revision of the claim that was heard of
	sandboxes map[string]*v1alpha1.Sandbox // nil: gone
}

func (a *Allocator) newJob(claim *v1alpha1.SandboxClaim, now time.Time) (*job, error) {
	j := &job{
		a:        a,
		start:    now,
		fresh:    map[string]freshSandbox{},
		room:     etcdtxn.MaxOps - 1,
		recreate: wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second},
		retry:    newRetry(),
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
	}
	return j, j.describe(claim)
}

// describe takes in the claim as the user wants it now.
func (j *job) describe(claim *v1alpha1.SandboxClaim) error {
	if j.waiter != nil {
		j.a.queue.leave(j.waiter)
	}
	j.letGo()
	var err error
	j.claim = claim
	j.made = nil
	j.binding, err = newBinding(claim)
	j.waiter = &waiter{
		ticket: ticket{since: claimStart(claim, j.start), uid: claim.UID},
		wake:   j.wake,
	}
	return err
}

// open writes the claim's first state, with what can be bound now, or fails and
// leaves nothing behind.
func (j *job) open(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			j.letGo()
			return err // a caller that is gone costs nothing
		}
		d, err := j.draft(ctx)
		if err == nil {
			err = j.commit(ctx, d)
		}
		if errors.Is(err, etcdtxn.ErrUnknownOutcome) {
			err = j.resolve(ctx, d)
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, errAgain) {
			j.letGo()
			return err
		}
	}
}

// run works until the claim is at its end, somebody else ended it, or ctx is
// done.
func (j *job) run(ctx context.Context) {
	defer close(j.done)
	defer j.letGo()
	defer func() { j.a.queue.leave(j.waiter) }()
	j.catchUp(ctx)
	retry := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
	delay := retry
	for ctx.Err() == nil {
		wrote, err := j.step(ctx)
		var next time.Duration
		switch {
		case err == nil && j.finished():
			if j.close() {
				return
			}
			continue
		case errors.Is(err, errAgain):
			continue
		case err != nil && ctx.Err() != nil:
			return // it goes on after a restart, or on another server
		case err != nil:
			klog.FromContext(ctx).Error(err, "Claiming goes on after an error", "claim", klog.KObj(j.claim))
			j.stale = true // whatever was written, the store knows
			next = delay.Step()
		case wrote:
			delay = retry
			continue
		default:
			next = j.untilNext()
		}
		timer := j.a.options.Clock.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-j.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// step writes what can be written now and says whether there was anything.
func (j *job) step(ctx context.Context) (wrote bool, err error) {
	if j.readInbox() {
		j.stale = true
	}
	if j.stale {
		claim, err := j.a.store.Claim(ctx, j.claim.Namespace, j.claim.Name)
		if err != nil {
			return false, err
		}
		if err := j.rebuild(ctx, claim); err != nil || j.finished() {
			return false, err
		}
	}
	d, err := j.draft(ctx)
	if err != nil {
		return false, err
	}
	if !d.differs(j.claim) || j.tooSoon(d) {
		j.a.queue.need(j.waiter, j.wants(d))
		return false, nil
	}
	return true, j.commit(ctx, d)
}

// wants is what the claim waits for after a draft that changed nothing.
func (j *job) wants(d *draft) demanded {
	atomic := j.atomic(d)
	return demanded{
		need:    d.missing - len(j.held),
		sources: d.supply.sources,
		atomic:  atomic,
		yields:  !d.supply.found || atomic && int(replicas(d.claim)) > d.supply.holds(),
	}
}

// atomic says whether sandboxes from the pools must come all at once: fresh ones
// that fill them up can be made one after the other.
func (j *job) atomic(d *draft) bool {
	return atomicClaim(d.claim) && (!createsOnNoStock(d.claim) || d.broken != nil || !d.supply.canMake())
}

// hopeless says whether nothing that is on its way can complete the claim.
func (j *job) hopeless() bool { return j.stuck.Load() && j.unserved && len(j.fresh) == 0 }

// tooSoon holds back a draft that only counts more sandboxes as ready, or as resized,
// so that a claim with thousands of fresh ones is not rewritten for each of them.
func (j *job) tooSoon(d *draft) bool {
	onlyProgress := len(d.binds)+len(d.fresh)+len(d.drops) == 0 && len(d.counts) < j.room/2 &&
		d.claim.Status.Phase == v1alpha1.SandboxClaimPhaseClaiming &&
		(len(d.counts) > 0 || onlyResizes(j.claim, d.claim))
	now := j.a.options.Clock.Now()
	if !onlyProgress || now.Sub(j.wroteAt) >= progressInterval {
		j.reportAt = time.Time{}
		return false
	}
	j.reportAt = j.wroteAt.Add(progressInterval)
	return true
}

// finished says whether there is nothing left to do for the claim.
func (j *job) finished() bool {
	return j.claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted || j.claim.DeletionTimestamp != nil
}

// publish lets others read the claim as it stands.
func (j *job) publish() { j.published.Store(j.claim.DeepCopy()) }

// letGo gives back the candidates that were not bound.
func (j *job) letGo() {
	j.a.queue.release(candidates(j.held))
	j.held = nil
}

// tell hands the job news of one of its sandboxes; nil means that it is gone.
func (j *job) tell(name string, sb *v1alpha1.Sandbox) {
	j.inbox.Lock()
	if j.inbox.sandboxes == nil {
		j.inbox.sandboxes = map[string]*v1alpha1.Sandbox{}
	}
	j.inbox.sandboxes[name] = sb
	j.inbox.Unlock()
	j.nudge()
}

// claimMoved tells the job that its claim is at a revision, perhaps one that it
// wrote itself. It returns false if the job is at its end and does not listen.
func (j *job) claimMoved(revision int64) bool {
	j.inbox.Lock()
	defer j.inbox.Unlock()
	if j.inbox.closed {
		return false
	}
	j.inbox.claim = max(j.inbox.claim, revision)
	j.nudge()
	return true
}

// close ends listening. It returns false, and goes on, if there is something
// left to hear of a claim that was thought finished.
func (j *job) close() bool {
	j.inbox.Lock()
	defer j.inbox.Unlock()
	j.inbox.closed = j.inbox.claim <= j.at
	return j.inbox.closed
}

func (j *job) nudge() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// readInbox updates the fresh sandboxes and says whether the claim has moved.
func (j *job) readInbox() bool {
	j.inbox.Lock()
	defer j.inbox.Unlock()
	for name, sb := range j.inbox.sandboxes {
		known, ok := j.fresh[name]
		switch {
		case !ok:
		case sb == nil:
			delete(j.fresh, name)
		case version(sb) > version(known.Sandbox):
			j.fresh[name] = freshSandbox{sb, known.until}
		}
	}
	j.inbox.sandboxes = nil
	return j.inbox.claim > j.at
}

// catchUp takes in what the watch told of the job's sandboxes between the transaction
// and now, when there was nobody to tell it to: one that started quickly, or was
// resized, may be ready.
func (j *job) catchUp(ctx context.Context) {
	for name, known := range j.fresh {
		sb, err := j.a.store.Sandbox(ctx, j.claim.Namespace, name)
		switch {
		case err == nil && sb != nil && version(sb) > version(known.Sandbox):
			j.fresh[name] = freshSandbox{sb, known.until}
		case err != nil, sb == nil && j.a.lag.hasHeardBeyond(j.at):
			j.stale = true // it may be gone: that was a later revision
		}
	}
}

// untilNext is how long nothing will change by the passing of time alone.
func (j *job) untilNext() time.Duration {
	now := j.a.options.Clock.Now()
	next := []time.Time{j.deadline()}
	for _, sb := range j.fresh {
		next = append(next, sb.until)
	}
	for _, t := range []time.Time{j.createAfter, j.reportAt, j.retryAt} {
		if t.After(now) {
			next = append(next, t)
		}
	}
	return max(0, slices.MinFunc(next, time.Time.Compare).Sub(now))
}

// deadline is when the claim ends with what it has.
func (j *job) deadline() time.Time {
	return claimStart(j.claim, j.start).Add(duration(j.claim.Spec.ClaimTimeout, v1alpha1.DefaultClaimTimeout))
}

// waitReady is how long a fresh sandbox may take to be ready.
func (j *job) waitReady() time.Duration {
	return duration(j.claim.Spec.WaitReadyTimeout, v1alpha1.DefaultWaitReadyTimeout)
}

// claimStart is the start that the claim's status says, or, where this server
// set it and so knows better than to the second, start.
func claimStart(claim *v1alpha1.SandboxClaim, start time.Time) time.Time {
	if t := claim.Status.ClaimStartTime; t != nil && !t.Time.Equal(start.Truncate(time.Second)) {
		return t.Time
	}
	return start
}

func duration(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}
