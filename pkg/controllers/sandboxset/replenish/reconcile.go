// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

var _ reconcile.Reconciler = (*Controller)(nil)

// Reconcile brings one pool nearer to its size.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c.writer.activeReconciles.Add(1)
	defer c.writer.activeReconciles.Add(-1)
	set := &v1alpha1.SandboxSet{}
	if err := c.client.Get(ctx, req.NamespacedName, set, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			c.states.forget(req.NamespacedName)
			deleteGauges(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting SandboxSet %s: %w", req, err)
	}
	c.states.track(set)
	if set.DeletionTimestamp != nil {
		return c.finalize(ctx, set)
	}
	now := c.clock.Now()
	if wait := c.countDelay(set, now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}

	o, err := c.observe(ctx, set, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	counts := o.count()
	failed := failedOf(counts.ended, o.target.revision) // before they are deleted
	d := c.noteCount(o, &counts)

	p, err := o.plan(&counts, d)
	if err != nil {
		// The server refuses such values; a retry would not help.
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("SandboxSet %s: %w", req, err))
	}
	c.sendProgressEvent(set, p.keptUnscheduled)
	done, err := c.writer.scale(ctx, o, p)
	if p.create > 0 || len(p.remove) > 0 {
		o.pool.record(done, o.target.revision)
		counts = o.count()
	}
	err = errors.Join(err, o.target.holderErr, c.holders.deleteUnused(ctx, set, o.target.revision, historyOf(set, o.target.holderErr), &o.pool))

	gaugesOf(o, &counts).set(req.NamespacedName)
	isConflict, statusAfter, statusErr := c.writeStatusAndEvents(ctx, &statusBuilder{
		o: o, counts: &counts, startFailure: findStartFailure(o, &counts, failed, done.createError),
		isFailing: d.isFailing, replicaFailure: replicaFailure(err, d.backoff),
	})
	if err := errors.Join(err, statusErr); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: queue.MinRequeue(
		requeueAfterPlan(&o.pool, p, d, done.isFinished, isConflict, c.options.QuietPeriod),
		d.proven, o.target.requeueAfter, o.demandRequeueAfter, o.burst.requeueAfter, p.requeueAfter, counts.blocked.requeueAfter, statusAfter,
	)}, nil
}

// writeStatusAndEvents writes the status and reports sandboxes that cannot start, unless that
// has to wait. It reports whether the set has changed meanwhile, so that the status was not
// written, and after what time there is more to write; 0 is never.
func (c *Controller) writeStatusAndEvents(
	ctx context.Context, b *statusBuilder,
) (isConflict bool, requeueAfter time.Duration, err error) {
	o, found, status := b.o, b.startFailure, b.build()
	var sendsEvent, isDelayed bool
	c.states.withState(client.ObjectKeyFromObject(o.set), func(s *setState) {
		if requeueAfter = s.statusDelay(o.set, &status, o.now); requeueAfter > 0 {
			isDelayed = true
			return
		}
		var spaced *v1alpha1.SandboxSetStatus
		spaced, requeueAfter = s.throttle.limitWrites(&o.set.Status, &status, o.now)
		status = *spaced
		if sendsEvent = s.throttle.eventDue(found, o.now); found != nil && found.sandboxes > 0 {
			requeueAfter = queue.MinRequeue(requeueAfter, s.throttle.eventSentAt.Add(startFailureEventInterval).Sub(o.now))
		}
	})
	if isDelayed {
		return false, requeueAfter, nil
	}
	if sendsEvent {
		c.report.cannotStart(o.set, found)
	}
	isConflict, err = c.writer.writeStatus(ctx, o, status)
	return isConflict, requeueAfter, err
}

// countDelay returns how long to wait before the pool is counted, because claims keep coming. If the
// spec has changed, it is 0, because a user waits.
func (c *Controller) countDelay(set *v1alpha1.SandboxSet, now time.Time) time.Duration {
	var delay time.Duration
	if !specChanged(set) {
		c.states.withState(client.ObjectKeyFromObject(set), func(s *setState) { delay = s.claimRate.countDelay(now) })
	}
	return delay
}

// noteCount records what a count of the pool has found, and returns how long creates and removals wait.
func (c *Controller) noteCount(o *observation, counts *poolCounts) delays {
	var d delays
	var shortSince time.Time
	key, available, cost := client.ObjectKeyFromObject(o.set), len(counts.available), c.clock.Since(o.counting.at)
	c.states.withState(key, func(s *setState) {
		s.claimRate.recordCount(available, o.counting.claimed, cost)
		d.refill = s.claimRate.refillDelay(o.desired(), o.now)
		d.backoff = s.backoff.next(o.target.revision, counts.outcome, o.now)
		d.isFailing, d.proven = s.backoff.pause > 0, s.backoff.untilProven(counts.outcome, o.now)
		var length time.Duration
		if shortSince, length = s.shortage.recordCount(available, o.replicas(), o.now); length > 0 {
			replenishDuration.Observe(length.Seconds())
		}
	})
	setShortageGauge(key, shortSince)
	return d
}

// requeueAfterPlan returns after what time to reconcile because of what was planned and done,
// even if no event comes; 0 is never. left is the pool with what was done.
func requeueAfterPlan(left *pool, p plan, d delays, isFinished, isConflict bool, quiet time.Duration) time.Duration {
	switch delay := queue.MinRequeue(d.backoff, d.refill); { // what refill holds back, backoff may not
	case !isFinished:
		return time.Millisecond
	case isConflict, p.hasMore && p.create > 0:
		// As long as those that wait are picked up, the next are due before the changes
		// of a large pool are gathered.
		return max(quiet, time.Millisecond)
	case delay > 0:
		return delay
	case len(left.expectedCreates) > 0 || len(left.expectedDeletes) > 0:
		// Events will come, unless the cache has missed them: then the expectations
		// have run out by then.
		return expectationTTL + time.Second
	}
	return 0
}

// finalize works on a set that is being deleted. Mostly there is nothing to do: its
// sandboxes follow it, as their owner. One that is deleted in the foreground stays
// until they are gone; each deletion of one brings the set here again.
func (c *Controller) finalize(ctx context.Context, set *v1alpha1.SandboxSet) (reconcile.Result, error) {
	if !slices.Contains(set.Finalizers, v1alpha1.FinalizerPool) {
		return reconcile.Result{}, nil
	}
	var creates map[types.UID]string
	c.states.withState(client.ObjectKeyFromObject(set), func(s *setState) {
		creates, _ = s.expectations.snapshot(c.clock.Now())
	})
	left, err := c.indexes.pooled(set)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case len(creates) > 0:
		// Created in the last moment. If the cache has missed them, they are waited for
		// until the expectations run out.
		return reconcile.Result{RequeueAfter: expectationTTL}, nil
	case len(left) == 0:
		return reconcile.Result{}, c.writer.removeFinalizer(ctx, set)
	}
	return reconcile.Result{}, errors.Join(c.writer.removeWithSet(ctx, left)...)
}
