// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/ownedobject"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/controllers/writepace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache and writes. Required.
	Client client.Client
	// Reader asks the server itself. Required.
	Reader client.Reader
	// Clock decides when an object may be written again. Required.
	Clock clock.PassiveClock
	// Lookup finds the templates that sandboxes refer to. Required.
	Lookup *templates.Lookup
	// Recorder records events. Register takes the manager's if there is none yet.
	Recorder recorder.EventRecorder
	// Workers is how many sandboxes are worked on at the same time.
	Workers int
	// ClusterDomain is the domain of Services in the cluster. Empty is DefaultClusterDomain.
	ClusterDomain string
}

// Controller reconciles the Services of sandboxes.
type Controller struct {
	Options
	templates *podtemplate.Cache
	pacer     *writepace.Pacer
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller.
func New(o Options) *Controller {
	return &Controller{Options: o, templates: podtemplate.NewCache(), pacer: writepace.New(o.Clock)}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandbox-service" }

// Register adds the controller to a manager, whose cache should be limited to
// CachedServices.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	if c.Recorder == nil {
		c.Recorder = mgr.GetEventRecorder(c.Name())
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(queue.Options(c.Workers)).
		For(&v1alpha1.Sandbox{}, builder.WithPredicates(concerned())).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(sandboxOf)).
		Complete(c)
}

// sandboxOf returns the sandbox that controls a Service, whichever API its reference is
// written in.
func sandboxOf(_ context.Context, service client.Object) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(service)
	if owner == nil || v1alpha1.OwnerKind(owner) != "Sandbox" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: service.GetNamespace(), Name: owner.Name}}}
}

// concerned lets through the sandboxes with a spec.service, and those that are being
// recycled or were. Most are neither.
func concerned() predicate.Predicate {
	hasService := func(object client.Object) bool {
		sandbox, ok := object.(*v1alpha1.Sandbox)
		return ok && (sandbox.Spec.Service != nil || isRecycled(sandbox)) && sandbox.DeletionTimestamp == nil
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return hasService(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return (ownedobject.Changed(e) || recycles(e) || expires(e)) && hasService(e.ObjectNew)
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// isRecycled reports whether a sandbox is being recycled, or is in its pool again. It keeps
// no Service from before that which it does not want, whenever that is seen.
func isRecycled(sandbox *v1alpha1.Sandbox) bool {
	return isRecycling(sandbox) || sandbox.Status.RecycledCount > 0 && v1alpha1.PoolOf(sandbox) != nil
}

func isRecycling(sandbox *v1alpha1.Sandbox) bool {
	return sandbox.Status.Phase == v1alpha1.SandboxRecycling
}

// recycles reports whether an update begins to recycle a sandbox, or ends it.
func recycles(e event.UpdateEvent) bool {
	before, okBefore := e.ObjectOld.(*v1alpha1.Sandbox)
	after, okAfter := e.ObjectNew.(*v1alpha1.Sandbox)
	return okBefore && okAfter && isRecycled(after) &&
		(!isRecycled(before) || before.Status.RecycledCount != after.Status.RecycledCount)
}

// Reconcile makes the Service of one sandbox what it should be.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	sandbox := &v1alpha1.Sandbox{}
	if err := c.Client.Get(ctx, req.NamespacedName, sandbox, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // the garbage collector deletes its Service
		}
		return reconcile.Result{}, fmt.Errorf("getting Sandbox %s: %w", req, err)
	}
	switch wanted := sandbox.Spec.Service; {
	case sandbox.DeletionTimestamp != nil:
		return reconcile.Result{}, nil
	case wanted == nil && !isRecycled(sandbox) && !v1alpha1.SandboxExpired(sandbox):
		return c.tell(ctx, sandbox)
	case wanted == nil, !*wanted, v1alpha1.SandboxExpired(sandbox):
		if err := c.services().Remove(ctx, c.removalReader(sandbox), sandbox, sandbox.Name, labelsOf(sandbox)); err != nil {
			return reconcile.Result{}, err
		}
		return c.tell(ctx, sandbox)
	}
	if err := v1alpha1.CheckServiceName(sandbox.Spec.Service, sandbox.Name); err != nil {
		c.services().Warn(sandbox, "Failed", err.Error())
		return reconcile.Result{}, nil
	}
	result, err := c.ensure(ctx, sandbox)
	if err != nil {
		return reconcile.Result{}, err
	}
	told, err := c.tell(ctx, sandbox)
	result.RequeueAfter = queue.MinRequeue(result.RequeueAfter, told.RequeueAfter)
	return result, err
}

// removalReader returns where to look for a Service that is no longer wanted. The cache
// does not show one that lost its labels, so the server is asked, but not for the many
// sandboxes of a pool: they had none before, or lost it when they were recycled.
func (c *Controller) removalReader(sandbox *v1alpha1.Sandbox) client.Reader {
	if v1alpha1.PoolOf(sandbox) != nil && !isRecycling(sandbox) {
		return c.Client
	}
	return c.Reader
}

// ensure creates the Service, or corrects the current one.
func (c *Controller) ensure(ctx context.Context, sandbox *v1alpha1.Sandbox) (reconcile.Result, error) {
	resolved, err := c.templates.ResolveSandbox(ctx, sandbox, c.Lookup)
	if err != nil {
		if templates.ReasonFor(err) != "" { // the condition Ready of the sandbox says why
			return reconcile.Result{RequeueAfter: ownedobject.Recheck}, nil
		}
		return reconcile.Result{}, err
	}
	template, err := v1alpha1.PodTemplate(resolved.Template)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	return c.services().Ensure(ctx, sandbox, serviceOf(sandbox, &template.Spec))
}

func (c *Controller) services() *ownedobject.Reconciler[*corev1.Service] {
	return &ownedobject.Reconciler[*corev1.Service]{
		Client: c.Client, Reader: c.Reader, Pacer: c.pacer, Recorder: c.Recorder,
		Kind: "Service", OwnerKind: "Sandbox",
		New:     func() *corev1.Service { return &corev1.Service{} },
		Correct: correct, MustReplace: mustReplace,
	}
}
