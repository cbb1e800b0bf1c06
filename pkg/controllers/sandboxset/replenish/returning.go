// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
)

// returnWait is for how long a pool waits for a sandbox that is being recycled, from when that began.
// Its pod ends in that time, mostly, and then it is in the pool again. To make another one takes
// less, but then one is too many, and it is the one that comes back.
const returnWait = 30 * time.Second

// addReturning counts the sandboxes that are on their way back to the pool of a set and of its
// revision, so that none are made in their place.
func (b *burst) addReturning(recycled []*v1alpha1.Sandbox, set *v1alpha1.SandboxSet, revision string, now time.Time) {
	for _, sandbox := range recycled {
		left := recycle.StartedAt(sandbox).Add(returnWait).Sub(now)
		if left <= 0 || sandbox.DeletionTimestamp != nil || revisionOf(sandbox) != revision || !recycle.IsOf(sandbox, set) {
			continue
		}
		b.returning++
		b.requeueAfter = queue.MinRequeue(b.requeueAfter, left)
	}
}

// awaited returns how many of those that are missing are waited for, if there should be desired ones.
// None are while claims have left less than half of the pool: then those that come next need what is
// there first.
func (b *burst) awaited(c *poolCounts, desired int) int {
	if 2*len(c.available) < desired {
		return 0
	}
	return b.returning
}
