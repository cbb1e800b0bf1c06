// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// memory is what the controller remembers of sandboxes between two reconciles.
type memory struct {
	expectations *expectations
	superseded   *superseded
	creates      *backoff
	deletes      *backoff // of pods whose deletion was refused
	resizes      *resizes
}

func newMemory(clk clock.PassiveClock) memory {
	return memory{
		expectations: newExpectations(clk),
		superseded:   newSuperseded(clk),
		creates:      newBackoff(clk),
		deletes:      newBackoff(clk),
		resizes:      newResizes(),
	}
}

// forget drops what is remembered of a sandbox that is gone. Another one of its
// name begins anew.
func (m *memory) forget(key types.NamespacedName) {
	m.expectations.forget(key)
	m.superseded.forget(key)
	m.creates.forget(key)
	m.deletes.forget(key)
	m.resizes.end(key)
}

// expectationTTL is how long a pod may take to show up in the cache before it is
// looked for. It may have been deleted before the cache saw it.
const expectationTTL = time.Minute

// expectations remembers the pods that were created and that the cache has not
// shown yet. They spare the API creates that it would refuse; that a sandbox has
// one pod is ensured by the pod's name.
type expectations struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	pods map[types.NamespacedName]expected
}

type expected struct {
	pod   types.UID
	until time.Time
}

func newExpectations(c clock.PassiveClock) *expectations {
	return &expectations{clock: c, pods: map[types.NamespacedName]expected{}}
}

// created records that a pod was created.
func (x *expectations) created(key types.NamespacedName, pod types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pods[key] = expected{pod: pod, until: x.clock.Now().Add(expectationTTL)}
}

// seen records that the cache has shown a pod, or its deletion.
func (x *expectations) seen(key types.NamespacedName, pod types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pods[key].pod == pod {
		delete(x.pods, key)
	}
}

// forget drops what was expected, if anything.
func (x *expectations) forget(key types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.pods, key)
}

// left returns for how long a pod of this name is still expected; 0 is not at all.
func (x *expectations) left(key types.NamespacedName) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.pods[key]
	if !ok {
		return 0
	}
	left := e.until.Sub(x.clock.Now())
	if left <= 0 {
		delete(x.pods, key)
		return 0
	}
	return left
}

// supersededTTL is how long the cache may take to show a write. After that it is
// believed again: the server may have been restored from before the write.
const supersededTTL = time.Minute

// superseded remembers the versions of sandboxes that this controller's own writes
// replaced. As long as the cache shows one of them, it is known to be old, and planning
// by it does harm: a sandbox that runs would be taken for one that starts, and get a
// second pod. There is an event on its way.
type superseded struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	versions map[types.NamespacedName]replaced
}

type replaced struct {
	versions []string // one reconcile may write three times
	until    time.Time
}

func newSuperseded(c clock.PassiveClock) *superseded {
	return &superseded{clock: c, versions: map[types.NamespacedName]replaced{}}
}

// wrote records that a write replaced one version by another. The same version means
// that nothing changed, and that no event comes.
func (s *superseded) wrote(key types.NamespacedName, before, after string) {
	if before == after {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[key] = replaced{
		versions: append(s.versions[key].versions, before),
		until:    s.clock.Now().Add(supersededTTL),
	}
}

// left returns how long to wait for a newer version of a sandbox than this; 0 is not at
// all, and then nothing is remembered any more.
func (s *superseded) left(key types.NamespacedName, version string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.versions[key]
	if !ok {
		return 0
	}
	left := r.until.Sub(s.clock.Now())
	if left <= 0 || !slices.Contains(r.versions, version) {
		delete(s.versions, key)
		return 0
	}
	return left
}

// forget drops what is remembered of a sandbox.
func (s *superseded) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.versions, key)
}

// baseBackoff is the pause after the first try.
const baseBackoff = time.Second

// backoff spaces out the tries to create, or to delete, the pod of a sandbox: a second
// after the first, then two, four, ... up to a minute. The rate limit of the queue does
// not suffice, because a sandbox is also reconciled for events in between, the one of
// the status that reports the failure among them.
type backoff struct {
	clock   clock.PassiveClock
	limiter workqueue.TypedRateLimiter[types.NamespacedName]

	mu    sync.Mutex
	until map[types.NamespacedName]time.Time
}

func newBackoff(c clock.PassiveClock) *backoff {
	return &backoff{
		clock:   c,
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](baseBackoff, queue.MaxBackoff),
		until:   map[types.NamespacedName]time.Time{},
	}
}

// tried records a try, whether it failed or not.
func (b *backoff) tried(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until[key] = b.clock.Now().Add(b.limiter.When(key))
}

// left returns how long the next try must wait.
func (b *backoff) left(key types.NamespacedName) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.until[key].Sub(b.clock.Now()))
}

// forget lets the next try begin at once: the sandbox runs, or is gone.
func (b *backoff) forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.until, key)
	b.limiter.Forget(key)
}
