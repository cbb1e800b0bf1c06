// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/tracing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/etcdtxn"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// draft is the next true state of a claim and of the sandboxes that change with
// it, to be written in one transaction.
type draft struct {
	claim  *v1alpha1.SandboxClaim
	drops  []*v1alpha1.Sandbox // held, and let go
	counts []*v1alpha1.Sandbox // held, and counted from now on
	binds  []bind              // from the pool
	fresh  []*v1alpha1.Sandbox // made for the claim
	// missing is how many sandboxes the claim lacks that are neither counted nor
	// on their way.
	missing int
	// supply is where they can come from.
	supply supply
	// broken is why none can be made although they should be; nil if that is not so.
	broken error
	// expired: the claim's time is up.
	expired bool
	// refused: the template does not take what the claim adds, so it gets no more.
	refused *RefusedError
	txn     Txn // once encoded
}

// sandboxes are those that the draft changes, in the order of the transaction.
func (d *draft) sandboxes() []*v1alpha1.Sandbox {
	return slices.Concat(d.drops, d.counts, d.gained())
}

// gained are the sandboxes that become the claim's with the draft.
func (d *draft) gained() []*v1alpha1.Sandbox {
	all := make([]*v1alpha1.Sandbox, 0, len(d.binds)+len(d.fresh))
	for _, b := range d.binds {
		all = append(all, b.sandbox)
	}
	return append(all, d.fresh...)
}

// date notes on the sandboxes from the pool since when they are the claim's: they may
// have been held for long.
func (d *draft) date(now time.Time) {
	for _, b := range d.binds {
		stamp(b.sandbox, now)
	}
}

// stamp notes on a sandbox since when it is the claim's.
func stamp(sb *v1alpha1.Sandbox, now time.Time) {
	sb.Annotations[v1alpha1.AnnotationClaimTimestamp] = now.UTC().Format(time.RFC3339)
}

// divisible says whether a part of the draft is as true as the whole.
func (d *draft) divisible() bool {
	return !atomicClaim(d.claim) || len(d.counts)+len(d.binds)+len(d.fresh) == 0
}

// bind is a candidate with the state that makes it the claim's.
type bind struct {
	candidate poolindex.Candidate
	sandbox   *v1alpha1.Sandbox
	at        int64
}

// errAgain means that the draft did not fit what is in the store, that what was
// in the way has been put aside, and that a new draft may fit.
var errAgain = errors.New("draft again")

// commit writes the draft. After an error nothing was written, except after
// etcdtxn.ErrUnknownOutcome.
func (j *job) commit(ctx context.Context, d *draft) error {
	if err := j.encode(ctx, d); err != nil {
		return err
	}
	ctx, cancel := j.a.detached(ctx, j.a.options.CommitTimeout)
	defer cancel()
	return j.settle(d, d.txn.Commit(ctx))
}

// encode turns the draft into a transaction, or finds that it is too large.
func (j *job) encode(ctx context.Context, d *draft) error {
	d.txn = j.a.store.Begin()
	var err error
	if j.at == 0 {
		err = d.txn.CreateClaim(ctx, d.claim)
	} else {
		err = d.txn.UpdateClaim(ctx, d.claim, j.at)
	}
	if err != nil {
		return err
	}
	existing := len(d.drops) + len(d.counts) + len(d.binds)
	for i, sb := range d.sandboxes() {
		switch bound := i - len(d.drops) - len(d.counts); {
		case i >= existing:
			err = d.txn.CreateSandbox(ctx, sb)
		case bound >= 0:
			err = d.txn.UpdateSandbox(ctx, sb, d.binds[bound].at)
		default:
			err = d.txn.UpdateSandbox(ctx, sb, version(sb))
		}
		if err != nil {
			return err
		}
		if d.txn.Bytes() > etcdtxn.MaxBytes {
			return j.cut(d, i)
		}
	}
	return nil
}

// cut makes the next drafts small enough: only n sandboxes fit.
func (j *job) cut(d *draft, n int) error {
	if n == 0 || !d.divisible() {
		asked, _ := v1alpha1.AskedOf(j.claim)
		return fmt.Errorf("%w: %d sandboxes of %s fit", ErrTooLarge, n, asked)
	}
	j.room = n
	return errAgain
}

// settle takes in how a transaction went.
func (j *job) settle(d *draft, err error) error {
	var conflict *etcdtxn.ConflictError
	switch {
	case err == nil:
		j.accept(d)
		return nil
	case errors.As(err, &conflict):
		return j.putAside(d, conflict.Moved)
	case errors.Is(err, etcdtxn.ErrTooLarge):
		// etcd is set to take less than its default.
		return j.cut(d, len(d.sandboxes())/2)
	}
	return err
}

// accept makes the written draft the job's state.
func (j *job) accept(d *draft) {
	now := j.a.options.Clock.Now()
	first := j.at == 0
	j.claim, j.at, j.wroteAt = d.claim, version(d.claim), now
	j.observeAccepted(d, first)
	j.a.queue.bound(candidates(d.binds), uint64(j.at))
	j.held = slices.DeleteFunc(j.held, func(b bind) bool { return slices.ContainsFunc(d.binds, b.same) })
	j.made = slices.DeleteFunc(j.made, func(sb *v1alpha1.Sandbox) bool { return slices.Contains(d.fresh, sb) })
	j.found = nil
	j.resizes.counted(d)
	for _, sb := range slices.Concat(d.drops, d.counts) {
		delete(j.fresh, sb.Name)
	}
	for _, sb := range d.gained() {
		if isStarting(sb) {
			j.fresh[sb.Name] = freshSandbox{sb, now.Add(j.waitReady())}
		}
	}
	j.publish()
}

// putAside takes what moved out of the job's hands.
func (j *job) putAside(d *draft, moved []etcdtxn.Moved) error {
	held := len(d.drops) + len(d.counts)
	for _, m := range moved {
		i := m.Index - 1 // the claim comes first
		switch {
		case i < 0 && j.at == 0:
			return ErrClaimExists
		case i < held:
			j.stale = true // the claim itself, or a sandbox that it holds
		case i < held+len(d.binds):
			lost := d.binds[i-held]
			j.a.queue.discard(lost.candidate)
			j.held = slices.DeleteFunc(j.held, lost.same)
		default: // a name that is taken: another will be made
			taken := d.fresh[i-held-len(d.binds)]
			j.made = slices.DeleteFunc(j.made, func(sb *v1alpha1.Sandbox) bool { return sb == taken })
		}
	}
	return errAgain
}

// resolve finds out what became of the first transaction of a claim when etcd
// did not say. Until it knows it repeats that very transaction, of which at
// most one can succeed.
func (j *job) resolve(ctx context.Context, d *draft) (err error) {
	ctx, span := tracing.Start(ctx, "Resolve unknown outcome")
	defer span.End(slow)
	defer func() { observeResolved(err) }()
	var cause error
	within, cancel := j.a.detached(ctx, j.a.options.ResolveTimeout)
	defer cancel()
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 2 * time.Second}
	for {
		stored, err := j.a.store.Claim(within, j.claim.Namespace, j.claim.Name)
		switch {
		case err != nil:
			cause = err
		case stored != nil && stored.UID == j.claim.UID:
			// The feed says what became of the candidates, and the job reads
			// what became of the claim before it goes on with it.
			j.a.queue.discard(candidates(d.binds)...)
			d.claim = stored
			j.accept(d)
			j.stale = true
			return nil
		case stored != nil:
			return ErrClaimExists
		default:
			err := d.txn.Commit(within)
			var conflict *etcdtxn.ConflictError
			if errors.As(err, &conflict) && conflict.Moved[0].Index == 0 {
				continue // the first one came through after all: read it
			}
			if err = j.settle(d, err); !errors.Is(err, etcdtxn.ErrUnknownOutcome) {
				return err
			}
			cause = err
		}
		select {
		case <-within.Done():
			return fmt.Errorf("%w: %w", ErrUnknownOutcome, cause)
		case <-j.a.options.Clock.After(backoff.Step()):
		}
	}
}

func (b bind) same(other bind) bool { return b.candidate == other.candidate }

func candidates(binds []bind) []poolindex.Candidate {
	cs := make([]poolindex.Candidate, 0, len(binds))
	for _, b := range binds {
		cs = append(cs, b.candidate)
	}
	return cs
}
