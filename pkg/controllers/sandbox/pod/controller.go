// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
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
	"github.com/sandlot-io/sandlot/pkg/controllers/quietperiod"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// maxBackoff bounds how long a failed write waits for its next try.
const maxBackoff = time.Minute

// fieldOwner is the manager of the fields of pods that this controller writes.
const fieldOwner = client.FieldOwner("sandlot-controller-manager")

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache and writes. Required.
	Client client.Client
	// Reader asks the server itself. Required.
	Reader client.Reader
	// Clock tells the time. Required.
	Clock clock.PassiveClock
	// Lookup finds the templates that sandboxes refer to. Required.
	Lookup *templates.Lookup
	// Recorder records events. Register takes the manager's if there is none yet.
	Recorder recorder.EventRecorder
	// Workers is how many sandboxes are worked on at the same time.
	Workers int
	// Namespace is that of the installation, which has the ConfigMap with the runtimes.
	Namespace string
	// QuietPeriod is how long claims on a set must pause before the pods of those
	// that asked for no metadata get the label of their claim.
	QuietPeriod time.Duration
}

// Controller runs sandboxes as pods.
type Controller struct {
	client       client.Client
	reader       client.Reader
	clock        clock.PassiveClock
	recorder     recorder.EventRecorder
	lookup       *templates.Lookup
	templates    *podtemplate.Cache
	workers      int
	expectations *expectations
	superseded   *superseded
	creates      *backoff
	removes      *backoff // of pods whose deletion was refused
	lull         *quietperiod.Tracker
	injector     *injector
	resizes      *resizes
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller.
func New(o Options) *Controller {
	return &Controller{
		client:       o.Client,
		reader:       o.Reader,
		clock:        o.Clock,
		recorder:     o.Recorder,
		lookup:       o.Lookup,
		templates:    podtemplate.NewCache(),
		workers:      o.Workers,
		expectations: newExpectations(o.Clock),
		superseded:   newSuperseded(o.Clock),
		creates:      newBackoff(o.Clock),
		removes:      newBackoff(o.Clock),
		lull:         quietperiod.New(o.QuietPeriod),
		injector:     newInjector(o.Client, o.Namespace),
		resizes:      newResizes(),
	}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandbox-pod" }

// Register adds the controller to a manager, whose cache should be limited to
// CachedPods.
func (c *Controller) Register(ctx context.Context, mgr ctrl.Manager) error {
	users, err := index.NewByTemplate(ctx, mgr.GetCache(), &v1alpha1.Sandbox{})
	if err != nil {
		return err
	}
	runtimes, err := c.watchRuntimes(ctx, mgr)
	if err != nil {
		return err
	}
	if c.recorder == nil {
		c.recorder = mgr.GetEventRecorder(c.Name())
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: c.workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				5*time.Millisecond, maxBackoff),
		}).
		Watches(&v1alpha1.Sandbox{}, c.sandboxEvents()).
		Watches(&corev1.Pod{}, c.podEvents()).
		Watches(&v1alpha1.SandboxTemplate{}, users.Events(wakeUser)).
		Watches(&corev1.PodTemplate{}, users.Events(wakeUser)).
		WatchesRawSource(runtimes).
		Complete(c)
}

// Reconcile brings one sandbox and its pod nearer to what they should be.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	sandbox := &v1alpha1.Sandbox{}
	if err := c.client.Get(ctx, key, sandbox, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			c.forget(key)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting Sandbox %s: %w", key, err)
	}
	if left := c.superseded.left(key, sandbox.ResourceVersion); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if sandbox.DeletionTimestamp != nil {
		// Before anything that a template could be at fault for.
		o := &observation{sandbox: sandbox}
		return c.act(ctx, key, o, decide(o))
	}
	if sandbox.Spec.Template == nil && sandbox.Spec.TemplateRef == nil {
		return reconcile.Result{}, nil
	}
	o, err := c.observe(ctx, key, sandbox)
	if err != nil {
		return reconcile.Result{}, err
	}
	p := decide(o)
	if p.action == ask {
		if p, err = c.ask(ctx, key, o); err != nil {
			return reconcile.Result{}, err
		}
	}
	if p.action == inspect {
		if p, err = c.inspect(ctx, key, o); err != nil {
			return reconcile.Result{}, err
		}
	} else {
		c.resizes.end(key)
	}
	if p.status.Phase == v1alpha1.SandboxRunning {
		c.creates.forget(key)
		c.removes.forget(key)
	}
	return c.act(ctx, key, o, p)
}

// forget drops what is remembered of a sandbox that is gone. Another one of its
// name begins anew.
func (c *Controller) forget(key types.NamespacedName) {
	c.expectations.forget(key)
	c.superseded.forget(key)
	c.creates.forget(key)
	c.removes.forget(key)
	c.resizes.end(key)
}

// observe takes in what the cache shows. What is expected of the cache comes
// first: a pod that arrives in between is then seen twice and not missed.
func (c *Controller) observe(ctx context.Context, key types.NamespacedName, sandbox *v1alpha1.Sandbox) (*observation, error) {
	revision, err := podtemplate.SandboxRevision(sandbox)
	if err != nil {
		return nil, reconcile.TerminalError(err)
	}
	o := &observation{
		sandbox:  sandbox,
		revision: revision,
		expected: c.expectations.left(key) > 0,
		held:     c.creates.left(key) > 0,
		now:      c.clock.Now(),
	}
	o.pod, err = getPod(ctx, c.client, key, client.UnsafeDisableDeepCopy)
	return o, err
}

// ask lets the server say what pod there is, and plans with that.
func (c *Controller) ask(ctx context.Context, key types.NamespacedName, o *observation) (plan, error) {
	pod, err := getPod(ctx, c.reader, key)
	if err != nil {
		return plan{}, err
	}
	if pod != nil {
		pod = trim(pod)
	}
	o.pod, o.sure, o.expected = pod, true, false
	return decide(o), nil
}

// getPod returns the pod of a name, or nil.
func getPod(ctx context.Context, reader client.Reader, key types.NamespacedName, opts ...client.GetOption) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := reader.Get(ctx, key, pod, opts...)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting Pod %s: %w", key, err)
	}
	return pod, nil
}
