// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/index"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
)

// maxBackoff bounds how long a failing set waits for its next try.
const maxBackoff = time.Minute

// Options say how much the controller may do at a time.
type Options struct {
	// Workers is how many sets are reconciled at the same time.
	Workers int
	// RefillConcurrency is how many sandboxes of one set are created or deleted at
	// the same time, while no claims run.
	RefillConcurrency int
	// QuietPeriod is how long claims must pause before a refill begins, as long as
	// half of the pool is there. It is also how long changes of sandboxes are gathered
	// before the set is counted again.
	QuietPeriod time.Duration
	// Events are recorded on the sets.
	Events bool
	// Lookup finds the templates that sets refer to. Required.
	Lookup *templates.Lookup
}

// pool finds the sandboxes of a set in the cache.
type pool interface {
	// ControlledBy returns the sandboxes whose controller has this UID, as the
	// cache shows them. They are shared and not to be changed.
	ControlledBy(types.UID) ([]*v1alpha1.Sandbox, error)
}

// revisions finds the SandboxTemplates that hold revisions of a set in the cache.
type revisions interface {
	// ControlledBy returns those whose controller has this UID, as the cache shows
	// them. They are shared and not to be changed.
	ControlledBy(types.UID) ([]*v1alpha1.SandboxTemplate, error)
}

// users finds what refers to a template in the cache.
type users interface {
	// UsersOf returns the SandboxSets and Sandboxes that do, straight or through
	// other templates, as the cache shows them. They are shared and not to be changed.
	UsersOf(kind, namespace, name string) ([]client.Object, error)
}

// growing finds sets that claims may make grow in the cache.
type growing interface {
	// Growing returns those with a burst that are of this name or refer to the
	// SandboxTemplate of this name. They are shared and not to be changed.
	Growing(namespace, name string) ([]*v1alpha1.SandboxSet, error)
}

// usersOfAll joins what indexes of several kinds find.
type usersOfAll []users

func (all usersOfAll) UsersOf(kind, namespace, name string) ([]client.Object, error) {
	var found []client.Object
	for _, each := range all {
		objects, err := each.UsersOf(kind, namespace, name)
		if err != nil {
			return nil, err
		}
		found = append(found, objects...)
	}
	return found, nil
}

// Controller keeps the pools of SandboxSets at their size.
type Controller struct {
	client       client.Client
	clock        clock.PassiveClock
	options      Options
	pool         pool
	revisions    revisions
	users        users
	growing      growing
	unheld       *unheld
	accepted     *accepted
	resolved     *resolved
	expectations *expectations
	bursts       *bursts
	waiting      *waiting
	aheads       *aheads
	failures     *failures
	shortages    *shortages
	starts       *starts
	recorder     recorder.EventRecorder // nil where there are no events
	// busy is how many sets are being worked on.
	busy atomic.Int32
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller that reads and writes through c.
func New(c client.Client, clk clock.PassiveClock, o Options) *Controller {
	return &Controller{
		client:       c,
		clock:        clk,
		options:      o,
		unheld:       newUnheld(),
		accepted:     newAccepted(),
		resolved:     newResolved(),
		expectations: newExpectations(clk),
		bursts:       newBursts(o.QuietPeriod),
		waiting:      newWaiting(),
		aheads:       newAheads(),
		failures:     newFailures(),
		shortages:    newShortages(replenishDuration),
		starts:       newStarts(startDuration),
	}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandboxset-replenish" }

// Register adds the controller to a manager.
func (c *Controller) Register(ctx context.Context, mgr ctrl.Manager) error {
	pool, err := index.NewByController(ctx, mgr.GetCache(), &v1alpha1.Sandbox{})
	if err != nil {
		return err
	}
	revisions, err := index.NewByController(ctx, mgr.GetCache(), &v1alpha1.SandboxTemplate{})
	if err != nil {
		return err
	}
	users, err := index.NewByTemplate(ctx, mgr.GetCache(), &v1alpha1.SandboxSet{})
	if err != nil {
		return err
	}
	sandboxes, err := index.NewByTemplate(ctx, mgr.GetCache(), &v1alpha1.Sandbox{})
	if err != nil {
		return err
	}
	growing, err := growingIn(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	c.pool, c.revisions, c.users, c.growing = pool, revisions, usersOfAll{users, sandboxes}, growing
	if c.options.Events {
		c.recorder = mgr.GetEventRecorder(c.Name())
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: c.options.Workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				5*time.Millisecond, maxBackoff),
		}).
		Watches(&v1alpha1.SandboxSet{}, c.setEvents()).
		Watches(&v1alpha1.Sandbox{}, c.sandboxEvents()).
		Watches(&v1alpha1.SandboxClaim{}, c.claimEvents()).
		Watches(&v1alpha1.SandboxTemplate{}, users.Events(wakeUser)).
		Watches(&v1alpha1.SandboxTemplate{}, c.revisionEvents())
	if c.options.Lookup.Cluster {
		b = b.Watches(&corev1.PodTemplate{}, users.Events(wakeUser))
	}
	return b.Complete(c)
}

// Reconcile brings one pool nearer to its size.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c.busy.Add(1)
	defer c.busy.Add(-1)
	key := req.NamespacedName
	set := &v1alpha1.SandboxSet{}
	if err := c.client.Get(ctx, key, set, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			c.resolved.forget(key)
			c.unheld.forget(key)
			c.accepted.forget(key)
			c.expectations.forget(key)
			c.bursts.forget(key)
			c.aheads.forget(key)
			c.failures.forget(key)
			c.shortages.forget(key)
			hidePool(key)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting SandboxSet %s: %w", key, err)
	}
	if set.DeletionTimestamp != nil {
		return c.end(ctx, set)
	}
	now := c.clock.Now()
	// A changed spec does not wait: a user does.
	if !changed(set) {
		if wait := c.bursts.hold(key, now); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	o, err := c.observe(ctx, set, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	census := o.census()
	c.bursts.counted(key, len(census.available), o.taken, c.clock.Since(now))
	showShortage(key, c.shortages.looked(key, len(census.available), o.replicas(), now))
	p, err := o.plan(&census)
	if err != nil {
		// The server refuses such values; trying again would not mend them.
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("SandboxSet %s: %w", key, err))
	}
	pause := c.failures.look(key, o.revision, census.outcome, now)
	if pause > 0 {
		p.create = 0
	}
	wait := c.bursts.giveWay(key, o.target(), now)
	if wait > 0 && !changed(set) {
		p.create, p.remove = 0, nil
	}
	finished, workErr := c.act(ctx, o, p)
	if p.create > 0 || len(p.remove) > 0 {
		census = o.census() // with what was done
	}
	workErr = errors.Join(workErr, o.materializeErr, c.collect(ctx, o))
	showPool(key, o, &census)
	wrote, statusErr := c.writeStatus(ctx, o, o.status(&census, troubleOf(workErr, pause)))
	if err := errors.Join(workErr, statusErr); err != nil {
		return reconcile.Result{}, err
	}
	again := c.again(o, p, finished, wrote, max(pause, wait))
	return reconcile.Result{RequeueAfter: sooner(sooner(again, o.retry), o.ahead.over)}, nil
}

// sooner is the earlier of two times to look again; 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// changed tells whether a user has changed the spec since the last look at the pool.
func changed(set *v1alpha1.SandboxSet) bool {
	return set.Generation != set.Status.ObservedGeneration
}

// observe takes in what is there. The expectations, and what claims have taken, come
// before the cache, see there.
func (c *Controller) observe(ctx context.Context, set *v1alpha1.SandboxSet, now time.Time) (*observation, error) {
	goal, err := c.goal(ctx, set)
	if err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(set)
	wanted, again, err := c.waitedFor(ctx, set, now)
	if err != nil {
		return nil, err
	}
	goal.retry = sooner(goal.retry, again)
	creates, deletes := c.expectations.snapshot(key)
	taken := c.bursts.taken(key)
	sandboxes, err := c.pool.ControlledBy(set.UID)
	if err != nil {
		return nil, err
	}
	return &observation{
		set: set, goal: goal, sandboxes: sandboxes,
		said: c.accepted.of(set, goal.revision), cluster: c.options.Lookup.Cluster,
		creates: creates, deletes: deletes, taken: taken,
		ahead: c.aheads.look(key, set.Generation, wanted, now), now: now,
	}, nil
}

// again returns after what time to reconcile even if no event comes; 0 is never.
func (c *Controller) again(o *observation, p plan, finished, wrote bool, pause time.Duration) time.Duration {
	switch {
	case !finished:
		return time.Millisecond
	case !wrote, p.more && p.create > 0:
		// As long as those that wait are looked at, the next are due before the changes
		// of a large pool are gathered.
		return max(c.options.QuietPeriod, time.Millisecond)
	case pause > 0:
		return pause
	case len(o.creates) > 0 || len(o.deletes) > 0:
		// Events will come, unless the cache has missed them: then the expectations
		// have run out by then.
		return expectationTTL + time.Second
	default:
		return 0
	}
}
