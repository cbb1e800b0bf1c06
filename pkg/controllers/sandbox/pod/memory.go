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
	podExpectations *podExpectations
	superseded      *superseded
	createBackoff   *podBackoff
	deleteBackoff   *podBackoff // of pods whose deletion was refused
	resizes         *resizes
	statusPacer     statusPacer
}

func newMemory(clk clock.PassiveClock) memory {
	return memory{
		podExpectations: newPodExpectations(clk),
		superseded:      newSuperseded(clk),
		createBackoff:   newPodBackoff(clk),
		deleteBackoff:   newPodBackoff(clk),
		resizes:         newResizes(),
		statusPacer:     newStatusPacer(clk),
	}
}

// forget drops what is remembered of a sandbox that is gone. Another one of its
// name begins anew.
func (m *memory) forget(key types.NamespacedName) {
	m.podExpectations.forget(key)
	m.superseded.forget(key)
	m.createBackoff.forget(key)
	m.deleteBackoff.forget(key)
	m.resizes.end(key)
	m.statusPacer.forget(key)
}

// awaitedTTL is how long the cache may take to show a write. After that it is believed
// again: a pod may have been deleted before the cache saw it, and the server may have
// been restored from before the write.
const awaitedTTL = time.Minute

// awaited remembers, by sandbox, what was written and the cache has not shown yet.
type awaited[T any] struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	items map[types.NamespacedName]awaitedItem[T]
}

type awaitedItem[T any] struct {
	value T
	until time.Time
}

func newAwaited[T any](c clock.PassiveClock) awaited[T] {
	return awaited[T]{clock: c, items: map[types.NamespacedName]awaitedItem[T]{}}
}

// change changes what is remembered of a sandbox, and remembers it from now on.
func (a *awaited[T]) change(key types.NamespacedName, change func(T) T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.items[key] = awaitedItem[T]{value: change(a.items[key].value), until: a.clock.Now().Add(awaitedTTL)}
}

// expireUnless forgets what is remembered of a sandbox, unless it is wanted and was not awaited for
// too long. It returns for how long it is still awaited; 0 is not at all.
func (a *awaited[T]) expireUnless(key types.NamespacedName, wanted func(T) bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	item, ok := a.items[key]
	left := item.until.Sub(a.clock.Now())
	if !ok || left <= 0 || !wanted(item.value) {
		delete(a.items, key)
		return 0
	}
	return left
}

// forget drops what is remembered of a sandbox.
func (a *awaited[T]) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.items, key)
}

// podExpectations remembers the pods that were created and that the cache has not
// shown yet. They spare the API creates that it would refuse; that a sandbox has
// one pod is ensured by the pod's name.
type podExpectations struct{ awaited[types.UID] }

func newPodExpectations(c clock.PassiveClock) *podExpectations {
	return &podExpectations{newAwaited[types.UID](c)}
}

// recordCreate records that a pod was created.
func (x *podExpectations) recordCreate(key types.NamespacedName, pod types.UID) {
	x.change(key, func(types.UID) types.UID { return pod })
}

// recordSeen records that the cache has shown a pod, or its deletion.
func (x *podExpectations) recordSeen(key types.NamespacedName, pod types.UID) {
	x.expireUnless(key, func(expected types.UID) bool { return expected != pod })
}

// remaining returns for how long a pod of this name is still expected; 0 is not at all.
func (x *podExpectations) remaining(key types.NamespacedName) time.Duration {
	return x.expireUnless(key, func(types.UID) bool { return true })
}

// superseded remembers the versions of sandboxes that this controller's own writes
// replaced. As long as the cache shows one of them, it is known to be old, and planning
// by it does harm: a sandbox that runs would be taken for one that starts, and get a
// second pod. There is an event on its way.
type superseded struct {
	awaited[[]string] // one reconcile may write three times
}

func newSuperseded(c clock.PassiveClock) *superseded {
	return &superseded{newAwaited[[]string](c)}
}

// recordWrite records that a write replaced one version by another. The same version means
// that nothing changed, and that no event comes.
func (s *superseded) recordWrite(key types.NamespacedName, before, after string) {
	if before != after {
		s.change(key, func(versions []string) []string { return append(versions, before) })
	}
}

// remaining returns how long to wait for a newer version of a sandbox than this; 0 is not at
// all, and then nothing is remembered any more.
func (s *superseded) remaining(key types.NamespacedName, version string) time.Duration {
	return s.expireUnless(key, func(versions []string) bool { return slices.Contains(versions, version) })
}

// baseBackoff is the pause after the first try.
const baseBackoff = time.Second

// podBackoff spaces out the tries to create, or to delete, the pod of a sandbox: a second
// after the first, then two, four, ... up to a minute. The rate limit of the queue does
// not suffice, because a sandbox is also reconciled for events in between, the one of
// the status that reports the failure among them.
type podBackoff struct {
	clock   clock.PassiveClock
	limiter workqueue.TypedRateLimiter[types.NamespacedName]

	mu    sync.Mutex
	until map[types.NamespacedName]time.Time
}

func newPodBackoff(c clock.PassiveClock) *podBackoff {
	return &podBackoff{
		clock:   c,
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](baseBackoff, queue.MaxBackoff),
		until:   map[types.NamespacedName]time.Time{},
	}
}

// recordAttempt records a try, whether it failed or not.
func (b *podBackoff) recordAttempt(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until[key] = b.clock.Now().Add(b.limiter.When(key))
}

// remaining returns how long the next try must wait.
func (b *podBackoff) remaining(key types.NamespacedName) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.until[key].Sub(b.clock.Now()))
}

// forget lets the next try begin at once: the sandbox runs, or is gone.
func (b *podBackoff) forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.until, key)
	b.limiter.Forget(key)
}
