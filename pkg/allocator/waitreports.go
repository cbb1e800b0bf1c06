// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// What the status of a claim says of its wait is as of its last write. When it becomes known, or is
// no longer known, why the sandboxes of a set cannot start, that is written to all claims that wait
// for the set within a minute. If the cause changes, it is written to those at the front of the line
// within a few seconds.

const (
	// reportFront is how many claims at the front of a line report another cause, and reportFrontInterval
	// how often.
	reportFront         = 10
	reportFrontInterval = 5 * time.Second
	// reportWithin is the time within which all claims that wait for a set report that its sandboxes
	// cannot start.
	reportWithin = time.Minute
	// reportRetry is the delay of a report that is over the limit; it may be up to twice that.
	reportRetry = 10 * time.Second
	// reportsPerSecond is how many writes a second only report what claims of a namespace wait for, and
	// reportBurst how many at once.
	reportsPerSecond = 20
	reportBurst      = 40
)

// reportCause makes the claims that wait for a set due when it becomes known, or is no longer known, why
// its sandboxes cannot start. If the cause changes, only those at the front of the line are woken.
func (f *Feeds) reportCause(before, after *v1alpha1.SandboxSet) {
	if after == nil || before == nil {
		return
	}
	was, is := claims.CannotStart([]*v1alpha1.SandboxSet{before}), claims.CannotStart([]*v1alpha1.SandboxSet{after})
	if was == is {
		return
	}
	f.stock.Queue.WakeFrontLater(poolindex.PoolOf(after))
	if was != "" && is != "" {
		return
	}
	for uid, u := range f.unfinished.namespaces.in(after.Namespace) {
		if u.canBeHelpedBy(after) {
			f.unfinished.due.AddAfter(uid, rand.N(reportWithin)) //nolint:gosec // it spreads work
		}
	}
}

// holdBack returns for how long a plan is not written yet. Writes that only report what a claim waits
// for are limited.
func (f *finisher) holdBack(u *unfinishedClaim, p *plan.Plan, now time.Time) time.Duration {
	if !p.Changes() {
		return 0
	}
	hold := u.work.holdBack(p, now)
	if hold == 0 && p.IsOnlyWaitReport() && !f.reports.Allow(u.key.Namespace, now) {
		return wait.Jitter(reportRetry, 1)
	}
	return hold
}
