// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"time"

	"github.com/sandlot-io/sandlot/pkg/controllers/quietperiod"
)

// burst is how far a pool may differ from its replicas because claims wait (scaleStrategy.burst of the
// set), or because sandboxes are being recycled into it.
type burst struct {
	// wanted is how many sandboxes beyond replicas to create, and kept how many to leave alone, which
	// are never fewer.
	wanted, kept int
	// returning is how many are being recycled, see addReturning.
	returning int
	// requeueAfter is after what time those beyond wanted are surplus, or one is no longer waited
	// for; 0 where there are none.
	requeueAfter time.Duration
}

// burstMemory remembers what was created beyond replicas, so that it is not deleted the
// moment the claims that it was created for are served otherwise or give up: others
// mostly follow, and to create it again takes seconds. What no claim has waited for or
// taken for quietperiod.MaxWait is surplus like any other. A change of the set's spec ends
// that at once: a user who shrinks a pool means it.
type burstMemory struct {
	generation int64
	// peak is how many were wanted when all of them still were, and until when those
	// are left alone that are not; zero while all are.
	peak  int
	until time.Time
}

// next takes in how many sandboxes claims wait for.
func (m *burstMemory) next(generation int64, wanted int, now time.Time) burst {
	switch {
	case m.generation != generation, wanted >= m.peak, !m.until.IsZero() && !now.Before(m.until):
		*m = burstMemory{generation: generation, peak: wanted}
	case m.until.IsZero():
		m.until = now.Add(quietperiod.MaxWait)
	}
	b := burst{wanted: wanted, kept: m.peak}
	if !m.until.IsZero() {
		b.requeueAfter = m.until.Sub(now)
	}
	return b
}

// recordClaim records that a claim took a sandbox out of the pool.
func (m *burstMemory) recordClaim(now time.Time) {
	if !m.until.IsZero() {
		m.until = now.Add(quietperiod.MaxWait)
	}
}
