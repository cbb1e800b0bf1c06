// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limit bounds how many requests an API key of the E2B API, and a team with all its
// keys, may send.
package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
)

const (
	// teamFactor is how many times what a key may do a team may do.
	teamFactor = 10
	// maxBuckets bounds the keys, and the teams, that are remembered. Who was forgotten
	// begins with a full bucket.
	maxBuckets = 16384
)

// Options are the limits of a key.
type Options struct {
	// Rate is how many requests a second it may send. Zero is no limit.
	Rate float64
	// Burst is how many it may send at once, at least one.
	Burst int
	// Clock is the time.
	Clock clock.PassiveClock
}

// Limiter has a token bucket for each key, and one for each team.
type Limiter struct {
	options     Options
	keys, teams *fairness.Limiters
	// mu makes it one decision what a key and its team may do.
	mu sync.Mutex
}

// New returns a Limiter that knows no keys yet.
func New(options Options) *Limiter {
	options.Burst = max(options.Burst, 1)
	return &Limiter{
		options: options,
		keys:    fairness.NewLimiters(maxBuckets, rate.Limit(options.Rate), options.Burst),
		teams:   fairness.NewLimiters(maxBuckets, rate.Limit(teamFactor*options.Rate), teamFactor*options.Burst),
	}
}

// Allow reports whether a caller may send a request now. If not, it costs nothing, and
// retryAfter is when it is worth trying again.
func (l *Limiter) Allow(caller apikeys.Caller) (ok bool, retryAfter time.Duration) {
	if l.options.Rate <= 0 {
		return true, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.options.Clock.Now()
	key, team := l.keys.Of(caller.KeyID), l.teams.Of(caller.Team)
	ofKey, ofTeam := key.ReserveN(now, 1), team.ReserveN(now, 1)
	wait := max(ofKey.DelayFrom(now), ofTeam.DelayFrom(now))
	if wait > 0 {
		ofTeam.CancelAt(now)
		ofKey.CancelAt(now)
		return false, wait
	}
	return true, 0
}
