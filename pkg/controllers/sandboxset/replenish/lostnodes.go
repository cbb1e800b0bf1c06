// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// replaceAfter is for how long a node must take no pods (it is cordoned, not ready or
// gone) before what of pools is on it is replaced. A node that comes back earlier costs
// nothing.
const replaceAfter = time.Minute

// nodeTrouble is what of a pool is on nodes that take no pods.
type nodeTrouble struct {
	// since is when the nodes of sandboxes have ceased to take pods; nil if all take pods.
	since map[types.UID]time.Time
	// most is whether most nodes of the cluster take none. Then something else is wrong than
	// those nodes, and what would be made instead would hardly find a place.
	most bool
}

// replaceLost removes what is on nodes that take no pods as well, unless a roll-out uses up
// what may be missing.
func (o *observation) replaceLost(p *plan, c *poolCounts) error {
	if p.rolling {
		return nil
	}
	l, err := o.onLostNodes(c)
	if err != nil {
		return err
	}
	p.remove, p.lost, p.lostAfter = append(p.remove, l.replace...), uidsOf(l.replace), l.next
	return nil
}

// lostSandboxes are the sandboxes of a pool to replace because of their nodes.
type lostSandboxes struct {
	replace []*v1alpha1.Sandbox
	// next is after what time there may be more; 0 is never.
	next time.Duration
}

// onLostNodes returns the sandboxes to replace now because their nodes have taken no pods
// for long enough: all that are not available, since they are of no use to any claim, and of
// the others, oldest first, as many as updateStrategy.maxUnavailable lets be missing.
//
// What was made after its node ceased to take pods stays: it tolerates that, or its template
// names the node, and what would be made in its place would be there as well.
func (o *observation) onLostNodes(c *poolCounts) (lostSandboxes, error) {
	var l lostSandboxes
	if len(o.nodes.since) == 0 || !o.canCreate() {
		return l, nil
	}
	floor, err := o.budgetFloor()
	if err != nil {
		return l, err
	}
	due := func(sandbox *v1alpha1.Sandbox) bool {
		since, found := o.nodes.since[sandbox.UID]
		if !found || !sandbox.CreationTimestamp.Time.Before(since) {
			return false
		}
		left := since.Add(replaceAfter).Sub(o.now)
		if left <= 0 && o.nodes.most {
			left = replaceAfter
		}
		if left > 0 {
			l.next = earlier(l.next, left)
		}
		return left <= 0
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
