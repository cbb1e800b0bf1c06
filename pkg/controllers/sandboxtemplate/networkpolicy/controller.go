// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/ownedobject"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

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
		Owns(&networkingv1.NetworkPolicy{}).
		Complete(c)
}

// Reconcile makes the policy of one template what it should be.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	template := &v1alpha1.SandboxTemplate{}
	if err := c.Client.Get(ctx, req.NamespacedName, template, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // the garbage collector deletes its policy
		}
		return reconcile.Result{}, fmt.Errorf("getting SandboxTemplate %s: %w", req, err)
	}
	if template.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	policies := c.policies()
	if want := policyOf(template, c.Namespace); want != nil {
		return policies.Ensure(ctx, template, want)
	}
	name := v1alpha1.NetworkPolicyName(template.Name)
	return reconcile.Result{}, policies.Remove(ctx, c.removalReader(template), template, name, labelsOf(template))
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

func (c *Controller) policies() *ownedobject.Reconciler[*networkingv1.NetworkPolicy] {
	return &ownedobject.Reconciler[*networkingv1.NetworkPolicy]{
		Client: c.Client, Reader: c.Reader, Recorder: c.Recorder,
		Kind: "NetworkPolicy", OwnerKind: "SandboxTemplate",
		New:     func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
		Correct: correct,
	}
}
