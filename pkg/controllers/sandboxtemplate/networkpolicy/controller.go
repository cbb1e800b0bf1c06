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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/ownedobject"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// recheckUse is how often to look whether the policy of a template that is gone is still
// in use.
const recheckUse = 10 * time.Second

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache and writes. Required.
	Client client.Client
	// Reader asks the server itself. Required.
	Reader client.Reader
	// Namespace is that of the installation. Required.
	Namespace string
	// Recorder records events. Register takes the manager's if there is none yet.
	Recorder recorder.EventRecorder
	// Workers is how many templates are worked on at the same time.
	Workers int
}

// Controller reconciles the NetworkPolicies of templates.
type Controller struct {
	Options
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller.
func New(o Options) *Controller { return &Controller{o} }

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandboxtemplate-networkpolicy" }

// Register adds the controller to a manager, whose cache should be limited to
// CachedPolicies.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	if c.Recorder == nil {
		c.Recorder = mgr.GetEventRecorder(c.Name())
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(queue.Options[reconcile.Request](c.Workers)).
		For(&v1alpha1.SandboxTemplate{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: ownedobject.Changed})).
		Watches(&networkingv1.NetworkPolicy{}, handler.EnqueueRequestsFromMapFunc(templateOfPolicy)).
		Complete(c)
}

// templateOfPolicy returns the template of a policy, which may be gone: the one that owns
// it, or that its name tells.
func templateOfPolicy(_ context.Context, policy client.Object) []reconcile.Request {
	name := v1alpha1.TemplateOfNetworkPolicy(policy.GetName())
	if owner := metav1.GetControllerOfNoCopy(policy); owner != nil && owner.Kind == "SandboxTemplate" {
		name = owner.Name
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: policy.GetNamespace(), Name: name}}}
}

// Reconcile makes the policy of one template what it should be.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	template := &v1alpha1.SandboxTemplate{}
	if err := c.Client.Get(ctx, req.NamespacedName, template, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return c.release(ctx, req.NamespacedName)
		}
		return reconcile.Result{}, fmt.Errorf("getting SandboxTemplate %s: %w", req, err)
	}
	if template.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	policies := c.policies()
	if podtemplate.HasNetworkPolicy(template) {
		namespace := &corev1.Namespace{}
		if err := c.Reader.Get(ctx, client.ObjectKey{Name: template.Namespace}, namespace); err != nil {
			return reconcile.Result{}, fmt.Errorf("getting namespace %s: %w", template.Namespace, client.IgnoreNotFound(err))
		}
		return policies.Ensure(ctx, template, policyOf(template, c.Namespace, keptBy(namespace)))
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

// release deletes the policy of a template that is gone, once nothing is left that it is
// for, and looks again until then. What cannot be found out keeps the policy.
func (c *Controller) release(ctx context.Context, template types.NamespacedName) (reconcile.Result, error) {
	policy, key := &networkingv1.NetworkPolicy{}, client.ObjectKey{Namespace: template.Namespace, Name: v1alpha1.NetworkPolicyName(template.Name)}
	if err := c.Client.Get(ctx, key, policy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting NetworkPolicy %s: %w", key, err)
	}
	if !isLeft(policy, template.Name) || policy.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	inUse, err := c.inUse(ctx, template)
	if err != nil || inUse {
		return reconcile.Result{RequeueAfter: recheckUse}, err
	}
	if err := c.Client.Delete(ctx, policy, client.Preconditions{UID: new(policy.UID)}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return reconcile.Result{}, fmt.Errorf("deleting NetworkPolicy %s: %w", key, err)
	}
	return reconcile.Result{}, nil
}

// inUse reports whether there is anything that the policy of a template is for: sets that
// make sandboxes of that name, sandboxes, and pods. The server itself is asked about what
// runs: a cache may be behind.
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
	for kind, list := range map[string]client.ObjectList{"Sandboxes": &v1alpha1.SandboxList{}, "Pods": &corev1.PodList{}} {
		one := []client.ListOption{client.InNamespace(template.Namespace), client.MatchingLabels{v1alpha1.LabelSandboxTemplate: label}, client.Limit(1)}
		if err := c.Reader.List(ctx, list, one...); err != nil {
			return false, fmt.Errorf("listing %s: %w", kind, err)
		}
		if meta.LenList(list) > 0 {
			return true, nil
		}
	}
	return false, nil
}

func (c *Controller) policies() *ownedobject.Reconciler[*networkingv1.NetworkPolicy] {
	return &ownedobject.Reconciler[*networkingv1.NetworkPolicy]{
		Client: c.Client, Reader: c.Reader, Recorder: c.Recorder,
		Kind: "NetworkPolicy", OwnerKind: "SandboxTemplate",
		New:     func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
		Correct: correct,
	}
}
