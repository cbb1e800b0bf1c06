// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Backoff is the delay of something that is not to be done again at once.
type Backoff struct {
	// Until is the end of the interval; zero before the first.
	Until time.Time

	first, next wait.Backoff
}

// NewBackoff returns a Backoff whose intervals are those of b. None has started.
func NewBackoff(b wait.Backoff) Backoff { return Backoff{first: b, next: b} }

// Start starts the next interval, which is longer than the last.
func (b *Backoff) Start(now time.Time) { b.Until = now.Add(b.next.Step()) }

// Reset ends the interval, and makes the next one as short as the first.
func (b *Backoff) Reset() { b.next, b.Until = b.first, time.Time{} }

// IsOver reports whether the interval has ended.
func (b *Backoff) IsOver(now time.Time) bool { return !now.Before(b.Until) }
