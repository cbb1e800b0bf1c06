// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimepolicy

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// holds remembers the namespaces in which the policy cannot be created for now.
type holds struct {
	mu sync.Mutex
	of map[string]heldNamespace
}

type heldNamespace struct {
	until time.Time
	// reported is the policy of somebody else that has had its event.
	reported types.UID
}

// hold leaves a namespace alone until a time.
func (h *holds) hold(namespace string, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[string]heldNamespace{}
	}
	held := h.of[namespace]
	held.until = until
	h.of[namespace] = held
}

// left returns for how long a namespace is to be left alone.
func (h *holds) left(namespace string, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[namespace].until.Sub(now)
}

// reports reports whether a policy in a namespace that is held gets an event, which it has
// then had.
func (h *holds) reports(namespace string, policy types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.of[namespace]
	if held.reported == policy {
		return false
	}
	held.reported = policy
	h.of[namespace] = held
	return true
}

// forget ends what is remembered of a namespace.
func (h *holds) forget(namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, namespace)
}
