// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// DefaultNodeTimeout is the default of --unavailable-node-timeout.
const DefaultNodeTimeout = time.Minute

// unavailableNodes are the nodes of a pool that take no pods, by the sandboxes on them.
type unavailableNodes struct {
	// bySandbox are the nodes of these sandboxes, by their UIDs; nil if all nodes take pods.
	bySandbox map[types.UID]unavailableNode
	// mostUnavailable is set if most nodes take no pods. Then nothing is replaced, because few nodes
	// could run the replacements.
	mostUnavailable bool
	// mostUnavailableAt is when that was last the case: nodes recover one after the other.
	mostUnavailableAt time.Time
	// timeout is for how long a node must take no pods (it is cordoned, not ready or gone) before the
	// unused sandboxes of pools on it are replaced. A node that comes back earlier costs nothing.
	timeout time.Duration
}

// dueAfter returns after what time a sandbox on an unavailable node is replaced. It reports whether it is
// replaced at all.
//
// A sandbox that was made after its node ceased to take pods is not: it tolerates that, or its
// template names the node, and the next one would be there as well. The two times may be of
// different clocks, so it counts as made before if it was made at most half of timeout later.
func (t *unavailableNodes) dueAfter(sandbox *v1alpha1.Sandbox, now time.Time) (time.Duration, bool) {
	node, found := t.bySandbox[sandbox.UID]
	if !found || !sandbox.CreationTimestamp.Time.Before(node.since.Add(t.timeout/2)) {
		return 0, false
	}
	if t.mostUnavailable {
		return t.timeout, true
	}
	begin := node.noticed
	if t.mostUnavailableAt.After(begin) {
		begin = t.mostUnavailableAt
	}
	return max(begin.Add(t.timeout).Sub(now), 0), true
}

// addOnUnavailableNodes also removes the sandboxes on nodes that take no pods, unless a roll-out uses up
// what may be missing.
func (o *observation) addOnUnavailableNodes(p *plan, c *poolCounts) error {
	if p.isRollout {
		return nil
	}
	found, err := o.onUnavailableNodes(c)
	if err != nil {
		return err
	}
	p.remove, p.onUnavailableNodes = append(p.remove, found.replace...), uidsOf(found.replace)
	p.requeueAfter = queue.MinRequeue(p.requeueAfter, found.requeueAfter)
	return nil
}

// nodeReplacements are the sandboxes of a pool to replace because of their nodes.
type nodeReplacements struct {
	replace []*v1alpha1.Sandbox
	// requeueAfter is after what time there may be more; 0 is never.
	requeueAfter time.Duration
}

// onUnavailableNodes returns the sandboxes to replace now because their nodes have taken no pods
// for long enough: all that are not available, since they are of no use to any claim, and of
// the others, oldest first, as many as updateStrategy.maxUnavailable lets be missing.
func (o *observation) onUnavailableNodes(c *poolCounts) (nodeReplacements, error) {
	var found nodeReplacements
	if len(o.nodes.bySandbox) == 0 || !o.canCreate() {
		return found, nil
	}
	minAvailable, err := o.minAvailableForReplacement()
	if err != nil {
		return found, err
	}
	due := func(sandbox *v1alpha1.Sandbox) bool {
		after, replaced := o.nodes.dueAfter(sandbox, o.now)
		if after > 0 {
			found.requeueAfter = queue.MinRequeue(found.requeueAfter, after)
		}
		return replaced && after == 0
	}
	for _, sandbox := range c.creating {
		if due(sandbox) {
			found.replace = append(found.replace, sandbox)
		}
	}
	var available []*v1alpha1.Sandbox
	for _, sandbox := range c.available {
		if due(sandbox) {
			available = append(available, sandbox)
		}
	}
	slices.SortFunc(available, byAge)
	found.replace = append(found.replace, available[:min(max(len(c.available)-minAvailable, 0), len(available))]...)
	return found, nil
}
