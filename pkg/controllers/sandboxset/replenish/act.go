// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// act carries out a plan and enters what it did into o, so that the status can
// tell. It returns false where time was up before everything was done.
func (c *Controller) act(ctx context.Context, o *observation, p plan) (bool, error) {
	if p.create == 0 && len(p.remove) == 0 {
		return true, nil
	}
	key := client.ObjectKeyFromObject(o.set)
	width := func() int {
		now := c.clock.Now()
		if now.Sub(o.now) > c.turnOf(key) {
			return 0
		}
		workers := c.bursts.width(key, o.target(), c.options.RefillConcurrency, now)
		if changed(o.set) {
			return max(workers, 1)
		}
		return workers
	}
	removed, err := c.remove(ctx, o, p, width)
	if err != nil {
		return false, err
	}
	created, err := c.create(ctx, o, p.create, width)
	log.FromContext(ctx).V(2).Info("Worked on the pool",
		"toCreate", p.create, "created", created, "toRemove", len(p.remove), "removed", removed)
	if err != nil {
		return false, err
	}
	return created == p.create && removed == len(p.remove), nil
}

// turnOf is how long a set may be worked on now. Where all workers are at it, others
// may wait: then a set gets only as long as makes good for the look at it.
func (c *Controller) turnOf(set types.NamespacedName) time.Duration {
	if int(c.busy.Load()) < c.options.Workers {
		return turn
	}
	return c.bursts.gather(set)
}

// create makes n sandboxes.
func (c *Controller) create(ctx context.Context, o *observation, n int, width func() int) (int, error) {
	if n == 0 {
		return 0, nil
	}
	key := client.ObjectKeyFromObject(o.set)
	model, err := podtemplate.NewSandbox(o.from, o.revision, o.goal.resolved)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	created, err := slowStart(ctx, n, width, func(int) error {
		sandbox := model.DeepCopy()
		c.expectations.begin(key)
		began := c.clock.Now()
		if err := c.client.Create(ctx, sandbox); err != nil {
			c.expectations.failed(key)
			return err
		}
		c.starts.created(sandbox.UID, began)
		c.expectations.created(key, sandbox.UID, o.revision)
		mu.Lock()
		defer mu.Unlock()
		o.creates[sandbox.UID] = o.revision
		return nil
	})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// Nothing can be created there any more, and the set will go as well.
		return n, nil
	}
	c.reportCreated(o.set, created, err)
	if err != nil {
		return created, fmt.Errorf("creating a sandbox for SandboxSet %s: %w", key, err)
	}
	return created, nil
}

// remove deletes sandboxes, each only in the very state in which it was judged. A
// claim that has taken one meanwhile has given it a newer resourceVersion; then
// the server refuses, and that is well.
//
// Claims go on meanwhile. A roll-out that has reached the floor with what they took
// leaves the rest to the next look; it counts as removed here.
func (c *Controller) remove(
	ctx context.Context, o *observation, p plan, width func() int,
) (int, error) {
	key := client.ObjectKeyFromObject(o.set)
	var mu sync.Mutex
	deleted := map[removal]int{}
	spare, err := c.spare(o, p)
	if err != nil {
		return 0, err
	}
	removed, err := slowStart(ctx, len(p.remove), width, func(i int) error {
		sandbox := p.remove[i]
		if useOf(sandbox, o.now) == useAvailable && !spare() {
			return nil
		}
		c.expectations.deleting(key, sandbox.UID)
		err := c.client.Delete(ctx, sandbox, client.Preconditions{
			UID:             new(sandbox.UID),
			ResourceVersion: new(sandbox.ResourceVersion),
		})
		switch {
		case apierrors.IsConflict(err):
			c.expectations.kept(sandbox.UID)
			return nil
		case apierrors.IsNotFound(err):
			// The event may have come before; nothing is owed then.
			c.expectations.gone(sandbox.UID)
		case err != nil:
			c.expectations.kept(sandbox.UID)
			return fmt.Errorf("deleting Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		o.deletes.Insert(sandbox.UID)
		if err == nil {
			deleted[p.removalOf(o, sandbox)]++
		}
		return nil
	})
	c.reportRemoved(o.set, deleted, err)
	return removed, err
}

// spare says before each deletion of an available sandbox whether the pool can spare
// one more, given what claims have taken since it was looked at.
func (c *Controller) spare(o *observation, p plan) (func() bool, error) {
	if !p.rolling {
		return func() bool { return true }, nil
	}
	floor, err := o.floor()
	if err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(o.set)
	var mu sync.Mutex
	spent := 0
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		if c.bursts.left(key)-spent <= floor {
			return false
		}
		spent++
		return true
	}, nil
}
