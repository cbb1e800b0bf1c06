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

// What the status of a claim says of its wait is as of its last write. When it comes to be known,
// or is known no more, why the sandboxes of a set cannot start, all that wait for the set say so
// within a minute; where the cause changes, those at the front of its line within a few seconds.

const (
	// tellFront is how many claims at the front of a line are told of another cause, and
	// tellFrontEvery how often.
	tellFront      = 10
	tellFrontEvery = 5 * time.Second
	// tellWithin is how long it takes until all who wait for a set have been told that
	// its sandboxes cannot start.
	tellWithin = time.Minute
	// tellLater is when a claim is told that could not be because there were too many; it
	// may be up to twice that.
	tellLater = 10 * time.Second
	// tellingsEach is how many writes a second do nothing but tell claims of a namespace
	// of their wait, tellingsAtOnce how many at once.
	tellingsEach   = 20
	tellingsAtOnce = 40
	// tellingsOf is how many namespaces have a bound of their own; others share one.
	tellingsOf = 64
)

// MaxAhead is up to how many claims ahead of another are counted: a list of all claims that wait
// counts for each of them.
const MaxAhead = 100

// tellings bounds the writes that tell, for each namespace by itself.
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

// allow reports whether a claim of a namespace may be told now.
func (t *tellings) allow(namespace string, now time.Time) bool {
	return t.limits[maphash.String(t.seed, namespace)%tellingsOf].AllowN(now, 1)
}

// Ahead returns how many claims of the namespace have their turn before a claim that waits for
// pools, up to MaxAhead, as far as this server knows. ok is false if the claim does not wait for pools.
func (a *Allocator) Ahead(claim *v1alpha1.SandboxClaim) (n int, ok bool) {
	u := a.finisher.known.of(claim.UID)
	if u == nil || !claims.Unfinished(claim) || claim.Status.Waiting == nil || claim.Status.Waiting.Replicas == 0 {
		return 0, false
	}
	return a.stock.queue.Ahead(u.waiter, MaxAhead)
}

// tellOfCause lets those who wait for a set be told when it comes to be known, or is known
// no more, why its sandboxes cannot start. Another cause than before is told to those at
// the front.
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
			f.known.turns.AddAfter(uid, rand.N(tellWithin)) //nolint:gosec // it spreads work
		}
	}
}
