// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
)

// recycling is a sandbox of no pool that began to be recycled some time ago.
func recycling(ago time.Duration) builder {
	b := starting("back").annotation(v1alpha1.AnnotationPoolUID, "set")
	b.OwnerReferences = nil
	recycle.Begin(&b.Status, 1, epoch.Add(-ago))
	return b
}

// TestReturning: nothing is made for sandboxes that are on their way back, for a bounded
// time, and not while claims need what there is first.
func TestReturning(t *testing.T) {
	back := recycling(time.Second)
	for name, test := range map[string]struct {
		pool     []builder
		recycled []builder
		create   int
		after    time.Duration
	}{
		"nothing comes back":      {pool: n(3, available, "a"), create: 1},
		"one does":                {pool: n(3, available, "a"), recycled: []builder{back}, after: returnWait - time.Second},
		"more is missing":         {pool: n(2, available, "a"), recycled: []builder{back}, create: 1, after: returnWait - time.Second},
		"more comes than missing": {pool: n(3, available, "a"), recycled: []builder{back, back}, after: returnWait - time.Second},
		"the pool is full":        {pool: n(4, available, "a"), recycled: []builder{back}, after: returnWait - time.Second},
		"little is left":          {pool: n(1, available, "a"), recycled: []builder{back}, create: 3, after: returnWait - time.Second},
		"for too long":            {pool: n(3, available, "a"), recycled: []builder{recycling(returnWait)}, create: 1},
		"of another revision":     {pool: n(3, available, "a"), recycled: []builder{recycling(0).revision(older)}, create: 1},
		"of a set of before":      {pool: n(3, available, "a"), recycled: []builder{recycling(0).annotation(v1alpha1.AnnotationPoolUID, "before")}, create: 1},
		"about to be deleted":     {pool: n(3, available, "a"), recycled: []builder{recycling(0).deleting()}, create: 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := &observation{set: makeSet(4), target: targetOf(current), now: epoch}
			o.pool.sandboxes = sandboxes(test.pool...)
			o.burst.addReturning(sandboxes(test.recycled...), o.set, o.target.revision, o.now)
			c := o.count()
			p, err := o.plan(&c, delays{})
			if err != nil || p.create != test.create || len(p.remove) > 0 || o.burst.requeueAfter != test.after {
				t.Errorf("creates %d, removes %q, again after %s: %v", p.create, names(p.remove), o.burst.requeueAfter, err)
			}
		})
	}
}
