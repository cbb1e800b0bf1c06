// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"hash/maphash"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// What a claim is told of its wait is as of its last write. Where that may have changed it
// is looked at again: at the front of a line that has moved, after a few seconds; anywhere
// in the line of a set of which it has come to be known, or is known no more, why its
// sandboxes cannot start, within a minute. Claims in a line that stands still are never
// looked at.

const (
	// tellFrontEvery is how often those at the front of lines that have moved are told.
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

// lineFor is how things stand in line for a claim for which too little was found; nil if
// enough was, or it does not come to stand in line.
func (t *turn) lineFor(a *plan.Assessment, o *plan.Offer) *claims.Line {
	if t.place == nil || len(a.Eligible.Pools) == 0 || len(o.Candidates)+len(o.Made) >= a.Missing() {
		return nil
	}
	lines, _ := linesOf(a.Claim, &a.Eligible)
	return &claims.Line{
		Available: min(t.stock.queue.Stock(lines), claims.Front+1),
		Before:    t.stock.queue.Ahead(t.place, lines, claims.Front+1),
	}
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
