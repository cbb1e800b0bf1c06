// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import "time"

const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
	// provenAfter is how long a sandbox has to be available until it counts as one that keeps running. Without a
	// probe, a process that ends after some seconds is ready until then.
	provenAfter = 10 * time.Second
)

// backoff slows down a set whose template does not keep running. Such a set would
// create sandboxes, remove them when they ended, and create new ones, as fast as the
// server can. While sandboxes of the target revision end, failed or not, and no
// newer one of them has been available for provenAfter or was claimed, the set pauses
// between rounds: a second, then two, four, ... up to a minute. The first such sandbox
// ends that, and so does a change of the template. Those that were available before
// prove nothing: an image may be gone from its registry, or broken under its tag.
type backoff struct {
	revision string
	pause    time.Duration // 0 while nothing fails
	until    time.Time
	// newestEnded is when the newest sandbox that ended was created.
	newestEnded time.Time
}

// next takes in how the sandboxes of a revision fare, and returns how long the set
// must pause before it creates again.
func (b *backoff) next(revision string, o outcome, now time.Time) time.Duration {
	if b.revision != revision {
		*b = backoff{revision: revision}
	}
	newestEnded := later(b.newestEnded, o.newestEnded)
	switch {
	case !o.newestAvailable.IsZero() && !o.newestAvailable.Before(newestEnded):
		// Times in objects have whole seconds: one of the same second counts.
		*b = backoff{revision: revision}
		return 0
	case o.ended == 0:
		return max(b.until.Sub(now), 0)
	}
	b.newestEnded = newestEnded
	// Those that end during a pause are of the round before it.
	if !now.Before(b.until) {
		b.pause = max(firstBackoff, min(2*b.pause, maxBackoff))
		b.until = now.Add(b.pause)
	}
	return b.until.Sub(now)
}

// untilProven returns after how long a sandbox may end the backoff; 0 is never.
func (b *backoff) untilProven(o outcome, now time.Time) time.Duration {
	if b.pause == 0 || o.nextProven.IsZero() {
		return 0
	}
	return o.nextProven.Sub(now)
}

// recordSuccess records that a sandbox of a revision was claimed. A reconcile might never
// see it available for long enough, if claims take all soon.
func (b *backoff) recordSuccess(revision string) {
	if b.revision == revision {
		*b = backoff{revision: revision}
	}
}
