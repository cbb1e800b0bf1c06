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
	statusPacer  statusPacer
}

func newMemory(clk clock.PassiveClock) memory {
	return memory{
		expectations: newExpectations(clk),
		superseded:   newSuperseded(clk),
		creates:      newBackoff(clk),
		deletes:      newBackoff(clk),
		resizes:      newResizes(),
		statusPacer:  newStatusPacer(clk),
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

// leftIf returns for how long what is remembered of a sandbox is awaited; 0 is not at
// all. If it is not wanted, or was awaited for too long, it is forgotten.
func (a *awaited[T]) leftIf(key types.NamespacedName, wanted func(T) bool) time.Duration {
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

// expectations remembers the pods that were created and that the cache has not
// shown yet. They spare the API creates that it would refuse; that a sandbox has
// one pod is ensured by the pod's name.
type expectations struct{ awaited[types.UID] }

func newExpectations(c clock.PassiveClock) *expectations {
	return &expectations{newAwaited[types.UID](c)}
}

// created records that a pod was created.
func (x *expectations) created(key types.NamespacedName, pod types.UID) {
	x.change(key, func(types.UID) types.UID { return pod })
}

// seen records that the cache has shown a pod, or its deletion.
func (x *expectations) seen(key types.NamespacedName, pod types.UID) {
	x.leftIf(key, func(expected types.UID) bool { return expected != pod })
}

// left returns for how long a pod of this name is still expected; 0 is not at all.
func (x *expectations) left(key types.NamespacedName) time.Duration {
	return x.leftIf(key, func(types.UID) bool { return true })
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

// wrote records that a write replaced one version by another. The same version means
// that nothing changed, and that no event comes.
func (s *superseded) wrote(key types.NamespacedName, before, after string) {
	if before != after {
		s.change(key, func(versions []string) []string { return append(versions, before) })
	}
}

// left returns how long to wait for a newer version of a sandbox than this; 0 is not at
// all, and then nothing is remembered any more.
func (s *superseded) left(key types.NamespacedName, version string) time.Duration {
	return s.leftIf(key, func(versions []string) bool { return slices.Contains(versions, version) })
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
