// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"hash/maphash"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
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
	// reportLimiters is how many limiters there are, which namespaces share.
	reportLimiters = 64
)

// reportLimiter limits the writes that only report what claims wait for, for each namespace by itself.
type reportLimiter struct {
	seed   maphash.Seed
	limits [reportLimiters]*rate.Limiter
}

func newReportLimiter() *reportLimiter {
	l := &reportLimiter{seed: maphash.MakeSeed()}
	for i := range l.limits {
		l.limits[i] = rate.NewLimiter(reportsPerSecond, reportBurst)
	}
	return l
}

// allow reports whether a claim of a namespace may be written now.
func (l *reportLimiter) allow(namespace string, now time.Time) bool {
	return l.limits[maphash.String(l.seed, namespace)%reportLimiters].AllowN(now, 1)
}

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
	f.stock.Queue.Look(poolindex.PoolOf(after))
	if was != "" && is != "" {
		return
	}
	for uid, u := range f.known.namespaces.in(after.Namespace) {
		if u.canBeHelpedBy(after) {
			f.known.due.AddAfter(uid, rand.N(reportWithin)) //nolint:gosec // it spreads work
		}
	}
}
