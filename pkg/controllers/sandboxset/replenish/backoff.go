// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import "time"

const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
)

// backoff slows down a set whose template does not keep running. Such a set would
// create sandboxes, remove them when they ended, and create new ones, as fast as the
// server can. While sandboxes of the target revision end, failed or not, and no
// newer one of them is available, the set pauses between rounds: a second, then
// two, four, ... up to a minute. The first sandbox that does become available ends
// that, and so does a change of the template. Those that were available before
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

// recordSuccess records that a sandbox of a revision has become available. A reconcile
// might never see that, if claims wait and take it at once.
func (b *backoff) recordSuccess(revision string) {
	if b.revision == revision {
		*b = backoff{revision: revision}
	}
}
