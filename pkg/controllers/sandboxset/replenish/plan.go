// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// maxNotPickedUp is how many sandboxes of a set may be there in a cluster that no
// controller of pods has picked up yet. Such a controller takes those of all sets in
// turn, so with more of them a small set, or a claim that has one made, would wait for
// all of a large set; and a cluster that takes pods slowly would have none the earlier.
// It is enough to keep a cluster busy.
const maxNotPickedUp = 128

// delays are why a plan has to wait, and for how long.
type delays struct {
	// backoff is for how long none are created, because sandboxes of the revision fail.
	backoff time.Duration
	// refill is for how long nothing is created or removed, because claims keep coming.
	refill time.Duration
	// proven is after how long a sandbox may end the backoff; 0 is never.
	proven time.Duration
	// isFailing is true while sandboxes of the revision fail, also between two rounds of backoff.
	isFailing bool
}

// plan is what to do.
type plan struct {
	create int
	// hasMore is true if more are to be created when some of those are picked up.
	hasMore bool
	remove  []*v1alpha1.Sandbox
	// isRollout: what is removed beside those that have ended is outdated, not surplus.
	isRollout bool
	// notReadyTooLong are those of remove that have not been ready for too long, and
	// keptUnscheduled is how many others stay although they have not.
	notReadyTooLong sets.Set[types.UID]
	keptUnscheduled int
	// onUnavailableNodes are those of remove whose nodes take no pods.
	onUnavailableNodes sets.Set[types.UID]
	// requeueAfter is after what time there may be more to remove; 0 is never.
	requeueAfter time.Duration
}

// plan decides what to create and what to remove.
//
//   - Too few, with those that claims wait for: create the missing ones, except for those that are on
//     their way back (see addReturning), but not more than
//     scaleStrategy.maxUnavailable leaves after those that fail to start (see blockedSlots), and no
//     more than are picked up (see maxNotPickedUp).
//   - Too many: remove the surplus, the least useful first (see leastUseful). What
//     was created for claims that waited is left alone for a while (see burstMemory).
//   - Older revision: replace (see outdated).
//   - On a node that takes no pods: replace (see onUnavailableNodes), once nothing is outdated.
//   - Not ready for too long, in a pool of agent-sandbox: replace (see findNotReadyTooLong).
//   - No sandbox of the target revision can be created: create none, and keep the
//     older ones.
//   - Sandboxes fail: create none until the backoff is over. Claims keep coming: wait for a pause,
//     unless the user has changed the set.
//
// Nothing useful is removed while own creates are still to show up in the cache:
// one of them may have been claimed meanwhile, and then it is not one too many.
//
// Example: replicas 10, updateStrategy 20%, ten available sandboxes of an older
// revision. The first plan removes two; the next creates two; nothing happens until
// both are available; then two more are removed. With a template that never gets
// ready it stays at eight old ones that work.
func (o *observation) plan(c *poolCounts, d delays) (plan, error) {
	create, hasMore, err := o.toCreate(c)
	if err != nil {
		return plan{}, err
	}
	p := plan{create: create, hasMore: hasMore, remove: c.ended}
	switch surplus := c.unused() - o.replicas() - o.burst.kept; {
	case c.unseenCreates > 0:
	case surplus > 0:
		p.remove = append(p.remove, o.leastUseful(c, surplus)...)
	default:
		outdated, err := o.outdated(c)
		if err != nil {
			return plan{}, err
		}
		p.remove, p.isRollout = append(p.remove, outdated...), len(outdated) > 0
		if err := o.addOnUnavailableNodes(&p, c); err != nil {
			return plan{}, err
		}
	}
	p.addNotReady(o.findNotReadyTooLong(c))
	if d.backoff > 0 {
		p.create = 0
	}
	if d.refill > 0 && !specChanged(o.set) {
		p.create, p.remove = 0, nil
	}
	return p, nil
}

// addNotReady removes what has not been ready for too long as well.
func (p *plan) addNotReady(found notReadyTooLong) {
	p.keptUnscheduled = found.keptUnscheduled
	p.requeueAfter = queue.MinRequeue(p.requeueAfter, found.requeueAfter)
	removed := uidsOf(p.remove)
	found.replace = slices.DeleteFunc(found.replace, func(sandbox *v1alpha1.Sandbox) bool { return removed.Has(sandbox.UID) })
	p.remove, p.notReadyTooLong = append(p.remove, found.replace...), uidsOf(found.replace)
}

// toCreate is how many sandboxes to create, and if more are missing that have to wait
// until some of these are picked up.
func (o *observation) toCreate(c *poolCounts) (n int, hasMore bool, err error) {
	n = o.desired() - c.unused() - o.burst.awaited(c, o.desired())
	if n <= 0 || !o.canCreate() {
		return 0, false, nil
	}
	budget, isLimited, err := o.startBudget()
	if err != nil {
		return 0, false, err
	}
	if isLimited {
		n = min(n, max(budget-c.blocked.total()-c.unseenCreates, 0))
	}
	if room := max(maxNotPickedUp-c.notPickedUp-c.unseenCreates, 0); o.hasCluster && room < n {
		return room, true, nil
	}
	return n, false, nil
}

// leastUseful returns the n sandboxes to give up when a pool shrinks: those of an
// older revision first; among equals
//
//  1. those that do not run yet,
//  2. those that were used before, most often first,
//  3. those that run and are not ready,
//  4. the fresh ones;
//
// among equals again the older. Those on nodes that take no pods go before all of these.
// An older revision goes first even where it is available and the newer is not: the
// user changed the template and shrinks the pool, so the older would go next anyway.
func (o *observation) leastUseful(c *poolCounts, n int) []*v1alpha1.Sandbox {
	type ranked struct {
		*v1alpha1.Sandbox
		revision, node, rank int
	}
	unused := make([]ranked, 0, len(c.creating)+len(c.available))
	add := func(sandbox *v1alpha1.Sandbox, available bool) {
		r := ranked{Sandbox: sandbox, rank: rank(sandbox, available)}
		if revisionOf(sandbox) == o.target.revision {
			r.revision = 1
		}
		if _, isUnavailable := o.nodes.bySandbox[sandbox.UID]; !isUnavailable {
			r.node = 1
		}
		unused = append(unused, r)
	}
	for _, sandbox := range c.creating {
		add(sandbox, false)
	}
	for _, sandbox := range c.available {
		add(sandbox, true)
	}
	slices.SortFunc(unused, func(a, b ranked) int {
		return cmp.Or(
			cmp.Compare(a.revision, b.revision),
			cmp.Compare(a.node, b.node),
			cmp.Compare(a.rank, b.rank),
			cmp.Compare(b.Status.RecycledCount, a.Status.RecycledCount),
			byAge(a.Sandbox, b.Sandbox),
		)
	})
	surplus := make([]*v1alpha1.Sandbox, 0, n)
	for _, r := range unused[:min(n, len(unused))] {
		surplus = append(surplus, r.Sandbox)
	}
	return surplus
}

func rank(sandbox *v1alpha1.Sandbox, available bool) int {
	switch {
	case !available && sandbox.Status.Phase != v1alpha1.SandboxRunning:
		return 1
	case sandbox.Status.RecycledCount > 0:
		return 2
	case !available:
		return 3
	default:
		return 4
	}
}

// outdated returns the sandboxes of an older revision to replace now. With the update type
// Recreate that is what outdatedForRecreate returns, with OnReplenish none, and else: all that
// are still creating, since they are of no use to any claim, and as many of the
// available ones, oldest first, as leaves at least replicas minus
// updateStrategy.maxUnavailable available. Reckoned from what is available, and
// not from what was removed before, this also holds while claims take from
// the pool or new sandboxes do not get ready.
func (o *observation) outdated(c *poolCounts) ([]*v1alpha1.Sandbox, error) {
	if !o.canCreate() {
		return nil, nil // there would be none in their place
	}
	switch o.set.Spec.UpdateStrategy.Type {
	case v1alpha1.SetUpdateOnReplenish:
		return nil, nil
	case v1alpha1.SetUpdateRecreate:
		return outdatedForRecreate(o, c), nil
	}
	if c.updatedAvailable == len(c.available) && c.updatedCreating == len(c.creating) {
		return nil, nil // the common case, without a walk through the pool
	}
	minAvailable, err := o.minAvailable()
	if err != nil {
		return nil, err
	}
	updated := func(sandbox *v1alpha1.Sandbox) bool { return revisionOf(sandbox) == o.target.revision }
	creating := slices.DeleteFunc(slices.Clone(c.creating), updated)
	available := slices.DeleteFunc(slices.Clone(c.available), updated)
	slices.SortFunc(available, byAge)
	return append(creating, available[:min(max(len(c.available)-minAvailable, 0), len(available))]...), nil
}

// minAvailable is how many available sandboxes a roll-out leaves at least.
func (o *observation) minAvailable() (int, error) {
	if o.set.Spec.UpdateStrategy.Type == v1alpha1.SetUpdateRecreate {
		return 0, nil
	}
	return o.minAvailableForReplacement()
}

// minAvailableForReplacement is replicas minus updateStrategy.maxUnavailable.
func (o *observation) minAvailableForReplacement() (int, error) {
	limit := o.set.Spec.UpdateStrategy.MaxUnavailable
	if limit == nil {
		limit = new(intstr.FromString(v1alpha1.DefaultUpdateMaxUnavailable))
	}
	maxUnavailable, err := scaled(limit, o.replicas())
	if err != nil {
		return 0, fmt.Errorf("spec.updateStrategy.maxUnavailable: %w", err)
	}
	return max(o.replicas()-maxUnavailable, 0), nil
}

// reasonFor is why the plan removes a sandbox.
func (p *plan) reasonFor(sandbox *v1alpha1.Sandbox, now time.Time) removalReason {
	switch {
	case stateInPool(sandbox, now) == stateEnded:
		return removalEnded
	case p.notReadyTooLong.Has(sandbox.UID):
		return removalNotReady
	case p.onUnavailableNodes.Has(sandbox.UID):
		return removalNodeUnavailable
	case p.isRollout:
		return removalOutdated
	}
	return removalSurplus
}

// specChanged reports whether a user has changed the spec since the pool was last
// counted.
func specChanged(set *v1alpha1.SandboxSet) bool {
	return set.Generation != set.Status.ObservedGeneration
}

// scaled resolves a number or a percentage of replicas, rounded up.
func scaled(value *intstr.IntOrString, replicas int) (int, error) {
	n, err := intstr.GetScaledValueFromIntOrPercent(value, replicas, true)
	if err != nil {
		return 0, err
	}
	return max(n, 0), nil
}

// byAge puts the older sandbox first. Creation times have whole seconds only, so
// names break ties, to make plans repeatable.
func byAge(a, b *v1alpha1.Sandbox) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name),
	)
}
