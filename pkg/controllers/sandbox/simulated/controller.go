// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulated stands in for pods where there is no cluster: a set time after its
// creation a sandbox is Running and has an address, at which nothing listens unless Processes run there. It is
// paused at once, and runs again a set time after it is resumed, or given back to its pool. The API, the store and
// the allocation around it are the real ones.
package simulated

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/index"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// conflictDelay gives the cache time to show what a write collided with.
const conflictDelay = 50 * time.Millisecond

// Options say how sandboxes are simulated.
type Options struct {
	// Workers is how many sandboxes are started at the same time.
	Workers int
	// StartDelay is how long a sandbox takes from its creation to Running, and from
	// the end of a pause.
	StartDelay time.Duration
	// Processes run agent-runtimes in sandboxes; nil runs nothing.
	Processes Processes
}

// Controller simulates the start of sandboxes, and their pauses.
type Controller struct {
	client    client.Client
	lookup    *templates.Lookup
	templates *podtemplate.Cache
	clock     clock.PassiveClock
	options   Options
	runtimes  agentRuntimes
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller. lookup finds the templates that sandboxes refer to.
func New(c client.Client, lookup *templates.Lookup, clk clock.PassiveClock, o Options) *Controller {
	cache := podtemplate.NewCache()
	return &Controller{client: c, lookup: lookup, templates: cache, clock: clk, options: o, runtimes: agentRuntimes{o.Processes, cache, lookup}}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandbox-simulated" }

// Register adds the controller to a manager.
func (c *Controller) Register(ctx context.Context, mgr ctrl.Manager) error {
	users, err := index.NewByTemplate(ctx, mgr.GetCache(), &v1alpha1.Sandbox{})
	if err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(queue.Options(c.options.Workers)).
		Watches(&v1alpha1.Sandbox{}, c.events(), builder.WithPredicates(predicate.Funcs{CreateFunc: c.hasStep})).
		Watches(&v1alpha1.SandboxTemplate{}, users.Events(c.enqueueStarting))
	if c.options.Processes != nil {
		b = b.WatchesRawSource(source.Func(c.runtimes.enqueueEnded))
	}
	return b.Complete(c)
}

// hasStep reports whether there is anything to do for a sandbox that is seen for the first
// time, of which there may be very many.
func (c *Controller) hasStep(e event.CreateEvent) bool {
	sandbox, ok := e.Object.(*v1alpha1.Sandbox)
	return ok && (c.runtimes.mayBeLost(sandbox) || stepOf(sandbox, c.clock.Now()) != none)
}

// stepOf returns the next step of a sandbox. One whose process has ended has failed: Processes queue it.
func (c *Controller) stepOf(ctx context.Context, sandbox *v1alpha1.Sandbox) (step, error) {
	if isLost, err := c.runtimes.isLost(ctx, sandbox); isLost || err != nil {
		return lost, err
	}
	return stepOf(sandbox, c.clock.Now()), nil
}

// events queues a sandbox for its next step. A sandbox without a next step is not queued. An
// update that does not change the next step queues the sandbox only if its new generation is
// not observed. Claims write the observed generation themselves, so they queue nothing here.
//
// Times in objects have whole seconds only, so a delay counts from when the event was
// seen. For sandboxes that were there before this program, the time in the object has to
// do.
func (c *Controller) events() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue.Interface) {
			sandbox, ok := e.Object.(*v1alpha1.Sandbox)
			if !ok {
				return
			}
			switch step := stepOf(sandbox, c.clock.Now()); {
			case step == start && !e.IsInInitialList:
				q.AddAfter(queue.RequestFor(sandbox), c.options.StartDelay)
			case step == start:
				q.AddAfter(queue.RequestFor(sandbox), c.left(sandbox))
			case step == settingUp:
				q.AddAfter(queue.RequestFor(sandbox), claims.SetupAgainLeft(&sandbox.Status, c.clock.Now()))
			default: // hasStep leaves out those that have none
				q.Add(queue.RequestFor(sandbox))
			}
		},
		UpdateFunc: c.enqueueChanged,
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue.Interface) {
			if c.options.Processes != nil {
				q.Add(queue.RequestFor(e.Object))
			}
		},
	}
}

// enqueueChanged queues a sandbox whose next step has changed: see events.
func (c *Controller) enqueueChanged(_ context.Context, e event.UpdateEvent, q queue.Interface) {
	before, okBefore := e.ObjectOld.(*v1alpha1.Sandbox)
	after, okAfter := e.ObjectNew.(*v1alpha1.Sandbox)
	if !okBefore || !okAfter {
		return
	}
	now := c.clock.Now()
	next := stepOf(after, now)
	edited := before.Generation != after.Generation && !claims.IsObserved(&after.Status, after.Generation)
	if c.runtimes.changes(before, after) {
		q.Add(queue.RequestFor(after))
	}
	if next == stepOf(before, now) && before.UID == after.UID && !edited {
		return
	}
	switch next {
	case start:
		q.AddAfter(queue.RequestFor(after), c.options.StartDelay)
	case settingUp:
		q.AddAfter(queue.RequestFor(after), claims.SetupAgainLeft(&after.Status, c.clock.Now()))
	case pause, resume, resumed, resized, observe, clean, release:
		q.Add(queue.RequestFor(after))
	}
}

// Reconcile takes the next step of the sandbox, if it is time.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	sandbox := &v1alpha1.Sandbox{}
	if err := c.client.Get(ctx, req.NamespacedName, sandbox, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, c.runtimes.stopEnded(req.NamespacedName, nil)
		}
		return reconcile.Result{}, fmt.Errorf("getting Sandbox %s: %w", req, err)
	}
	if err := c.runtimes.stopEnded(req.NamespacedName, sandbox); err != nil {
		return reconcile.Result{}, err
	}
	step, err := c.stepOf(ctx, sandbox)
	if step == none || err != nil {
		return reconcile.Result{}, err
	}
	if step == start {
		if left := c.left(sandbox); left > 0 {
			return reconcile.Result{RequeueAfter: left}, nil
		}
	}
	if step == settingUp {
		if left := claims.SetupAgainLeft(&sandbox.Status, c.clock.Now()); left > 0 {
			return reconcile.Result{RequeueAfter: left}, nil
		}
	}
	err = c.do(ctx, step, sandbox)
	switch {
	case apierrors.IsConflict(err):
		// It was changed, or is another one of that name by now.
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("simulating Sandbox %s: %w", req, err)
	}
	return reconcile.Result{}, nil
}

// do takes a step.
func (c *Controller) do(ctx context.Context, s step, sandbox *v1alpha1.Sandbox) error {
	if s == release {
		return c.release(ctx, sandbox)
	}
	if s == resized {
		progress, err := c.resize(ctx, sandbox)
		if err != nil {
			return err
		}
		status, err := statusResized(sandbox, progress, c.clock.Now())
		if err != nil {
			return reconcile.TerminalError(err)
		}
		return c.patchStatus(ctx, sandbox, status)
	}
	var template *runtime.RawExtension
	if s == start {
		resolved, err := c.templates.ResolveSandbox(ctx, sandbox, c.lookup)
		if reason := templates.ReasonFor(err); reason != "" {
			return c.wait(ctx, sandbox, reason, err)
		}
		if err != nil {
			return err
		}
		template = resolved.Template
	}
	status, err := statusAfter(s, sandbox, template, c.clock.Now())
	if err != nil {
		return reconcile.TerminalError(err)
	}
	if err := c.runtimes.change(ctx, s, sandbox, &status); err != nil {
		return errors.Join(err, c.wait(ctx, sandbox, v1alpha1.ReasonStartContainerFailed, err))
	}
	return c.patchStatus(ctx, sandbox, status)
}

// wait writes to the status what the sandbox waits for. A change of its template queues
// the sandbox.
func (c *Controller) wait(ctx context.Context, sandbox *v1alpha1.Sandbox, reason string, why error) error {
	status, err := statusWaiting(sandbox, reason, why, c.clock.Now())
	if err != nil {
		return reconcile.TerminalError(err)
	}
	if equality.Semantic.DeepEqual(sandbox.Status, status) {
		return nil
	}
	return c.patchStatus(ctx, sandbox, status)
}

// left returns how long it takes at most until the sandbox is to run.
func (c *Controller) left(sandbox *v1alpha1.Sandbox) time.Duration {
	since := sandbox.CreationTimestamp
	if sandbox.Status.Phase == v1alpha1.SandboxRecycling {
		return recycle.StartedAt(sandbox).Add(c.options.StartDelay).Sub(c.clock.Now())
	}
	if resumed := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionResumed); resumed != nil {
		since = resumed.LastTransitionTime
	}
	return since.Add(c.options.StartDelay).Sub(c.clock.Now())
}

// release removes the finalizer that the controller of real pods has put on the sandbox,
// in the cluster that it was restored from. None is put on here.
func (c *Controller) release(ctx context.Context, sandbox *v1alpha1.Sandbox) error {
	before := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Namespace: sandbox.Namespace, Name: sandbox.Name,
		ResourceVersion: sandbox.ResourceVersion, Finalizers: sandbox.Finalizers,
	}}
	after := before.DeepCopy()
	controllerutil.RemoveFinalizer(after, v1alpha1.FinalizerSandbox)
	return c.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// patchStatus writes the status of the very version of the sandbox that was read. As a
// rule, only this controller writes to a sandbox that does not run, so conflicts are
// rare.
func (c *Controller) patchStatus(ctx context.Context, sandbox *v1alpha1.Sandbox, status v1alpha1.SandboxStatus) error {
	before := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: sandbox.Name, ResourceVersion: sandbox.ResourceVersion},
		Status:     sandbox.Status,
	}
	after := before.DeepCopy()
	after.Status = status
	return c.client.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// enqueueStarting queues a sandbox that may be waiting for a template that changed.
func (c *Controller) enqueueStarting(user client.Object, q queue.Interface) {
	if sandbox, ok := user.(*v1alpha1.Sandbox); ok && stepOf(sandbox, c.clock.Now()) == start {
		q.Add(queue.RequestFor(sandbox))
	}
}
