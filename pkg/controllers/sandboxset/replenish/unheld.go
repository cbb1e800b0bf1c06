// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// unheld remembers which sets with a template of their own have no SandboxTemplate
// for their revision, because it could not be made.
type unheld struct {
	mu   sync.Mutex
	sets map[types.NamespacedName]notHeld
}

type notHeld struct {
	uid      types.UID
	revision string
	message  string
	// until is when to try again.
	until time.Time
}

func newUnheld() *unheld { return &unheld{sets: map[types.NamespacedName]notHeld{}} }

// wait says how long to leave a revision alone.
func (u *unheld) wait(set *v1alpha1.SandboxSet, revision string, now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, ok := u.sets[client.ObjectKeyFromObject(set)]
	if !ok || known.uid != set.UID || known.revision != revision {
		return 0
	}
	return max(known.until.Sub(now), 0)
}

// failed enters why a revision is not held, and says whether that is news.
func (u *unheld) failed(set *v1alpha1.SandboxSet, revision, message string, until time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := client.ObjectKeyFromObject(set)
	known := u.sets[key]
	now := notHeld{uid: set.UID, revision: revision, message: message, until: until}
	u.sets[key] = now
	known.until = until
	return known != now
}

// forget drops what is known about a set, which is tried again at the next look.
func (u *unheld) forget(set types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sets, set)
}

// materializeInline makes the SandboxTemplate for the revision of a set whose
// sandboxes do not need it. Where that fails, it returns after what time to try
// again: no pool should suffer from it.
func (c *Controller) materializeInline(
	ctx context.Context, set *v1alpha1.SandboxSet, revision string, resolved *podtemplate.Resolved,
) time.Duration {
	now := c.clock.Now()
	if wait := c.unheld.wait(set, revision, now); wait > 0 {
		return wait
	}
	err := c.materialize(ctx, set, revision, resolved)
	if err == nil {
		c.unheld.forget(client.ObjectKeyFromObject(set))
		return 0
	}
	if failed(err) && c.unheld.failed(set, revision, err.Error(), now.Add(retryHolder)) {
		log.FromContext(ctx).Error(err, "The revision is in no SandboxTemplate", "revision", revision)
		c.event(set, corev1.EventTypeWarning, EventRevisionNotHeld, "Create", "%s", cut(err.Error()))
	}
	return retryHolder
}
