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

// replaceAfter is for how long a node must take no pods (it is cordoned, not ready or
// gone) before the unused sandboxes of pools on it are replaced. A node that comes back earlier
// costs nothing.
const replaceAfter = time.Minute

// unusableNodes are the nodes of a pool that take no pods, by the sandboxes on them.
type unusableNodes struct {
	// lost are the nodes of these sandboxes; nil if all nodes take pods.
	lost map[types.UID]unusableNode
	// mostUnusable is set if most nodes take no pods. Then nothing is replaced, because few nodes
	// could run the replacements.
	mostUnusable bool
	// mostUnusableAt is when that was last the case: nodes recover one after the other.
	mostUnusableAt time.Time
}

// dueAfter returns after what time a sandbox on a lost node is replaced. It reports whether it is
// replaced at all.
//
// A sandbox that was made after its node ceased to take pods is not: it tolerates that, or its
// template names the node, and the next one would be there as well. The two times may be of
// different clocks, so it counts as made before if it was made at most half of replaceAfter later.
func (t *unusableNodes) dueAfter(sandbox *v1alpha1.Sandbox, now time.Time) (time.Duration, bool) {
	node, found := t.lost[sandbox.UID]
	if !found || !sandbox.CreationTimestamp.Time.Before(node.since.Add(replaceAfter/2)) {
		return 0, false
	}
	if t.mostUnusable {
		return replaceAfter, true
	}
	begin := node.noticed
	if t.mostUnusableAt.After(begin) {
		begin = t.mostUnusableAt
	}
	return max(begin.Add(replaceAfter).Sub(now), 0), true
}

// replaceLost also removes the sandboxes on nodes that take no pods, unless a roll-out uses up
// what may be missing.
func (o *observation) replaceLost(p *plan, c *poolCounts) error {
	if p.rolling {
		return nil
	}
	l, err := o.onLostNodes(c)
	if err != nil {
		return err
	}
	p.remove, p.lost = append(p.remove, l.replace...), uidsOf(l.replace)
	p.requeueAfter = queue.MinRequeue(p.requeueAfter, l.requeueAfter)
	return nil
}

// lostSandboxes are the sandboxes of a pool to replace because of their nodes.
type lostSandboxes struct {
	replace []*v1alpha1.Sandbox
	// requeueAfter is after what time there may be more; 0 is never.
	requeueAfter time.Duration
}

// onLostNodes returns the sandboxes to replace now because their nodes have taken no pods
// for long enough: all that are not available, since they are of no use to any claim, and of
// the others, oldest first, as many as updateStrategy.maxUnavailable lets be missing.
func (o *observation) onLostNodes(c *poolCounts) (lostSandboxes, error) {
	var l lostSandboxes
	if len(o.nodes.lost) == 0 || !o.canCreate() {
		return l, nil
	}
	floor, err := o.budgetFloor()
	if err != nil {
		return l, err
	}
	due := func(sandbox *v1alpha1.Sandbox) bool {
		after, replaced := o.nodes.dueAfter(sandbox, o.now)
		if after > 0 {
			l.requeueAfter = queue.MinRequeue(l.requeueAfter, after)
		}
		return replaced && after == 0
	}
	for _, sandbox := range c.creating {
		if due(sandbox) {
			l.replace = append(l.replace, sandbox)
		}
	}
	var available []*v1alpha1.Sandbox
	for _, sandbox := range c.available {
		if due(sandbox) {
			available = append(available, sandbox)
		}
	}
	slices.SortFunc(available, byAge)
	l.replace = append(l.replace, available[:min(max(len(c.available)-floor, 0), len(available))]...)
	return l, nil
}
