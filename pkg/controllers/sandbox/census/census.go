// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package census

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Values of the label owned_by.
const (
	ownedByClaim = "SandboxClaim"
	ownedByPool  = "SandboxWarmPool"
	ownedByNone  = "None"
)

// kind is what the metric says about a sandbox.
type kind struct {
	namespace, template, launch, owner, createdBy string
	ready, expired                                bool
}

// labels are the values of the metric's labels, in their order.
func (k kind) labels() []string {
	return []string{
		k.namespace, strconv.FormatBool(k.ready), strconv.FormatBool(k.expired), k.launch, k.template, k.owner, k.createdBy,
	}
}

// kindOf returns what the metric says about a sandbox. A template that is only named by
// its user, on a sandbox that no pool and no claim has, is not told.
func kindOf(sb *v1alpha1.Sandbox) kind {
	k := kind{
		namespace: sb.Namespace, template: claims.TemplateInFigures(sb), launch: claims.LaunchType(sb),
		owner: ownedByNone, createdBy: claims.CreatedBy(sb),
	}
	k.ready = meta.IsStatusConditionTrue(sb.Status.Conditions, v1alpha1.SandboxConditionReady)
	k.expired = v1alpha1.SandboxExpired(sb)
	switch {
	case sb.Annotations[v1alpha1.AnnotationOwner] != "":
		k.owner = ownedByClaim
	case v1alpha1.PoolOf(sb) != nil:
		k.owner = ownedByPool
	default:
		k.template = claims.UnknownTemplate
	}
	return k
}

// Census counts sandboxes. It is safe for concurrent use.
type Census struct {
	mu     sync.Mutex
	counts map[kind]*count
	of     map[types.NamespacedName]*count
}

// count is how many sandboxes are of a kind.
type count struct {
	kind
	n int
}

// New returns a Census that has counted nothing.
func New() *Census {
	return &Census{counts: map[kind]*count{}, of: map[types.NamespacedName]*count{}}
}

// Name is the name of the controller.
func (c *Census) Name() string { return "sandbox-census" }

// Register lets the cache of a manager tell the Census of sandboxes, and shows what it has
// counted while the manager leads.
func (c *Census) Register(ctx context.Context, mgr ctrl.Manager) error {
	informer, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.Sandbox{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("getting the informer of Sandboxes: %w", err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    c.is,
		UpdateFunc: func(_, now any) { c.is(now) },
		DeleteFunc: c.isGone,
	}); err != nil {
		return fmt.Errorf("watching Sandboxes: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		defer live.add(c)()
		<-ctx.Done()
		return nil
	})); err != nil {
		return fmt.Errorf("adding the census: %w", err)
	}
	return nil
}

// is takes in the state of a sandbox.
func (c *Census) is(object any) {
	sb, ok := object.(*v1alpha1.Sandbox)
	if !ok {
		return
	}
	key, now := types.NamespacedName{Namespace: sb.Namespace, Name: sb.Name}, kindOf(sb)
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.of[key]; before == nil || before.kind != now {
		c.leave(key)
		c.join(key, now)
	}
}

// isGone takes in that a sandbox is gone.
func (c *Census) isGone(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	sb, ok := object.(*v1alpha1.Sandbox)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave(types.NamespacedName{Namespace: sb.Namespace, Name: sb.Name})
}

func (c *Census) join(key types.NamespacedName, k kind) {
	if c.counts[k] == nil {
		c.counts[k] = &count{kind: k}
	}
	c.counts[k].n++
	c.of[key] = c.counts[k]
}

func (c *Census) leave(key types.NamespacedName) {
	was := c.of[key]
	if was == nil {
		return
	}
	delete(c.of, key)
	if was.n--; was.n == 0 {
		delete(c.counts, was.kind)
	}
}

// read adds what was counted to the numbers of others.
func (c *Census) read(total map[kind]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, of := range c.counts {
		total[k] += of.n
	}
}
