// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/allocator/throttles"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// errNotWritten is the storage.ErrReplan after a transaction that etcd had not answered for.
var errNotWritten = fmt.Errorf("%w: the transaction was not written", storage.ErrReplan)

const (
	// maxReleases is how many sandboxes of a deleted claim are released in one transaction.
	maxReleases = 100
	// settleTimeout bounds finding out what became of a transaction that was not answered.
	settleTimeout = 15 * time.Second
)

// committer writes plans as transactions.
type committer struct {
	store Store
	clock clock.WithTicker
	queue *queue.Queue
	sets  claims.Sets
	lag   *metrics.Lag
	// throttles delays claims that the write limits reject.
	throttles *throttles.Throttles
}

// create writes the first plan of a claim, which was made from the reservation, and returns the claim
// as stored. If etcd does not answer, it finds out what became of the transaction.
//
// Errors: storage.ErrReplan, errNotWritten, ErrClaimExists, ErrTooLarge, *ThrottledError, etcdtxn.ErrNoSpace,
// nothing written in all these cases; ErrUnknownOutcome; and those of the store.
func (c *committer) create(ctx context.Context, p *plan.Plan, r *reservation) (*v1alpha1.SandboxClaim, error) {
	txn := c.store.Begin()
	defer txn.Release()
	if err := txn.CreateClaim(ctx, p.Claim); err != nil {
		return nil, err
	}
	if err := addSandboxes(ctx, txn, p, r); err != nil {
		return nil, err
	}
	txn.ChargeUser(p.Claimer())
	txn.AllowThrottling()
	within, cancel := storage.Detached(ctx, storage.CommitTimeout)
	defer cancel()
	if len(p.Bound) == 0 {
		if err := txn.Guard(within, string(p.Claim.UID)+"/"+string(uuid.NewUUID()), c.clock.Now()); err != nil {
			return nil, err
		}
	}
	err := txn.Commit(within)
	if errors.Is(err, etcdtxn.ErrUnknownOutcome) {
		return c.settle(ctx, txn, p, r, err)
	}
	switch err := c.recordOutcome(p, r, err); {
	case errors.Is(err, storage.ErrConflict): // it holds nothing that could have changed
		return nil, ErrClaimExists
	case err != nil:
		return nil, err
	}
	return p.Claim, nil
}

// update writes a plan of a stored claim, which was made from the reservation, and returns the claim as
// stored.
//
// Errors: storage.ErrReplan, storage.ErrConflict, ErrTooLarge, *ThrottledError, nothing written;
// etcdtxn.ErrUnknownOutcome; and those of the store.
func (c *committer) update(ctx context.Context, p *plan.Plan, r *reservation) (*v1alpha1.SandboxClaim, error) {
	txn := c.store.Begin()
	defer txn.Release()
	if err := txn.UpdateClaim(ctx, p.Claim); err != nil {
		return nil, err
	}
	if err := addSandboxes(ctx, txn, p, r); err != nil {
		return nil, err
	}
	txn.ChargeUser(p.Claimer())
	if p.Binds() {
		txn.AllowThrottling()
	}
	within, cancel := storage.Detached(ctx, storage.CommitTimeout)
	defer cancel()
	if err := c.recordOutcome(p, r, txn.Commit(within)); err != nil {
		return nil, err
	}
	if p.Ends() {
		metrics.ObserveEnd(p.Claim, p.Took)
	}
	return p.Claim, nil
}

// addSandboxes adds the sandboxes of a plan to its transaction, or finds that it is too large.
func addSandboxes(ctx context.Context, txn Txn, p *plan.Plan, r *reservation) error {
	all, existing := p.Sandboxes()
	for i, sb := range all {
		var err error
		if i < existing {
			err = txn.UpdateSandbox(ctx, sb)
		} else {
			err = txn.CreateSandbox(ctx, sb)
		}
		if err != nil {
			return err
		}
		if txn.Bytes() > etcdtxn.MaxBytes {
			return limitRoom(p, r, i)
		}
	}
	return nil
}

// recordOutcome records in the reservation how the transaction of a plan ended, and returns what that means
// for the claim.
func (c *committer) recordOutcome(p *plan.Plan, r *reservation, err error) error {
	conflict, isConflict := errors.AsType[*etcdtxn.ConflictError](err)
	switch {
	case err == nil:
		c.recordWrite(p, r, poolindex.ParseVersion(p.Claim.ResourceVersion))
	case isConflict:
		return c.handleConflict(p, r, conflict.Modified)
	case errors.Is(err, etcdtxn.ErrTooLarge):
		// etcd is set to take less than its default.
		all, _ := p.Sandboxes()
		return limitRoom(p, r, len(all)/2)
	}
	return err
}

// limitRoom makes the next plans small enough: only n sandboxes fit.
func limitRoom(p *plan.Plan, r *reservation, n int) error {
	if n == 0 || !p.CanSplit() {
		asked, _ := v1alpha1.AskedOf(p.Claim)
		return fmt.Errorf("%w: %d sandboxes of %s fit", ErrTooLarge, n, asked)
	}
	r.room = n
	return storage.ErrReplan
}

// recordWrite removes from the reservation what was written, and counts it.
func (c *committer) recordWrite(p *plan.Plan, r *reservation, at uint64) {
	bound := r.taken[:len(p.Bound)]
	from := make([]poolindex.Candidate, 0, len(bound))
	for _, taken := range bound {
		from = append(from, taken.candidate)
	}
	c.queue.Bound(from, at)
	r.taken = slices.Delete(r.taken, 0, len(bound))
	r.made = slices.Clone(r.made[len(p.Made):]) // the plan keeps the others
	r.charged -= len(p.Made)
	if len(p.Released) > 0 {
		r.makeBackoff.Start(c.clock.Now()) // what was released has failed
	}
	metrics.ObserveWritten(p, c.sets, c.clock.Now())
	if p.ChangesSandboxes() {
		c.lag.Expect(at)
	}
}

// handleConflict removes from the reservation what has changed in the store since it was planned. It returns
// storage.ErrReplan if another plan may fit, and storage.ErrConflict if the claim or what it holds has changed. The
// objects of the transaction are the claim and then those of plan.Sandboxes.
func (c *committer) handleConflict(p *plan.Plan, r *reservation, modified []etcdtxn.Modified) error {
	held := len(p.Released) + len(p.Counted) + len(p.Marked)
	again := storage.ErrReplan
	var lost []int
	var names []string
	for _, m := range modified {
		switch i := m.Index - 1; {
		case i < held: // or the claim
			again = storage.ErrConflict
		case i < held+len(p.Bound):
			lost = append(lost, i-held)
		default: // a name that is taken: another will be made
			if claims.SandboxName(p.Claim) != "" {
				r.nameSeen = uint64(max(0, m.ModRevision))
			}
			names = append(names, p.Made[i-held-len(p.Bound)].Name)
		}
	}
	for _, i := range slices.Backward(lost) {
		c.queue.Discard(r.taken[i].candidate)
		r.taken = slices.Delete(r.taken, i, i+1)
	}
	r.made = slices.DeleteFunc(r.made, func(sb *v1alpha1.Sandbox) bool { return slices.Contains(names, sb.Name) })
	return again
}

// settle finds out what became of the first transaction of a claim when etcd did not
// say. Nothing is tried again before it is sure that the transaction was not written
// and never will be, so that no claim comes into being after its create has failed, or
// again after another client has deleted it. unknown is the error of its Commit.
func (c *committer) settle(ctx context.Context, txn Txn, p *plan.Plan, r *reservation, unknown error) (claim *v1alpha1.SandboxClaim, err error) {
	ctx, span := tracing.Start(ctx, "Settle transaction")
	defer span.End(storage.Slow)
	defer func() { metrics.ObserveSettled(err, errors.Is(err, ErrUnknownOutcome)) }()
	within, cancel := storage.Detached(ctx, settleTimeout)
	defer cancel()
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 2 * time.Second}
	for {
		claim, err := c.trySettle(within, txn, p, r, unknown)
		if !errors.Is(err, errUnsettled) {
			return claim, err
		}
		select {
		case <-within.Done():
			return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		case <-c.clock.After(backoff.Step()):
		}
	}
}

// errUnsettled means that it is worth trying again to find out what became of a
// transaction.
var errUnsettled = errors.New("etcd does not answer")

func (c *committer) trySettle(ctx context.Context, txn Txn, p *plan.Plan, r *reservation, unknown error) (*v1alpha1.SandboxClaim, error) {
	written, err := txn.Settle(ctx)
	unsettled := errors.Is(err, etcdtxn.ErrNotSettled)
	if err != nil && !unsettled {
		return nil, fmt.Errorf("%w: %w", errUnsettled, err)
	}
	stored, created, err := c.store.CreatedClaim(ctx, p.Claim.Namespace, p.Claim.Name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsettled, err)
	}
	switch ours := stored != nil && stored.UID == p.Claim.UID; {
	case ours:
		// The claim may have been changed since. Its resourceVersion is then newer than that of
		// its sandboxes, and the watch of sandboxes may never reach it.
		c.recordWrite(p, r, created)
		return stored, nil
	case unsettled:
		// It may still be written.
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, etcdtxn.ErrNotSettled)
	case written:
		c.queue.Discard(r.candidates()[:len(p.Bound)]...)
		r.taken = slices.Delete(r.taken, 0, len(p.Bound))
		return nil, fmt.Errorf("%w: it was, and has been deleted since", ErrUnknownOutcome)
	case stored != nil:
		return nil, ErrClaimExists
	case errors.Is(unknown, etcdtxn.ErrNoSpace):
		// A retry would fail in the same way. Settle has written nothing either, so the candidates
		// are still at the revisions that the claim has seen.
		return nil, fmt.Errorf("nothing was written: %w", etcdtxn.ErrNoSpace)
	}
	if len(p.Bound) > 0 {
		// Never written: the first of its sandboxes has changed, if only by Settle, which the feed
		// reports. The others are still reserved for this claim.
		c.queue.Discard(r.taken[0].candidate)
		r.taken = slices.Delete(r.taken, 0, 1)
	}
	return nil, errNotWritten
}

// releaseSandboxes releases the first sandboxes, as many as a transaction takes, and returns how many.
func (c *committer) releaseSandboxes(ctx context.Context, all []*v1alpha1.Sandbox) (int, error) {
	for n := min(len(all), maxReleases); ; n = max(1, n/2) {
		txn := c.store.Begin()
		for i, sb := range all[:n] {
			if err := txn.UpdateSandbox(ctx, plan.Release(sb, c.clock.Now())); err != nil {
				return 0, err
			}
			if txn.Bytes() > etcdtxn.MaxBytes/2 {
				n = i + 1
				break
			}
		}
		within, cancel := storage.Detached(ctx, storage.CommitTimeout)
		err := txn.Commit(within)
		cancel()
		if n == 1 || !errors.Is(err, etcdtxn.ErrTooLarge) {
			return n, err
		}
	}
}
