// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/lull"
)

// ahead is how far a pool may differ from its replicas because claims wait.
type ahead struct {
	// wanted is how many more to make, spared how many more to leave alone, which is
	// never fewer.
	wanted, spared int
	// over is after what time those beyond wanted are surplus; 0 where there are none.
	over time.Duration
}

// waitedFor is how many sandboxes of a set claims wait for, as far as its burst goes,
// and after what time that may be different without an event; 0 is never.
// A claim that several sets may serve counts for each of them: which of them will
// have a sandbox first, or at all, nobody knows.
func (c *Controller) waitedFor(
	ctx context.Context, set *v1alpha1.SandboxSet, now time.Time,
) (int, time.Duration, error) {
	burst := claims.Burst(set)
	if burst == 0 {
		return 0, 0, nil
	}
	names, named := askable(set), true
	for _, template := range names[1:] {
		var err error
		if named, err = c.isSet(ctx, types.NamespacedName{Namespace: set.Namespace, Name: template}); err != nil {
			return 0, 0, err
		}
	}
	waits, again := c.waiting.on(set.Namespace, now, names...)
	total := 0
	for _, w := range waits {
		if !claims.Serves(set, w.claim, named) {
			continue
		}
		held, err := c.startingFor(w.claim, now)
		if err != nil {
			return 0, 0, err
		}
		if total += max(w.replicas-held, 0); total >= burst {
			return burst, again, nil // however many more wait
		}
	}
	return total, again, nil
}

// startingFor is how many sandboxes a claim holds that do not count yet: it does not
// wait for others in their place.
func (c *Controller) startingFor(claim *v1alpha1.SandboxClaim, now time.Time) (int, error) {
	sandboxes, err := c.pool.ControlledBy(claim.UID)
	if err != nil {
		return 0, err
	}
	held := 0
	for _, sandbox := range sandboxes {
		if sandbox.Annotations[v1alpha1.AnnotationStarting] == "" || sandbox.DeletionTimestamp != nil {
			continue
		}
		if t := sandbox.Spec.ShutdownTime; t == nil || now.Before(t.Time) {
			held++
		}
	}
	return held, nil
}

func (c *Controller) isSet(ctx context.Context, key types.NamespacedName) (bool, error) {
	err := c.client.Get(ctx, key, &v1alpha1.SandboxSet{}, client.UnsafeDisableDeepCopy)
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	default:
		return false, fmt.Errorf("getting SandboxSet %s: %w", key, err)
	}
}

// aheads remember what was made ahead of replicas, so that it is not deleted the
// moment the claims that it was made for are served otherwise or give up: others
// mostly follow, and to make it again takes seconds. What nobody has wanted or taken
// for lull.Patience is surplus like any other. A change of the set's spec ends that at
// once: a user who shrinks a pool means it.
type aheads struct {
	mu   sync.Mutex
	sets map[types.NamespacedName]*remembered
}

type remembered struct {
	generation int64
	// most is how many were wanted when all of them still were, and until when those
	// are left alone that are not; zero while all are.
	most  int
	until time.Time
}

func newAheads() *aheads { return &aheads{sets: map[types.NamespacedName]*remembered{}} }

// look takes in how many sandboxes claims wait for.
func (a *aheads) look(set types.NamespacedName, generation int64, wanted int, now time.Time) ahead {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.sets[set]
	switch {
	case r == nil, r.generation != generation, wanted >= r.most, !r.until.IsZero() && !now.Before(r.until):
		r = &remembered{generation: generation, most: wanted}
		a.sets[set] = r
	case r.until.IsZero():
		r.until = now.Add(lull.Patience)
	}
	if r.most == 0 {
		delete(a.sets, set)
	}
	found := ahead{wanted: wanted, spared: r.most}
	if !r.until.IsZero() {
		found.over = r.until.Sub(now)
	}
	return found
}

// took says that a claim took a sandbox out of a pool.
func (a *aheads) took(set types.NamespacedName, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.sets[set]; r != nil && !r.until.IsZero() {
		r.until = now.Add(lull.Patience)
	}
}

// forget drops all about a set that is gone.
func (a *aheads) forget(set types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sets, set)
}
