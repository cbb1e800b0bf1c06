// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

// refillCount is how many claims a round has. They last longer than the second
// after which a refill begins at the latest.
func (o *settings) refillCount() int { return o.count * 3 / 2 }

// refillPool would serve the claims of a round alone, but not much more: the
// refill has to hurry.
func (o *settings) refillPool() int { return o.refillCount() * 5 / 4 }

// refillRounds is how many rounds there are: each is long.
func (o *settings) refillRounds() int { return max(o.rounds/3, 2) }

// besideCount is how many claims a round has beside a refill: as many as are left
// when more than half of the pool is gone.
func (o *settings) besideCount() int { return max(o.count*7/10, 1) }

// heldPool is the pool that is not refilled: enough for all rounds.
func (o *settings) heldPool() int {
	return warmUp(o.besideCount()) + o.refillRounds()*o.besideCount()
}

// runRefill is like direct/c64, on a pool that is refilled. A round ends when the
// pool is full again, so that plain creates, and claims on a pool without a refill,
// have none beside them: they are the same as in direct/c64.
//
// A storm on a full pool is over before most of its refill. So there are claims as
// well that come when the refill is at work already: their p99 is compared.
func runRefill(ctx context.Context, o *settings, f *fixture) (*result, error) {
	m := &refillMeter{claimer: f.claimer}
	if err := m.release(ctx); err != nil {
		return nil, err
	}
	r, all, err := f.compare(ctx, o.refillRounds(),
		m.measured(f.claimer.arm("claim", o.refillCount(), 1), nil),
		f.plain.arm(o.count),
		m.measured(f.claimer.arm("claim beside refill", o.besideCount(), 1), m.drain),
		f.held.arm("claim without refill", o.besideCount(), 1))
	if err == nil {
		err = f.held.verify(ctx)
	}
	if err != nil {
		return nil, err
	}
	r.Claims += f.held.claims
	r.Failed += f.held.failed
	r.refillFigures = m.figures()
	beside, without := all[2], all[3]
	r.BesideP99, r.WithoutP99 = number(beside.p99()), number(without.p99())
	r.P99Ratio = number(beside.p99() / without.p99())
	r.judge(atLeast("rate_ratio", r.RateRatio, 0.6), atMost("p99_ratio", r.P99Ratio, 2),
		// Else there was nothing beside which the p99 could suffer.
		atLeast("refill_beside_claims_per_s", r.BesidePerS, 1))
	return r, nil
}

// refill is what the server did in a time.
type refill struct {
	counters
	took time.Duration
}

func (r refill) plus(from, to mark) refill {
	return refill{counters: r.counters.plus(to.minus(from.counters)), took: r.took + to.at.Sub(from.at)}
}

// mark is what the server had done at a time.
type mark struct {
	counters
	at time.Time
}

// refillMeter measures refill in the two parts of a round: beside the claims, and
// alone, from their end until the pool is full.
type refillMeter struct {
	claimer *claimer
	// held is what the server had done when the refill was let go.
	held counters
	// began and ended are the marks of the claims of a round.
	began, ended mark
	// storms is beside claims on a full pool, drained beside those that came later.
	storms, drained, alone refill
}

// release lets the refill begin.
func (m *refillMeter) release(ctx context.Context) error {
	server := m.claimer.server
	var err error
	if m.held, err = server.counters(ctx); err != nil {
		return err
	}
	return server.patchSet(ctx, m.claimer.pool, map[string]any{"scaleStrategy": release})
}

// measured is an arm of claims with a refill, which begin on a full pool. prepare, if
// set, is called then.
func (m *refillMeter) measured(a arm, prepare func(context.Context) error) arm {
	a.before = func(ctx context.Context) error {
		if _, err := m.full(ctx); err != nil || prepare == nil {
			return err
		}
		return prepare(ctx)
	}
	a.cpu = m.note
	a.after = func(ctx context.Context) error {
		full, err := m.full(ctx)
		if err != nil {
			return err
		}
		beside := &m.storms
		if prepare != nil {
			beside = &m.drained
		}
		*beside = beside.plus(m.began, m.ended)
		m.alone = m.alone.plus(m.ended, full)
		return nil
	}
	reset := a.reset
	a.reset = func() { reset(); m.storms, m.drained, m.alone = refill{}, refill{}, refill{} }
	return a
}

// note is asked for the server's processor time when the claims of a round begin and
// when they have ended.
func (m *refillMeter) note(ctx context.Context) (time.Duration, error) {
	now, err := m.now(ctx)
	m.began, m.ended = m.ended, now
	return now.cpu, err
}

func (m *refillMeter) now(ctx context.Context) (mark, error) {
	c, err := m.claimer.server.counters(ctx)
	return mark{c, time.Now()}, err
}

// drain claims more than half of the pool and waits until its refill has begun.
func (m *refillMeter) drain(ctx context.Context) error {
	before, err := m.now(ctx)
	if err != nil {
		return err
	}
	half := m.claimer.pool.size / 2
	each := min(max(half/10, 1), batchSize)
	claim := m.claimer.arm("", half/each+1, each)
	for i := range claim.count {
		if err := claim.do(ctx, i); err != nil {
			return err
		}
	}
	for {
		now, err := m.now(ctx)
		switch {
		case err != nil || now.created > before.created:
			return err
		case now.at.Sub(before.at) > poolTimeout:
			return fmt.Errorf("no refill has begun after %s", poolTimeout)
		}
		if err := sleep(ctx, poolInterval); err != nil {
			return err
		}
	}
}

// full waits until as many sandboxes were made as were claimed and all of them
// are available. The set alone does not tell: it is counted only now and then.
func (m *refillMeter) full(ctx context.Context) (mark, error) {
	for deadline := time.Now().Add(poolTimeout); ; {
		if err := m.claimer.server.awaitStock(ctx, m.claimer.pool); err != nil {
			return mark{}, err
		}
		now, err := m.now(ctx)
		if err != nil || int(now.minus(m.held).created) >= len(m.claimer.owners) {
			return now, err
		}
		if now.at.After(deadline) {
			return now, fmt.Errorf("the pool is not refilled after %s", poolTimeout)
		}
		if err := sleep(ctx, 2*poolInterval); err != nil {
			return mark{}, err
		}
	}
}

func (m *refillMeter) figures() *refillFigures {
	storms, drained, alone := m.storms, m.drained, m.alone
	return &refillFigures{
		BesidePerS:    number(drained.created / drained.took.Seconds()),
		AlonePerS:     number(alone.created / alone.took.Seconds()),
		MSPerClaim:    number(milliseconds(alone.took) / alone.created),
		CPUMSPerClaim: number(milliseconds(alone.cpu) / alone.created),
		WritesPerClaim: number((storms.writes + drained.writes + alone.writes) /
			(storms.created + drained.created + alone.created)),
	}
}
