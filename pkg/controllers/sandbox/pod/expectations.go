// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

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

// created says that there is this pod.
func (x *expectations) created(key types.NamespacedName, pod types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pods[key] = expected{pod: pod, until: x.clock.Now().Add(expectationTTL)}
}

// seen says that the cache has shown this pod, or its end.
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

// left is how long a pod of this name is still expected; 0 is not at all.
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
