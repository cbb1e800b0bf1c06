// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimepolicy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
	"github.com/sandlot-io/sandlot/pkg/controllers/ownedobject"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/controllers/writepace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache, which has the pods of sandboxes and the NetworkPolicies
	// that were made here, and writes. Required.
	Client client.Client
	// Reader asks the server itself. Required.
	Reader client.Reader
	// Lookup finds the templates that sandboxes refer to. Required.
	Lookup podtemplate.Lookup
	// Clock decides when a policy may be written again. Required.
	Clock clock.PassiveClock
	// Callers are those that the policies let in, apart from the gateway. Required.
	Callers callers.Callers
	// Recorder records events. Register takes the manager's if there is none yet.
	Recorder recorder.EventRecorder
	// Workers is how many namespaces are worked on at the same time.
	Workers int
}

// Controller reconciles the NetworkPolicies for agent-runtimes, one for each namespace.
type Controller struct {
	Options
	sandboxes *sandboxes
	templates *podtemplate.Cache
	pacer     *writepace.Pacer
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller.
func New(o Options) *Controller {
	return &Controller{Options: o, sandboxes: newSandboxes(), templates: podtemplate.NewCache(), pacer: writepace.New(o.Clock)}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandbox-runtimepolicy" }

// Register adds the controller to a manager. It gets no namespaces before it knows of all
// sandboxes that the cache shows.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	if c.Recorder == nil {
		c.Recorder = mgr.GetEventRecorder(c.Name())
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(queue.Options(c.Workers)).
		Watches(&v1alpha1.Sandbox{}, c.sandboxEvents()).
		Watches(&corev1.Pod{}, podEvents()).
		Watches(&networkingv1.NetworkPolicy{}, handler.EnqueueRequestsFromMapFunc(namespaceOfPolicy)).
		Complete(c)
}

// Reconcile makes the policy of one namespace what it should be.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	needed, err := c.isNeeded(ctx, req.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: req.Namespace}}
	if needed {
		return c.policies().Ensure(ctx, namespace, policyOf(req.Namespace, c.Callers))
	}
	return c.remove(ctx, namespace, req.NamespacedName)
}

// remove deletes the policy of a namespace. The cache may be old, and pods without the policy take
// commands from everyone, so the server is asked for pods first.
func (c *Controller) remove(ctx context.Context, namespace *corev1.Namespace, key client.ObjectKey) (reconcile.Result, error) {
	err := c.Client.Get(ctx, key, &networkingv1.NetworkPolicy{}, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("getting NetworkPolicy %s: %w", key, err)
	}
	if err == nil {
		if has, err := c.hasPods(ctx, c.Reader, key.Namespace); has || err != nil {
			return reconcile.Result{RequeueAfter: grace}, err
		}
	}
	return reconcile.Result{}, c.policies().Remove(ctx, c.Client, namespace, key.Name, labelsOfPolicy())
}

// isNeeded reports whether a namespace has a sandbox with an agent-runtime, paused or not, or
// a pod of one.
func (c *Controller) isNeeded(ctx context.Context, namespace string) (bool, error) {
	has, examples := c.sandboxes.in(namespace)
	if has {
		return true, nil
	}
	if has, err := c.hasPods(ctx, c.Client, namespace); has || err != nil {
		return has, err
	}
	for _, example := range examples {
		if brings, err := c.bringsRuntime(ctx, example); brings || err != nil {
			return brings, err
		}
	}
	return false, nil
}

// hasPods reports whether a namespace has a pod of a sandbox with an agent-runtime.
func (c *Controller) hasPods(ctx context.Context, reader client.Reader, namespace string) (bool, error) {
	pods, ofSandboxes := &corev1.PodList{}, client.MatchingLabels{
		v1alpha1.LabelAgentRuntime: v1alpha1.AgentRuntimeTrue, v1alpha1.LabelCreatedBy: v1alpha1.CreatedBySandbox,
	}
	err := reader.List(ctx, pods, client.InNamespace(namespace), ofSandboxes, client.Limit(1), client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("listing the pods of namespace %s with an agent-runtime: %w", namespace, err)
	}
	return len(pods.Items) > 0, nil
}

// bringsRuntime reports whether the template that a sandbox refers to brings an agent-runtime.
// One that cannot be used may do so when it is mended.
func (c *Controller) bringsRuntime(ctx context.Context, sandbox *v1alpha1.Sandbox) (bool, error) {
	resolved, err := c.templates.ResolveSandbox(ctx, sandbox, c.Lookup)
	if err != nil {
		if templates.ReasonFor(err) != "" {
			return true, nil
		}
		return false, fmt.Errorf("looking for the agent-runtime of Sandbox %s: %w", client.ObjectKeyFromObject(sandbox), err)
	}
	return c.templates.BringsAgentRuntime(resolved.Template), nil
}

func (c *Controller) policies() *ownedobject.Reconciler[*networkingv1.NetworkPolicy] {
	return &ownedobject.Reconciler[*networkingv1.NetworkPolicy]{
		Client: c.Client, Reader: c.Reader, Pacer: c.pacer, Recorder: c.Recorder,
		Kind: "NetworkPolicy", OwnerKind: ownedobject.OwnerKindNamespace,
		New:     func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
		Correct: correct,
	}
}

func requestFor(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: v1alpha1.AgentRuntimesPolicy}}
}
