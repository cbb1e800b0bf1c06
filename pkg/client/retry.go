// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

// shortagePause is the time before a create is repeated that was refused for a shortage. The server
// does not say how long that lasts.
const shortagePause = time.Second

// patience is how long and how often a request without a clear answer is repeated.
type patience struct {
	limit   time.Duration
	backoff wait.Backoff
	// since is when the first try ended that was not answered; zero before.
	since time.Time
}

func newPatience(limit time.Duration) *patience {
	p := &patience{limit: limit}
	p.answered()
	return p
}

// heard restarts the time limit, and keeps the backoff.
func (p *patience) heard() { p.since = time.Time{} }

// answered restarts the time limit and the backoff: there was a clear answer.
func (p *patience) answered() {
	p.heard()
	p.backoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second}
}

// again waits until it is time to repeat the request after err, and at least as long as the server
// asks for. It returns an error when there is no time left, which wraps err.
func (p *patience) again(ctx context.Context, err error) error {
	now := clock.RealClock{}.Now()
	if p.since.IsZero() {
		p.since = now // an answer may have been long in coming
	}
	if now.Sub(p.since) >= p.limit {
		return &overError{cause: fmt.Errorf("no clear answer for %s: %w", p.limit, err)}
	}
	delay := p.backoff.Step()
	if IsShortage(err) {
		delay = max(delay, shortagePause)
	}
	if after, ok := RetryAfter(err); ok {
		delay = max(delay, after)
	}
	return pause(ctx, delay, err)
}

// pause waits. It returns an error if the context ends before, which wraps the last one.
func pause(ctx context.Context, delay time.Duration, last error) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return over(ctx, last)
	}
}

// overError means that there is no more time.
type overError struct{ cause error }

func (e *overError) Error() string { return e.cause.Error() }
func (e *overError) Unwrap() error { return e.cause }

// over is the error of a context that has ended, after another one.
func over(ctx context.Context, last error) error {
	if last == nil {
		return &overError{cause: context.Cause(ctx)}
	}
	return &overError{cause: fmt.Errorf("%w; the last error was: %w", context.Cause(ctx), last)}
}
