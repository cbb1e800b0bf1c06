// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/cacheindex"
)

// claimEvents wakes the sets that may grow for a claim when it begins or ceases to
// wait, or waits for fewer. Sets without a burst have no work by that: what they are
// to hold does not depend on claims.
func (c *Controller) claimEvents() handler.EventHandler {
	saw := func(ctx context.Context, object client.Object, q queue) {
		if claim, ok := object.(*v1alpha1.SandboxClaim); ok && c.waiting.saw(claim) {
			c.wakeServing(ctx, claim, q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { saw(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { saw(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if claim, ok := e.Object.(*v1alpha1.SandboxClaim); ok && c.waiting.gone(client.ObjectKeyFromObject(claim)) {
				c.wakeServing(ctx, claim, q)
			}
		},
	}
}

// wakeWaiting wakes the sets that may grow for the claims that hold sandboxes which
// are starting: when one of them fails, its claim waits for one more, and does not
// change by that.
func (c *Controller) wakeWaiting(ctx context.Context, q queue, sandboxes ...*v1alpha1.Sandbox) {
	for _, sandbox := range sandboxes {
		owner := metav1.GetControllerOfNoCopy(sandbox)
		if owner == nil || sandbox.Annotations[v1alpha1.AnnotationStarting] == "" {
			continue
		}
		if claim := c.waiting.claim(owner.UID); claim != nil {
			c.wakeServing(ctx, claim, q)
		}
	}
}

func (c *Controller) wakeServing(ctx context.Context, claim *v1alpha1.SandboxClaim, q queue) {
	c.wakeGrowing(ctx, claim.Namespace, q, askedOf(claim).Name)
}

// wakeGrowing queues the sets with a burst that are of a name or refer to the
// template of that name: claims that ask for it may be theirs.
func (c *Controller) wakeGrowing(ctx context.Context, namespace string, q queue, name string) {
	sets, err := c.growing.Growing(namespace, name)
	if err != nil {
		log.FromContext(ctx).Error(err, "Finding the sets that may grow", "namespace", namespace, "name", name)
		return
	}
	for _, set := range sets {
		key := client.ObjectKeyFromObject(set)
		q.AddAfter(requestFor(key), c.bursts.gather(key))
	}
}

const growingIndex = "sandlot.io/growing"

// growingSets finds sets with a burst in a manager's cache.
type growingSets struct{ sets toolscache.Indexer }

// growingIn returns the index of a cache. Call it before the cache starts.
func growingIn(ctx context.Context, c cache.Cache) (growingSets, error) {
	sets, err := cacheindex.Add(ctx, c, &v1alpha1.SandboxSet{}, growingIndex, growsFor)
	return growingSets{sets}, err
}

// growsFor is what claims may ask for that a set with a burst may serve.
func growsFor(object any) ([]string, error) {
	set, ok := object.(*v1alpha1.SandboxSet)
	if !ok {
		return nil, fmt.Errorf("indexing sets that may grow: got a %T", object)
	}
	if claims.Burst(set) == 0 {
		return nil, nil
	}
	keys := askable(set)
	for i, name := range keys {
		keys[i] = set.Namespace + "/" + name
	}
	return keys, nil
}

// Growing implements growing.
func (g growingSets) Growing(namespace, name string) ([]*v1alpha1.SandboxSet, error) {
	found, err := g.sets.ByIndex(growingIndex, namespace+"/"+name)
	if err != nil {
		return nil, fmt.Errorf("looking up sets that may grow: %w", err)
	}
	sets := make([]*v1alpha1.SandboxSet, 0, len(found))
	for _, object := range found {
		set, ok := object.(*v1alpha1.SandboxSet)
		if !ok {
			return nil, fmt.Errorf("the cache of sets holds a %T", object)
		}
		sets = append(sets, set)
	}
	return sets, nil
}
