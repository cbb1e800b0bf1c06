// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package recycle

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// DefaultTimeout is how long it may take to recycle a sandbox by default.
const DefaultTimeout = time.Minute

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache and writes. Required.
	Client client.Client
	// Reader asks the server itself: a sandbox is deleted if its set is gone. Required.
	Reader client.Reader
	// Clock is the clock. Required.
	Clock clock.PassiveClock
	// Lookup finds the templates that sets refer to. Required.
	Lookup *templates.Lookup
	// Recorder records events, if Events says so. Register takes the manager's if there is
	// none yet.
	Recorder recorder.EventRecorder
	// Events says that there is an API for events.
	Events bool
	// Timeout is how long it may take to recycle a sandbox, until its new pod is ready.
	// Required.
	Timeout time.Duration
	// Workers is how many sandboxes are worked on at the same time.
	Workers int
}

// Controller recycles sandboxes, together with the controller of their pods.
type Controller struct {
	options   Options
	templates *podtemplate.Cache
	recorder  report.Recorder
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller.
func New(o Options) *Controller {
	return &Controller{
		options: o, templates: podtemplate.NewCache(),
		recorder: report.Recorder{EventRecorder: o.Recorder, Kind: "Sandbox", Action: "Recycle"},
	}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandbox-recycle" }

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	if c.options.Events && c.recorder.EventRecorder == nil {
		c.recorder.EventRecorder = mgr.GetEventRecorder(c.Name())
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(queue.Options(c.options.Workers)).
		For(&v1alpha1.Sandbox{}, builder.WithPredicates(concerned())).
		Complete(c)
}

// concerned lets through the sandboxes that are recycled, or to be recycled. All others
// cost nothing.
func concerned() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		sandbox, ok := object.(*v1alpha1.Sandbox)
		return ok && (sandbox.Status.Phase == v1alpha1.SandboxRecycling || isAskedFor(sandbox))
	})
}

// Reconcile plans the next step of one sandbox, and takes it.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	sandbox := &v1alpha1.Sandbox{}
	if err := c.options.Client.Get(ctx, req.NamespacedName, sandbox, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting Sandbox %s: %w", req, err)
	}
	o, err := c.observe(ctx, sandbox)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("recycling Sandbox %s: %w", req, err)
	}
	p := o.decide()
	if err := c.act(ctx, o, p); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return reconcile.Result{RequeueAfter: p.again}, nil // there is an event on its way
		}
		return reconcile.Result{}, fmt.Errorf("recycling Sandbox %s: %w", req, err)
	}
	return reconcile.Result{RequeueAfter: p.again}, nil
}

// observe finds out what a plan depends on. The time is up before anything is asked that
// may fail.
func (c *Controller) observe(ctx context.Context, sandbox *v1alpha1.Sandbox) (*observation, error) {
	o := &observation{sandbox: sandbox, timeout: c.options.Timeout, now: c.options.Clock.Now()}
	pool := sandbox.Labels[v1alpha1.LabelSandboxPool]
	if pool == "" || !needsSet(sandbox) || o.decide().reason == v1alpha1.ReasonRecyclingTimeout {
		return o, nil
	}
	set := &v1alpha1.SandboxSet{}
	err := c.options.Reader.Get(ctx, types.NamespacedName{Namespace: sandbox.Namespace, Name: pool}, set)
	if apierrors.IsNotFound(err) {
		return o, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting SandboxSet %s/%s: %w", sandbox.Namespace, pool, err)
	}
	o.set = set
	if o.member, o.noMember = c.templates.NewMember(ctx, set, c.options.Lookup); o.noMember != nil && templates.ReasonFor(o.noMember) == "" {
		return nil, o.noMember
	}
	return o, nil
}
