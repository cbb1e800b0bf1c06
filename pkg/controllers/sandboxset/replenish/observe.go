// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// observation is what a reconcile has found before it counts the pool and decides. Only what the
// reconcile itself does with the pool is entered later, see pool.record.
type observation struct {
	set *v1alpha1.SandboxSet
	// target is what the pool should consist of, and pool what is there.
	target targetRevision
	pool   pool
	// nodes is what of the pool is on nodes that take no pods.
	nodes unavailableNodes
	// burst is how far the pool may differ from replicas because claims wait, and demandRequeueAfter after
	// what time they may wait for another number without an event; 0 is never.
	burst              burst
	demandRequeueAfter time.Duration
	// counting is how the count of the pool began.
	counting countBegin
	// dryRun is what the API said of the pods of the target revision, or nil; hasCluster
	// is true if there is a cluster, which it could ask and which runs the pods.
	dryRun     *dryRunResult
	hasCluster bool
	// differsOnlyInMetadata are older revisions that differ from the target in metadata alone,
	// see outdatedForRecreate.
	differsOnlyInMetadata sets.Set[string]
	// maxPending is for how long a sandbox may be Pending before it counts as one that fails to start.
	maxPending time.Duration
	now        time.Time
}

// countBegin is when a count of a pool began, before the cache was read, and claimRate.claimed then.
type countBegin struct {
	at      time.Time
	claimed int
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
	o := &observation{
		set: set, target: target, demandRequeueAfter: requeueAfter,
		hasCluster: c.options.Cluster, maxPending: c.options.MaxPendingTimeout, now: now,
	}
	c.states.withState(client.ObjectKeyFromObject(set), func(s *setState) {
		o.pool.expectedCreates, o.pool.expectedDeletes = s.expectations.snapshot(now)
		o.counting = countBegin{at: c.clock.Now(), claimed: s.claimRate.claimed}
		o.burst = s.burst.next(set.Generation, wanted, now)
		if s.revision.dryRun != nil && s.revision.dryRun.revision == target.revision {
			o.dryRun = s.revision.dryRun
		}
	})
	if o.pool.sandboxes, err = c.indexes.pooled(set); err != nil {
		return nil, err
	}
	recycled, err := c.indexes.recycled.OfPool(set.Namespace, set.Name)
	if err != nil {
		return nil, err
	}
	o.burst.addReturning(recycled, set, target.revision, now)
	o.nodes = c.nodes.unavailableNodesOf(o.pool.sandboxes)
	o.differsOnlyInMetadata, err = c.differingOnlyInMetadata(o)
	return o, err
}

// count counts the pool, with what the reconcile has done.
func (o *observation) count() poolCounts {
	c := o.pool.count(o.target.revision, o.now)
	c.blocked = findBlockedSlots(c.creating, o.maxPending, o.now)
	return c
}

// canCreate reports whether sandboxes of the target revision can be created.
func (o *observation) canCreate() bool { return o.target.resolved != nil }

func (o *observation) replicas() int { return int(max(ptr.Deref(o.set.Spec.Replicas, 0), 0)) }

// desired is how many unused sandboxes there should be now.
func (o *observation) desired() int { return o.replicas() + o.burst.wanted }
