// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/index"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/quietperiod"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/nodes"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache and writes. Required.
	Client client.Client
	// Reader asks the server itself. Required.
	Reader client.Reader
	// Clock is the clock. Required.
	Clock clock.PassiveClock
	// Lookup finds the templates that sandboxes refer to. Required.
	Lookup *templates.Lookup
	// Recorder records events. Register takes the manager's if there is none yet.
	Recorder recorder.EventRecorder
	// Workers is how many sandboxes are worked on at the same time.
	Workers int
	// Namespace is that of the installation, which has the ConfigMap with the runtimes.
	Namespace string
	// KeepUnused keeps pods of unused sandboxes from being marked as safe to evict for the
	// cluster autoscaler, unless their template says so.
	KeepUnused bool
	// QuietPeriod is how long claims on a set must pause before the pods of those
	// that asked for no metadata get the label of their claim.
	QuietPeriod time.Duration
}

// Controller runs sandboxes as pods.
type Controller struct {
	client   client.Client
	reader   client.Reader
	clock    clock.PassiveClock
	workers  int
	recorder *report.Recorder
	writer   *writer
	labeler  *labeler
	changer  *changer
	resolver *resolver
	nodes    *knownNodes
	memory   memory
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller.
func New(o Options) *Controller {
	recorder := &report.Recorder{EventRecorder: o.Recorder, Kind: "Sandbox", Action: "Reconcile"}
	resolver := &resolver{lookup: o.Lookup, templates: podtemplate.NewCache(), injector: newInjector(o.Client, o.Namespace), keepUnused: o.KeepUnused}
	memory := newMemory(o.Clock)
	return &Controller{
		client:   o.Client,
		reader:   o.Reader,
		clock:    o.Clock,
		workers:  o.Workers,
		recorder: recorder,
		writer:   &writer{client: o.Client, recorder: recorder, superseded: memory.superseded, statusPacer: memory.statusPacer},
		labeler: &labeler{
			client: o.Client, clock: o.Clock, recorder: recorder,
			resolver: resolver, claimActivity: quietperiod.New(o.QuietPeriod),
		},
		changer:  &changer{client: o.Client, reader: o.Reader, resolver: resolver, resizes: memory.resizes},
		resolver: resolver,
		nodes:    &knownNodes{},
		memory:   memory,
	}
}

// NodeHandler returns what has to hear of nodes.
func (c *Controller) NodeHandler() nodes.Handler { return c.nodes }

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandbox-pod" }

// Register adds the controller to a manager, whose cache should be limited to
// CachedPods.
func (c *Controller) Register(ctx context.Context, mgr ctrl.Manager) error {
	users, err := index.NewByTemplate(ctx, mgr.GetCache(), &v1alpha1.Sandbox{})
	if err != nil {
		return err
	}
	if err := c.nodes.register(ctx, mgr.GetCache()); err != nil {
		return err
	}
	runtimes, err := c.resolver.injector.watch(ctx, mgr, c.client)
	if err != nil {
		return err
	}
	if c.recorder.EventRecorder == nil {
		c.recorder.EventRecorder = mgr.GetEventRecorder(c.Name())
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(queue.Options(c.workers)).
		Watches(&v1alpha1.Sandbox{}, c.sandboxEvents()).
		Watches(&corev1.Pod{}, c.podEvents()).
		Watches(&v1alpha1.SandboxTemplate{}, users.Events(enqueueStarting)).
		Watches(&corev1.PodTemplate{}, users.Events(enqueueStarting)).
		WatchesRawSource(runtimes).
		WatchesRawSource(c.nodes.source()).
		Complete(c)
}

// Reconcile plans the next step of one sandbox and its pod, and takes it.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	sandbox := &v1alpha1.Sandbox{}
	if err := c.client.Get(ctx, key, sandbox, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			c.memory.forget(key)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting Sandbox %s: %w", key, err)
	}
	if left := c.memory.superseded.remaining(key, sandbox.ResourceVersion); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if sandbox.DeletionTimestamp != nil {
		// Before anything that can fail for want of a template.
		o := &observation{sandbox: sandbox}
		return c.act(ctx, key, o, decide(o))
	}
	if sandbox.Spec.Template == nil && sandbox.Spec.TemplateRef == nil {
		// Validation refuses such a sandbox, so only one that is stored already can be like that.
		return reconcile.Result{}, nil
	}
	o, err := c.observe(ctx, key, sandbox)
	if err != nil {
		return reconcile.Result{}, err
	}
	p := decide(o)
	if p.action == actionReadFromServer {
		if p, err = c.readFromServer(ctx, key, o); err != nil {
			return reconcile.Result{}, err
		}
	}
	if p.action == actionInspect {
		if p, err = c.changer.inspect(ctx, key, o); err != nil {
			return reconcile.Result{}, err
		}
	} else {
		c.memory.resizes.end(key)
	}
	if p.status.Phase == v1alpha1.SandboxRunning {
		c.memory.createBackoff.forget(key)
		c.memory.deleteBackoff.forget(key)
	}
	return c.act(ctx, key, o, p)
}
