// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// leastUseful returns the n sandboxes to give up when a pool shrinks: those of an
// older revision first; among equals
//
//  1. those that do not run yet,
//  2. those that were used before, most often first,
//  3. those that run and are not ready,
//  4. the fresh ones;
//
// among equals again the older. An older revision goes first even where it is
// available and the newer is not: the user changed the template and shrinks the
// pool, so the older would go next anyway.
func (o *observation) leastUseful(c *census, n int) []*v1alpha1.Sandbox {
	type ranked struct {
		sandbox *v1alpha1.Sandbox
		updated bool
		rank    int
	}
	unused := make([]ranked, 0, len(c.creating)+len(c.available))
	for _, sandbox := range c.creating {
		unused = append(unused, ranked{sandbox, o.updated(sandbox), rank(sandbox, false)})
	}
	for _, sandbox := range c.available {
		unused = append(unused, ranked{sandbox, o.updated(sandbox), rank(sandbox, true)})
	}
	slices.SortFunc(unused, func(a, b ranked) int {
		if a.updated != b.updated {
			if b.updated {
				return -1
			}
			return 1
		}
		return cmp.Or(
			cmp.Compare(a.rank, b.rank),
			cmp.Compare(b.sandbox.Status.RecycledCount, a.sandbox.Status.RecycledCount),
			byAge(a.sandbox, b.sandbox),
		)
	})
	surplus := make([]*v1alpha1.Sandbox, 0, n)
	for _, r := range unused[:min(n, len(unused))] {
		surplus = append(surplus, r.sandbox)
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

// outdated returns the sandboxes of an older revision to replace now: all that
// are still starting, since nobody can have use for them, and as many of the
// available ones, oldest first, as leaves at least replicas minus
// updateStrategy.maxUnavailable available. Reckoned from what is available, and
// not from what was removed before, the floor also holds while claims take from
// the pool or new sandboxes do not get ready.
func (o *observation) outdated(c *census) ([]*v1alpha1.Sandbox, error) {
	if c.updatedAvailable == len(c.available) && c.updatedCreating == len(c.creating) {
		return nil, nil // the common case, without a walk through the pool
	}
	if !o.makes() {
		return nil, nil // there would be none in their place
	}
	floor, err := o.floor()
	if err != nil {
		return nil, err
	}
	var remove []*v1alpha1.Sandbox
	for _, sandbox := range c.creating {
		if !o.updated(sandbox) {
			remove = append(remove, sandbox)
		}
	}
	budget := max(len(c.available)-floor, 0)
	old := slices.DeleteFunc(slices.Clone(c.available), o.updated)
	slices.SortFunc(old, byAge)
	return append(remove, old[:min(budget, len(old))]...), nil
}

// floor is how many available sandboxes a roll-out leaves at least.
func (o *observation) floor() (int, error) {
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

// byAge puts the older sandbox first. Creation times have whole seconds only, so
// names break ties, to make plans repeatable.
func byAge(a, b *v1alpha1.Sandbox) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name),
	)
}
