// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
	"github.com/sandlot-io/sandlot/pkg/controllers/ownedobject"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/writepace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// The policy of a template that is gone is looked at again after firstRecheck while it is
// in use, then after ever longer pauses up to lastRecheck. Up to a recheckJitter of a pause
// is added, so that the policies of a cluster are not all looked at together.
const (
	firstRecheck  = 5 * time.Second
	lastRecheck   = time.Minute
	recheckJitter = 0.2
)

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache and writes. Required.
	Client client.Client
	// Reader asks the server itself. Required.
	Reader client.Reader
	// Clock decides when an object may be written again. Required.
	Clock clock.PassiveClock
	// Callers are whom the default lets in. Required.
	Callers callers.Callers
	// Recorder records events. Register takes the manager's if there is none yet.
	Recorder recorder.EventRecorder
	// Workers is how many templates are worked on at the same time.
	Workers int
}

// Controller reconciles the NetworkPolicies of templates.
type Controller struct {
	Options
	// rechecks paces the looks at policies that are left.
	rechecks workqueue.TypedRateLimiter[types.NamespacedName]
	pacer    *writepace.Pacer
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller.
func New(o Options) *Controller {
	return &Controller{
		Options:  o,
		rechecks: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRecheck, lastRecheck),
		pacer:    writepace.New(o.Clock),
	}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandboxtemplate-networkpolicy" }

// Register adds the controller to a manager, whose cache may be limited to the policies that
// were made here.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	if c.Recorder == nil {
		c.Recorder = mgr.GetEventRecorder(c.Name())
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(queue.Options(c.Workers)).
		For(&v1alpha1.SandboxTemplate{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: ownedobject.Changed})).
		Watches(&networkingv1.NetworkPolicy{}, handler.EnqueueRequestsFromMapFunc(templateOfPolicy)).
		Complete(c)
}

// templateOfPolicy returns the template of a policy, which may be gone: the one that owns
// it, or that its name tells.
func templateOfPolicy(_ context.Context, policy client.Object) []reconcile.Request {
	name := v1alpha1.TemplateOfNetworkPolicy(policy.GetName())
	if owner := metav1.GetControllerOfNoCopy(policy); owner != nil && v1alpha1.OwnerKind(owner) == "SandboxTemplate" {
		name = owner.Name
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: policy.GetNamespace(), Name: name}}}
}

// Reconcile makes the policy of one template what it should be.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	template := &v1alpha1.SandboxTemplate{}
	if err := c.Client.Get(ctx, req.NamespacedName, template, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return c.afterTemplate(ctx, req.NamespacedName)
		}
		return reconcile.Result{}, fmt.Errorf("getting SandboxTemplate %s: %w", req, err)
	}
	c.rechecks.Forget(req.NamespacedName)
	if template.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	policies := c.policies()
	if podtemplate.HasNetworkPolicy(template) {
		namespace := &corev1.Namespace{}
		if err := c.Reader.Get(ctx, client.ObjectKey{Name: template.Namespace}, namespace); err != nil {
			if apierrors.IsNotFound(err) {
				return reconcile.Result{}, nil // nothing can be made in it, and the template goes as well
			}
			return reconcile.Result{}, fmt.Errorf("getting namespace %s: %w", template.Namespace, err)
		}
		return policies.Ensure(ctx, template, policyOf(template, c.Callers, keptBy(namespace)))
	}
	name := v1alpha1.NetworkPolicyName(template.Name)
	return reconcile.Result{}, policies.Remove(ctx, c.removalReader(template), template, name, labelsOf(template.Name))
}

// removalReader returns where to look for a policy that is no longer wanted. The cache
// does not show one that lost its labels, so the server is asked, but not for templates
// that never changed and for the revisions of sets: they had none before.
func (c *Controller) removalReader(template *v1alpha1.SandboxTemplate) client.Reader {
	if template.Generation > 1 && !podtemplate.IsRevision(template) {
		return c.Reader
	}
	return c.Client
}

// afterTemplate releases the policy of a template that is gone, and looks again while it
// is left.
func (c *Controller) afterTemplate(ctx context.Context, template types.NamespacedName) (reconcile.Result, error) {
	left, err := c.release(ctx, template)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !left {
		c.rechecks.Forget(template)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: wait.Jitter(c.rechecks.When(template), recheckJitter)}, nil
}

// release deletes the policy of a template that is gone, once nothing is left that it is
// for, and reports whether it has to be looked at again. What cannot be found out keeps
// the policy.
func (c *Controller) release(ctx context.Context, template types.NamespacedName) (left bool, err error) {
	policy, key := &networkingv1.NetworkPolicy{}, client.ObjectKey{Namespace: template.Namespace, Name: v1alpha1.NetworkPolicyName(template.Name)}
	if err := c.Client.Get(ctx, key, policy); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("getting NetworkPolicy %s: %w", key, err)
	}
	if !isLeft(policy, template.Name) || policy.DeletionTimestamp != nil {
		return false, nil
	}
	if inUse, err := c.inUse(ctx, template); err != nil || inUse {
		return inUse, err
	}
	// A template of the name may be taking it over.
	asRead := client.Preconditions{UID: new(policy.UID), ResourceVersion: new(policy.ResourceVersion)}
	err = client.IgnoreNotFound(c.Client.Delete(ctx, policy, asRead))
	if apierrors.IsConflict(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting NetworkPolicy %s: %w", key, err)
	}
	return false, nil
}

// inUse reports whether there is anything that the policy of a template is for: sets that
// make sandboxes of that name, sandboxes, and pods. A cache may be behind, so what it does
// not know of the server is asked about.
func (c *Controller) inUse(ctx context.Context, template types.NamespacedName) (bool, error) {
	label := v1alpha1.TemplateLabel(template.Name)
	sets := &v1alpha1.SandboxSetList{}
	if err := c.Client.List(ctx, sets, client.InNamespace(template.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing SandboxSets: %w", err)
	}
	for i := range sets.Items {
		if v1alpha1.TemplateLabel(podtemplate.TemplateOf(&sets.Items[i])) == label {
			return true, nil
		}
	}
	one := []client.ListOption{client.InNamespace(template.Namespace), client.MatchingLabels{v1alpha1.LabelSandboxTemplate: label}, client.Limit(1)}
	for _, reader := range []client.Reader{c.Client, c.Reader} {
		for _, list := range []client.ObjectList{&v1alpha1.SandboxList{}, &corev1.PodList{}} {
			if err := reader.List(ctx, list, one...); err != nil {
				return false, fmt.Errorf("listing what the template had made, as %T: %w", list, err)
			}
			if meta.LenList(list) > 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

func (c *Controller) policies() *ownedobject.Reconciler[*networkingv1.NetworkPolicy] {
	return &ownedobject.Reconciler[*networkingv1.NetworkPolicy]{
		Client: c.Client, Reader: c.Reader, Pacer: c.pacer, Recorder: c.Recorder,
		Kind: "NetworkPolicy", OwnerKind: "SandboxTemplate",
		New:     func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
		Correct: correct,
	}
}
