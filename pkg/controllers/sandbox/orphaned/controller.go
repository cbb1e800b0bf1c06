// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package orphaned deletes sandboxes whose controller is gone: the unused ones of
// a deleted SandboxSet, and those of a deleted SandboxClaim with reclaimPolicy
// Delete; and likewise the SandboxTemplates that hold the revisions of a deleted
// SandboxSet. In a cluster the garbage collector of Kubernetes does it; this is for
// running without one. Like that one it asks the server, and not a cache, before
// it believes that an owner is gone.
package orphaned

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/ownerindex"
)

// maxBackoff bounds how long a failed delete waits for its next try.
const maxBackoff = time.Minute

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// object is a pointer to a kind of objects T.
type object[T any] interface {
	*T
	client.Object
}

// Controller deletes objects of a kind whose controller is gone.
type Controller[T any, P object[T]] struct {
	client  client.Client
	reader  client.Reader
	workers int
	kind    string
	name    string
	index   *ownerindex.Index[P]
}

var _ reconcile.Reconciler = (*Controller[v1alpha1.Sandbox, *v1alpha1.Sandbox])(nil)

// Sandboxes returns a Controller that deletes up to workers sandboxes at a time.
// reader asks the server itself.
func Sandboxes(c client.Client, reader client.Reader, workers int) *Controller[v1alpha1.Sandbox, *v1alpha1.Sandbox] {
	return &Controller[v1alpha1.Sandbox, *v1alpha1.Sandbox]{client: c, reader: reader, workers: workers, kind: "Sandbox", name: "sandbox-orphaned"}
}

// Templates returns a Controller that deletes SandboxTemplates, one at a time.
func Templates(c client.Client, reader client.Reader) *Controller[v1alpha1.SandboxTemplate, *v1alpha1.SandboxTemplate] {
	return &Controller[v1alpha1.SandboxTemplate, *v1alpha1.SandboxTemplate]{
		client: c, reader: reader, workers: 1, kind: "SandboxTemplate", name: "sandboxtemplate-orphaned",
	}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller[T, P]) Name() string { return c.name }

// Register adds the controller to a manager.
func (c *Controller[T, P]) Register(ctx context.Context, mgr ctrl.Manager) error {
	index, err := ownerindex.For(ctx, mgr.GetCache(), P(new(T)))
	if err != nil {
		return err
	}
	c.index = index
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: c.workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				5*time.Millisecond, maxBackoff),
		}).
		Watches(P(new(T)), c.ownedEvents()).
		Watches(&v1alpha1.SandboxSet{}, c.ownerEvents()).
		Watches(&v1alpha1.SandboxClaim{}, c.ownerEvents()).
		Complete(c)
}

// ownedEvents looks at an object when it comes or changes hands: its owner may
// have gone before anyone could see that it owned something.
func (c *Controller[T, P]) ownedEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if metav1.GetControllerOfNoCopy(e.Object) != nil {
				q.Add(requestFor(e.Object))
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := metav1.GetControllerOfNoCopy(e.ObjectOld), metav1.GetControllerOfNoCopy(e.ObjectNew)
			if after != nil && (before == nil || before.UID != after.UID) {
				q.Add(requestFor(e.ObjectNew))
			}
		},
	}
}

// ownerEvents looks at all objects of an owner that is gone.
func (c *Controller[T, P]) ownerEvents() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			owned, err := c.index.ControlledBy(e.Object.GetUID())
			if err != nil {
				log.FromContext(ctx).Error(err, "Finding what a deleted owner has left", "owner", client.ObjectKeyFromObject(e.Object))
				return
			}
			for _, object := range owned {
				q.Add(requestFor(object))
			}
		},
	}
}

// Reconcile deletes the object if its controller is gone.
func (c *Controller[T, P]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	owned := P(new(T))
	if err := c.client.Get(ctx, req.NamespacedName, owned, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting %s %s: %w", c.kind, req, err)
	}
	owner := metav1.GetControllerOfNoCopy(owned)
	if owner == nil || owned.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	if gone, err := c.gone(ctx, owned.GetNamespace(), owner); err != nil || !gone {
		return reconcile.Result{}, err
	}
	err := c.client.Delete(ctx, owned, client.Preconditions{
		UID:             new(owned.GetUID()),
		ResourceVersion: new(owned.GetResourceVersion()),
	})
	switch {
	case apierrors.IsConflict(err):
		// It changed, and may have another owner now. The change of its status, say,
		// brings no event here, so look again.
		return reconcile.Result{RequeueAfter: time.Second}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("deleting %s %s, whose owner is gone: %w", c.kind, req, err)
	}
	return reconcile.Result{}, nil
}

// gone says whether an owner no longer exists. The cache is asked first, because
// it mostly knows the owner; that there is none is taken from the server alone.
func (c *Controller[T, P]) gone(ctx context.Context, namespace string, owner *metav1.OwnerReference) (bool, error) {
	if owner.APIVersion != v1alpha1.SchemeGroupVersion.String() {
		return false, nil
	}
	key := types.NamespacedName{Namespace: namespace, Name: owner.Name}
	for _, reader := range []client.Reader{c.client, c.reader} {
		var object client.Object
		switch owner.Kind {
		case "SandboxSet":
			object = &v1alpha1.SandboxSet{}
		case "SandboxClaim":
			object = &v1alpha1.SandboxClaim{}
		default:
			return false, nil
		}
		err := reader.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("getting %s %s: %w", owner.Kind, key, err)
		}
		if err == nil && object.GetUID() == owner.UID {
			return false, nil
		}
	}
	return true, nil
}

func requestFor(object client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}
}
