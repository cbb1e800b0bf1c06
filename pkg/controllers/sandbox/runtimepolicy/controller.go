// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimepolicy

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// recheck is how long a namespace is left alone whose policy belongs to somebody else or is
// refused: pods that come and go there cost no requests. It is also for how long a policy
// stays after the last pod, because a sandbox that is resumed or replaced has another soon.
const recheck = time.Minute

// reasonNameTaken is the reason of the event on a policy of somebody else.
const reasonNameTaken = "NetworkPolicyNameTaken"

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache, which has the pods of sandboxes and the NetworkPolicies
	// of callers.CachedPolicies, and writes. Required.
	Client client.Client
	// Reader asks the server itself. Required.
	Reader client.Reader
	// Clock tells when a namespace may be looked at again. Required.
	Clock clock.PassiveClock
	// Callers are those that the policies let in. Required.
	Callers callers.Callers
	// Recorder records events. Register takes the manager's if there is none yet.
	Recorder recorder.EventRecorder
	// Workers is how many namespaces are worked on at the same time.
	Workers int
}

// Controller reconciles the NetworkPolicies for pods with an agent-runtime, one for each
// namespace.
type Controller struct {
	Options
	held holds
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller.
func New(o Options) *Controller { return &Controller{Options: o} }

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandbox-runtimepolicy" }

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	if c.Recorder == nil {
		c.Recorder = mgr.GetEventRecorder(c.Name())
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(queue.Options[reconcile.Request](c.Workers)).
		Watches(&corev1.Pod{}, podEvents()).
		Watches(&networkingv1.NetworkPolicy{}, handler.EnqueueRequestsFromMapFunc(namespaceOfPolicy)).
		Complete(c)
}

// Reconcile makes the policy of one namespace what it should be.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	current := &networkingv1.NetworkPolicy{}
	err := c.Client.Get(ctx, req.NamespacedName, current, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("getting NetworkPolicy %s: %w", req, err)
	}
	exists := err == nil
	needed, err := hasPods(ctx, c.Client, req.Namespace)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !needed:
		c.held.forget(req.Namespace)
		if !exists || !isOurs(current) || current.DeletionTimestamp != nil {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, c.remove(ctx, current)
	case exists && current.DeletionTimestamp != nil:
		return reconcile.Result{}, nil // its end brings an event, however long a finalizer keeps it
	case exists && isOurs(current):
		c.held.forget(req.Namespace)
		return reconcile.Result{}, c.correct(ctx, current)
	}
	if left := c.held.left(req.Namespace, c.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	return c.create(ctx, req.NamespacedName)
}

// create creates the policy of a namespace, and holds the namespace where that cannot be
// done.
func (c *Controller) create(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	err := c.Client.Create(ctx, policyOf(key.Namespace, c.Callers))
	switch {
	case err == nil, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsAlreadyExists(err):
		return c.reportTaken(ctx, key)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		// Quotas and policies change without an event. The pods run all the same.
		c.held.hold(key.Namespace, c.Clock.Now().Add(recheck))
	}
	return reconcile.Result{}, fmt.Errorf("creating NetworkPolicy %s: %w", key, err)
}

// reportTaken looks at the policy that has the name, and records an event on it, once, if
// it belongs to somebody else.
func (c *Controller) reportTaken(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	policy := &networkingv1.NetworkPolicy{}
	switch err := c.Reader.Get(ctx, key, policy); {
	case apierrors.IsNotFound(err), err == nil && isOurs(policy):
		return reconcile.Result{RequeueAfter: time.Second}, nil // the cache is about to show it
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("getting NetworkPolicy %s: %w", key, err)
	}
	c.held.hold(key.Namespace, c.Clock.Now().Add(recheck))
	if c.held.reports(key.Namespace, policy.UID) && c.Recorder != nil {
		c.Recorder.Eventf(policy, nil, corev1.EventTypeWarning, reasonNameTaken, "Reconcile",
			"The name is that of the policy which lets only Sandlot's programs connect to pods with an agent-runtime. "+
				"This one was not made by sandlot-controller-manager and is left as it is: rename it to have the other one")
	}
	return reconcile.Result{RequeueAfter: recheck}, nil
}

// correct reverts changes by users of the rules.
func (c *Controller) correct(ctx context.Context, current *networkingv1.NetworkPolicy) error {
	corrected := correct(current, policyOf(current.Namespace, c.Callers))
	if corrected == nil {
		return nil
	}
	err := c.Client.Patch(ctx, corrected, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("correcting NetworkPolicy %s: %w", client.ObjectKeyFromObject(current), err)
	}
	return nil
}

// remove deletes a policy if the server has no pod either that it is for.
func (c *Controller) remove(ctx context.Context, policy *networkingv1.NetworkPolicy) error {
	needed, err := hasPods(ctx, c.Reader, policy.Namespace)
	if err != nil || needed {
		return err // the cache is about to show the pod
	}
	asRead := client.Preconditions{UID: new(policy.UID), ResourceVersion: new(policy.ResourceVersion)}
	if err := c.Client.Delete(ctx, policy, asRead); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NetworkPolicy %s: %w", client.ObjectKeyFromObject(policy), err)
	}
	return nil
}

// hasPods reports whether a namespace has a pod that the policy is for.
func hasPods(ctx context.Context, reader client.Reader, namespace string) (bool, error) {
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels(selected), client.Limit(1), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the pods of namespace %s with an agent-runtime: %w", namespace, err)
	}
	return len(pods.Items) > 0, nil
}

func requestFor(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: v1alpha1.AgentRuntimesPolicy}}
}
