// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// runRefill is like direct/c64, on a pool that is refilled. A round ends when the
// pool is full again, so that plain creates, and claims on a pool without a refill,
// have none beside them: they are the same as in direct/c64.
//
// A storm on a full pool is over before most of its refill. So there are claims as
// well that come when the refill is at work already: their p99 is compared.
func runRefill(t *stage, r *result) {
	// Claims last longer than the second after which a refill begins at the latest. The pool
	// would serve those of a round alone, but not much more: the refill has to hurry.
	count := t.count * 3 / 2
	p := pool{namespace: "bench", size: count * 5 / 4}
	// As many as are left when more than half of the pool is gone.
	beside := max(t.count*7/10, 1)
	rounds := max(t.rounds/3, 2) // each is long
	held := pool{namespace: "bench-held", size: warmUp(beside) + rounds*beside}
	s := t.filledServer([]pool{held, p})
	f, without := t.fixture(r, s, p), newClaimer(s, held)

	m := &refillMeter{claimer: f.claimer, held: s.counts(t.ctx)}
	s.patchSet(t.ctx, p, map[string]any{"scaleStrategy": release})
	all := f.compareClaims(rounds, []arm{
		m.measured(f.claimer.arm("claim", count, 1), nil),
		f.plain.arm(t.count),
		m.measured(f.claimer.arm("claim beside refill", beside, 1), m.drain),
		without.arm("claim without refill", beside, 1),
	}, without)
	r.set("beside_refill_p99_ms", all[2].p99())
	r.set("without_refill_p99_ms", all[3].p99())
	r.set("p99_ratio", all[2].p99()/all[3].p99())
	sum := m.storms.plus(m.drained).plus(m.alone)
	r.set("refill_beside_claims_per_s", 1000*m.drained[created]/m.drained[took])
	r.set("refill_alone_per_s", 1000*m.alone[created]/m.alone[took])
	r.set("refill_ms_per_claim", m.alone[took]/m.alone[created])
	r.set("refill_cpu_ms_per_claim", m.alone[cpuTime]/m.alone[created])
	r.set("refill_writes_per_claim", sum[written]/sum[created])
}

// took is the time, in ms, among what a server has done.
const took = "took"

// refillMeter measures refill in the two parts of a round: beside the claims, and
// alone, from their end until the pool is full.
type refillMeter struct {
	claimer *claimer
	// held is what the server had done when the refill was released, and began and ended
	// what it had done when the claims of a round did so.
	held, began, ended counts
	// storms is beside claims on a full pool, drained beside those that came later.
	storms, drained, alone counts
}

// now is what the server has done, and what time it is.
func (m *refillMeter) now(ctx context.Context) counts {
	c := m.claimer.server.counts(ctx)
	c[took] = milliseconds(time.Duration(time.Now().UnixNano()))
	return c
}

// measured is an arm of claims with a refill, which begin on a full pool. prepare, if
// set, is called then.
func (m *refillMeter) measured(a arm, prepare func(context.Context)) arm {
	beside := &m.storms
	if prepare != nil {
		beside = &m.drained
	}
	a.before = func(ctx context.Context) {
		m.full(ctx)
		if prepare != nil {
			prepare(ctx)
		}
	}
	// It is asked when the claims of a round begin and when they have ended.
	a.cpu = func(ctx context.Context) float64 {
		m.began, m.ended = m.ended, m.now(ctx)
		return m.ended[cpuTime]
	}
	a.after = func(ctx context.Context) {
		full := m.full(ctx)
		*beside = beside.plus(m.ended.minus(m.began))
		m.alone = m.alone.plus(full.minus(m.ended))
	}
	reset := a.reset
	a.reset = func() {
		reset()
		m.storms, m.drained, m.alone = counts{}, counts{}, counts{}
	}
	return a
}

// drain claims more than half of the pool and waits until its refill has begun.
func (m *refillMeter) drain(ctx context.Context) {
	before := m.now(ctx)
	half := m.claimer.pool.size / 2
	each := min(max(half/10, 1), batchSize)
	claim := m.claimer.arm("", half/each+1, each)
	for i := range claim.count {
		claim.do(ctx, i)
	}
	await(ctx, "a refill has begun", func(ctx context.Context) bool { return m.now(ctx)[created] > before[created] })
}

// full waits until as many sandboxes were made as were claimed and all of them
// are available. The set alone does not tell: it is counted only now and then.
func (m *refillMeter) full(ctx context.Context) (now counts) {
	await(ctx, "the pool is refilled", func(ctx context.Context) bool {
		m.claimer.server.awaitStock(ctx, m.claimer.pool)
		now = m.now(ctx)
		return int(now.minus(m.held)[created]) >= len(m.claimer.owners)
	})
	return now
}
