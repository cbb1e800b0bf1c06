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
	// tellFront is how many claims at the front of a line report another cause, and tellFrontEvery
	// how often.
	tellFront      = 10
	tellFrontEvery = 5 * time.Second
	// tellWithin is the time within which all claims that wait for a set report that its sandboxes
	// cannot start.
	tellWithin = time.Minute
	// tellLater is the delay of a report that is over the limit; it may be up to twice that.
	tellLater = 10 * time.Second
	// tellingsEach is how many writes a second only report what claims of a namespace wait for, and
	// tellingsAtOnce how many at once.
	tellingsEach   = 20
	tellingsAtOnce = 40
	// tellingsOf is how many limiters there are, which namespaces share.
	tellingsOf = 64
)

// tellings limits the writes that only report what claims wait for, for each namespace by itself.
type tellings struct {
	seed   maphash.Seed
	limits [tellingsOf]*rate.Limiter
}

func newTellings() *tellings {
	t := &tellings{seed: maphash.MakeSeed()}
	for i := range t.limits {
		t.limits[i] = rate.NewLimiter(tellingsEach, tellingsAtOnce)
	}
	return t
}

// allow reports whether a claim of a namespace may be written now.
func (t *tellings) allow(namespace string, now time.Time) bool {
	return t.limits[maphash.String(t.seed, namespace)%tellingsOf].AllowN(now, 1)
}

// tellOfCause makes the claims that wait for a set due when it becomes known, or is no longer known, why
// its sandboxes cannot start. If the cause changes, only those at the front of the line are woken.
func (f *Feeds) tellOfCause(before, after *v1alpha1.SandboxSet) {
	if after == nil || before == nil {
		return
	}
	was, is := claims.CannotStart([]*v1alpha1.SandboxSet{before}), claims.CannotStart([]*v1alpha1.SandboxSet{after})
	if was == is {
		return
	}
	f.stock.queue.Look(poolindex.PoolOf(after))
	if was != "" && is != "" {
		return
	}
	for uid, u := range f.known.namespaces.in(after.Namespace) {
		if u.mayBeHelped(after) {
			f.known.due.AddAfter(uid, rand.N(tellWithin)) //nolint:gosec // it spreads work
		}
	}
}
