// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// pace lets clients begin operations at a rate that is theirs together. A client that is late
// begins at once, and goes back to its times when it can: what is late then is no longer at
// the rate, which shows in the rate that was reached.
type pace struct {
	// interval is the time from one operation of a client to the next.
	interval time.Duration
	// next is when each client begins its next operation; zero before the first one.
	next []time.Time
}

func newPace(clients int, rate float64) *pace {
	return &pace{interval: time.Duration(float64(clients) / rate * float64(time.Second)), next: make([]time.Time, clients)}
}

// begin forgets the times of the last round.
func (p *pace) begin(context.Context) error {
	clear(p.next)
	return nil
}

// wait returns when it is a client's turn. Each has an entry of its own.
func (p *pace) wait(ctx context.Context, client int) error {
	now := time.Now()
	p.next[client] = p.after(p.next[client], now, client)
	if due := p.next[client].Sub(now); due > 0 {
		return sleep(ctx, due)
	}
	return ctx.Err()
}

// after is when the operation begins that follows one of a time. First ones are spread over
// an interval.
func (p *pace) after(last, now time.Time, client int) time.Time {
	if last.IsZero() {
		return now.Add(p.interval * time.Duration(client) / time.Duration(len(p.next)))
	}
	return last.Add(p.interval)
}
