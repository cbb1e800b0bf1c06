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
	counts := o.count(o.revision, now)
	o.failed = o.failedOf(&counts) // before they are deleted
	delays := c.recordCount(o, &counts)

	p, err := o.plan(&counts, delays)
	if err != nil {
		// The server refuses such values; trying again would not mend them.
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("SandboxSet %s: %w", req, err))
	}
	c.sendProgressEvent(set, p.keptUnscheduled)
	isFinished, err := c.writer.scale(ctx, o, p)
	if p.create > 0 || len(p.remove) > 0 {
		counts = o.count(o.revision, now) // with what was done
	}
	err = errors.Join(err, o.templateErr, c.revisionTemplates.deleteUnused(ctx, set, o.revision, historyOf(set, o.templateErr), &o.pool))

	o.gauges(&counts).set(req.NamespacedName)
	isConflict, statusAfter, statusErr := c.writeStatusAndEvents(ctx, o, &counts, replicaFailure(err, delays.backoff))
	if err := errors.Join(err, statusErr); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: queue.MinRequeue(
		o.requeueAfterPlan(p, delays, isFinished, isConflict, c.options.QuietPeriod),
		o.requeueAfter, o.burst.requeueAfter, p.requeueAfter, o.failedStarts(&counts).requeueAfter, statusAfter,
	)}, nil
}

// writeStatusAndEvents writes the status and reports sandboxes that cannot start, unless that
// has to wait. It reports whether the set has changed meanwhile, so that the status was not
// written, and after what time there is more to write; 0 is never.
func (c *Controller) writeStatusAndEvents(
	ctx context.Context, o *observation, counts *poolCounts, failure *problem,
) (isConflict bool, requeueAfter time.Duration, err error) {
	status := o.status(counts, failure)
	found := o.findStartFailure(counts)
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

// countDelay is how long the pool should not even be counted, because claims run. A
// changed spec does not wait: a user does.
func (c *Controller) countDelay(set *v1alpha1.SandboxSet, now time.Time) time.Duration {
	var delay time.Duration
	if !specChanged(set) {
		c.states.withState(client.ObjectKeyFromObject(set), func(s *setState) { delay = s.claimRate.countDelay(now) })
	}
	return delay
}

// observe finds out what the pool should consist of, and what is there. It reads the
// expectations, and what claims have taken, before the cache: see type expectations.
func (c *Controller) observe(ctx context.Context, set *v1alpha1.SandboxSet, now time.Time) (*observation, error) {
	target, err := c.revisions.target(ctx, set)
	if err != nil {
		return nil, err
	}
	wanted, requeueAfter, err := c.demand.forSet(ctx, set, now)
	if err != nil {
		return nil, err
	}
	target.requeueAfter = queue.MinRequeue(target.requeueAfter, requeueAfter)
	o := &observation{set: set, targetRevision: target, hasCluster: c.options.Lookup.Cluster, maxPending: c.options.MaxPendingTimeout, now: now}
	c.states.withState(client.ObjectKeyFromObject(set), func(s *setState) {
		o.expectedCreates, o.expectedDeletes = s.expectations.snapshot(now)
		o.taken = s.claimRate.taken
		o.burst = s.burst.next(set.Generation, wanted, now)
		if s.dryRun != nil && s.dryRun.revision == target.revision {
			o.dryRun = s.dryRun
		}
	})
	if o.sandboxes, err = c.caches.pooled(set); err != nil {
		return nil, err
	}
	recycled, err := c.caches.recycled.OfPool(set.Namespace, set.Name)
	if err != nil {
		return nil, err
	}
	o.burst.addReturning(recycled, set, o.revision, now)
	o.nodes = c.nodes.unavailableNodesOf(o.sandboxes)
	o.differsOnlyInMetadata, err = c.differingOnlyInMetadata(o)
	return o, err
}

// recordCount records what a count of the pool has found, and returns what has to wait.
func (c *Controller) recordCount(o *observation, counts *poolCounts) delays {
	var d delays
	var shortSince time.Time
	key, available, cost := client.ObjectKeyFromObject(o.set), len(counts.available), c.clock.Since(o.now)
	c.states.withState(key, func(s *setState) {
		s.claimRate.recordCount(available, o.taken, cost)
		d.refill = s.claimRate.refillDelay(o.desired(), o.now)
		d.backoff = s.backoff.next(o.revision, counts.outcome, o.now)
		o.isFailing = s.backoff.pause > 0
		var length time.Duration
		if shortSince, length = s.shortage.recordCount(available, o.replicas(), o.now); length > 0 {
			replenishDuration.Observe(length.Seconds())
		}
	})
	setShortageGauge(key, shortSince)
	return d
}

// requeueAfterPlan returns after what time to reconcile because of what was planned and done,
// even if no event comes; 0 is never.
func (o *observation) requeueAfterPlan(p plan, d delays, isFinished, isConflict bool, quiet time.Duration) time.Duration {
	switch delay := max(d.backoff, d.refill); {
	case !isFinished:
		return time.Millisecond
	case isConflict, p.hasMore && p.create > 0:
		// As long as those that wait are picked up, the next are due before the changes
		// of a large pool are gathered.
		return max(quiet, time.Millisecond)
	case delay > 0:
		return delay
	case len(o.expectedCreates) > 0 || len(o.expectedDeletes) > 0:
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
	left, err := c.caches.pooled(set)
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
