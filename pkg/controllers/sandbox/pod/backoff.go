// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// backoff spaces out the creates of one sandbox's pod: a second after the first,
// then two, four, ... up to a minute. The rate limit of the queue does not do for
// that, because a sandbox is also reconciled for events in between, the one of the
// write that told of the failure among them.
type backoff struct {
	clock   clock.PassiveClock
	limiter workqueue.TypedRateLimiter[types.NamespacedName]

	mu    sync.Mutex
	until map[types.NamespacedName]time.Time
}

func newBackoff(c clock.PassiveClock) *backoff {
	return &backoff{
		clock:   c,
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstPause, maxPause),
		until:   map[types.NamespacedName]time.Time{},
	}
}

// tried says that a pod was created, or could not be.
func (b *backoff) tried(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until[key] = b.clock.Now().Add(b.limiter.When(key))
}

// left is how long the next try must wait.
func (b *backoff) left(key types.NamespacedName) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.until[key].Sub(b.clock.Now()))
}

// forget ends the spacing: the sandbox runs, or is gone.
func (b *backoff) forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.until, key)
	b.limiter.Forget(key)
}
