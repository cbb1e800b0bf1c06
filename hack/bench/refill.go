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

// runRefill is like direct/c64, on a pool that is refilled. A round ends when the
// pool is full again, so that plain creates have no refill beside them: they are
// the same as in direct/c64.
func runRefill(ctx context.Context, o *settings, f *fixture) (*result, error) {
	m := &refillMeter{claimer: f.claimer}
	if err := m.release(ctx); err != nil {
		return nil, err
	}
	claims := f.claimer.arm("claim", o.refillCount(), 1)
	claims.before, claims.after = m.begin, m.end
	reset := claims.reset
	claims.reset = func() { reset(); m.beside, m.catchUp = refill{}, refill{} }
	r, _, err := f.compare(ctx, max(o.rounds/3, 2), claims, f.plain.arm(o.count))
	if err != nil {
		return nil, err
	}
	r.refillFigures = m.figures()
	r.judge(atLeast("rate_ratio", r.RateRatio, 0.6))
	return r, nil
}

// refill is what the server did in a time.
type refill struct {
	counters
	took time.Duration
}

func (r refill) plus(c counters, took time.Duration) refill {
	return refill{counters: r.counters.plus(c), took: r.took + took}
}

// refillMeter measures refill in the two parts of a round: beside the claims, and
// alone, from their end until the pool is full.
type refillMeter struct {
	claimer *claimer
	// held is what the server had done when the refill was let go.
	held counters

	start           counters
	startedAt       time.Time
	beside, catchUp refill
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

// full waits until as many sandboxes were made as were claimed and all of them
// are available. The set alone does not tell: it is counted only now and then.
func (m *refillMeter) full(ctx context.Context) (counters, error) {
	for deadline := time.Now().Add(poolTimeout); ; {
		if err := m.claimer.server.awaitStock(ctx, m.claimer.pool); err != nil {
			return counters{}, err
		}
		now, err := m.claimer.server.counters(ctx)
		if err != nil || int(now.minus(m.held).created) >= len(m.claimer.owners) {
			return now, err
		}
		if time.Now().After(deadline) {
			return now, fmt.Errorf("the pool is not refilled after %s", poolTimeout)
		}
		if err := sleep(ctx, 2*poolInterval); err != nil {
			return counters{}, err
		}
	}
}

func (m *refillMeter) begin(ctx context.Context) error {
	var err error
	m.start, err = m.full(ctx)
	m.startedAt = time.Now()
	return err
}

func (m *refillMeter) end(ctx context.Context) error {
	endedAt := time.Now()
	ended, err := m.claimer.server.counters(ctx)
	if err != nil {
		return err
	}
	full, err := m.full(ctx)
	if err != nil {
		return err
	}
	m.beside = m.beside.plus(ended.minus(m.start), endedAt.Sub(m.startedAt)-pause)
	m.catchUp = m.catchUp.plus(full.minus(ended), time.Since(endedAt))
	return nil
}

func (m *refillMeter) figures() *refillFigures {
	beside, catchUp := m.beside, m.catchUp
	return &refillFigures{
		BesidePerS:     number(beside.created / beside.took.Seconds()),
		AlonePerS:      number(catchUp.created / catchUp.took.Seconds()),
		MSPerClaim:     number(milliseconds(catchUp.took) / catchUp.created),
		CPUMSPerClaim:  number(milliseconds(catchUp.cpu) / catchUp.created),
		WritesPerClaim: number((beside.writes + catchUp.writes) / (beside.created + catchUp.created)),
	}
}
