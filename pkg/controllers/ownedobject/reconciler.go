// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownedobject reconciles objects of the cluster that belong to one of ours, such
// as the Service of a sandbox, or to a namespace: it creates them when they are missing,
// corrects them when a user changes them, and deletes them when they are no longer wanted.
// The garbage collector deletes them with their owner. An object that lost its owner
// reference is known by its labels, and gets the reference back; so does one whose owner was
// deleted and created again under the same name, before the garbage collector comes. An
// object of the same name that does not belong to the owner is left alone.
//
// Each write of an object for the same state of its owner delays the next one, because
// whatever refused or reverted it is likely to do so again. An event reports a write that
// was refused or did not last, and a name that is taken.
package ownedobject

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/incomplete"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/writepace"
)

const (
	// Recheck is how often to look again at what brings no event, such as an object of
	// the same name that does not belong to the owner.
	Recheck = queue.MaxBackoff
	// watchLag is when to look again at what the cache is about to show.
	watchLag = time.Second
)

// OwnerKindNamespace is the OwnerKind of namespaces. Their objects need no owner reference,
// because the namespace controller deletes them; they are known by their labels.
const OwnerKindNamespace = "Namespace"

// Reconciler reconciles objects of one kind for owners of one kind. Reasons of its events
// begin with its Kind: ServiceNameTaken, ServiceFailed.
type Reconciler[T client.Object] struct {
	// Client reads from a cache, which may be limited to objects that have the labels
	// of those that Ensure is given, and writes.
	Client client.Client
	// Reader asks the server itself.
	Reader client.Reader
	// Pacer delays repeated writes. It is shared by all reconcilers of a controller.
	Pacer *writepace.Pacer
	// Recorder records events on owners, or on the object where a namespace is the owner;
	// nil records none.
	Recorder recorder.EventRecorder
	// Kind and OwnerKind are the kinds. Owners are of our group, or OwnerKindNamespace.
	Kind, OwnerKind string
	// New returns an empty object.
	New func() T
	// Correct returns a corrected copy of the current object and reports whether that
	// differs. It changes neither argument.
	Correct func(current, desired T) (T, bool)
	// MustReplace reports whether an object differs in immutable fields: it is deleted
	// and created again. nil is never.
	MustReplace func(current, desired T) bool
}

// Ensure creates the object that an owner wants, or corrects the current one.
func (r *Reconciler[T]) Ensure(ctx context.Context, owner client.Object, desired T) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(desired)
	current, found, err := r.get(ctx, r.Client, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	delay := writeDelay(r.Pacer, owner, key)
	if !found {
		if delay > 0 {
			return reconcile.Result{RequeueAfter: delay}, nil
		}
		err = r.Client.Create(ctx, desired)
		pause, repeated := record(r.Pacer, owner, desired, err)
		if repeated {
			r.warnRepeated(owner, desired, pause)
		}
		if !apierrors.IsAlreadyExists(err) {
			return reconcile.Result{}, r.handleWriteError(owner, desired, err)
		}
		// It may have lost the labels by which the cache has it, or not belong to the owner.
		if current, found, err = r.get(ctx, r.Reader, key); err != nil || !found {
			return reconcile.Result{RequeueAfter: watchLag}, err
		}
	}
	return r.correct(ctx, owner, current, desired, delay)
}

// correct reverts changes by users of an object that belongs to the owner, after a delay.
func (r *Reconciler[T]) correct(
	ctx context.Context, owner client.Object, current, desired T, delay time.Duration,
) (reconcile.Result, error) {
	switch {
	case current.GetDeletionTimestamp() != nil:
		return reconcile.Result{RequeueAfter: Recheck}, nil // created again when it is gone
	case !r.belongsTo(current, owner, desired.GetLabels()):
		r.warnAbout(owner, current, "NameTaken", fmt.Sprintf(
			"%s %s exists and does not belong to this %s: it is left as it is, and there is none of its own",
			r.Kind, current.GetName(), r.OwnerKind))
		return reconcile.Result{RequeueAfter: Recheck}, nil
	}
	replace := r.MustReplace != nil && r.MustReplace(current, desired)
	corrected, changed := r.corrected(owner, current, desired)
	switch {
	case !replace && !changed:
		return reconcile.Result{}, nil
	case delay > 0:
		return reconcile.Result{RequeueAfter: delay}, nil
	case replace:
		return reconcile.Result{RequeueAfter: watchLag}, r.remove(ctx, current)
	}
	return r.patch(ctx, owner, current, corrected, desired)
}

// corrected returns a corrected copy of the current object, with its owner, and reports
// whether that differs.
func (r *Reconciler[T]) corrected(owner client.Object, current, desired T) (T, bool) {
	corrected, changed := r.Correct(current, desired)
	if r.OwnerKind != OwnerKindNamespace && !metav1.IsControlledBy(current, owner) {
		adopt(corrected, owner, desired)
		changed = true
	}
	return corrected, changed
}

// patch writes a corrected object.
func (r *Reconciler[T]) patch(ctx context.Context, owner client.Object, current, corrected, desired T) (reconcile.Result, error) {
	// The answer is decoded into the corrected object, which may share parts with the desired one.
	desired, _ = desired.DeepCopyObject().(T)
	err := r.Client.Patch(ctx, corrected, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{}))
	pause, repeated := record(r.Pacer, owner, current, err)
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: watchLag}, nil
	case err != nil:
		return reconcile.Result{}, r.handleWriteError(owner, current, err)
	}
	if _, differs := r.corrected(owner, corrected, desired); differs { // as the server answered
		r.warnReverted(owner, corrected)
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	if repeated {
		r.warnRepeated(owner, corrected, pause)
	}
	return reconcile.Result{}, nil
}

// hasLabels reports whether an object has all of the wanted labels. One alone can be a
// coincidence; those of ours name the owner, too.
func hasLabels(object client.Object, want map[string]string) bool {
	return len(want) > 0 && labels.SelectorFromSet(want).Matches(labels.Set(object.GetLabels()))
}

// adopt makes an owner the controller of an object, in place of the one that it has
// and beside its other owners.
func adopt(object, owner, desired client.Object) {
	others := slices.DeleteFunc(slices.Clone(object.GetOwnerReferences()), func(o metav1.OwnerReference) bool {
		isDesired := func(d metav1.OwnerReference) bool { return d.UID == o.UID }
		return o.UID == owner.GetUID() || ptr.Deref(o.Controller, false) || slices.ContainsFunc(desired.GetOwnerReferences(), isDesired)
	})
	object.SetOwnerReferences(append(others, desired.GetOwnerReferences()...))
}

// Remove deletes the object of a name if it belongs to the owner, as from shows it. One
// that has no controller is known by labels.
func (r *Reconciler[T]) Remove(
	ctx context.Context, from client.Reader, owner client.Object, name string, labels map[string]string,
) error {
	key := client.ObjectKey{Namespace: cmp.Or(owner.GetNamespace(), owner.GetName()), Name: name} // or the owner is the namespace
	current, found, err := r.get(ctx, from, key)
	if err != nil {
		return err
	}
	forget(r.Pacer, owner, key)
	if !found || !r.belongsTo(current, owner, labels) || current.GetDeletionTimestamp() != nil {
		return nil
	}
	return r.remove(ctx, current)
}

// belongsTo reports whether an object is controlled by an owner, or has the owner's
// labels and either no controller or one of the owner's name, which was there before.
func (r *Reconciler[T]) belongsTo(object, owner client.Object, labels map[string]string) bool {
	by := metav1.GetControllerOfNoCopy(object)
	if by != nil && by.UID == owner.GetUID() {
		return true
	}
	return (by == nil || r.refersTo(by, owner)) && hasLabels(object, labels)
}

// refersTo reports whether a reference has an owner's kind and name. Of two such objects
// in one namespace, one is gone. Should that be the owner, then the cache is old, and
// will show the other one, which takes the object back.
func (r *Reconciler[T]) refersTo(by *metav1.OwnerReference, owner client.Object) bool {
	return v1alpha1.OwnerKind(by) == r.OwnerKind && by.Name == owner.GetName()
}

// remove deletes an object, unless another one has its name by now.
func (r *Reconciler[T]) remove(ctx context.Context, object T) error {
	err := r.Client.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting %s %s: %w", r.Kind, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// get returns the object of a name as reader has it, or as the server has it if that is incomplete, and reports
// whether there is one.
func (r *Reconciler[T]) get(ctx context.Context, reader client.Reader, key client.ObjectKey) (object T, found bool, err error) {
	for _, from := range []client.Reader{reader, r.Reader} {
		object = r.New()
		switch err := from.Get(ctx, key, object); {
		case apierrors.IsNotFound(err):
			return object, false, nil
		case err != nil:
			return object, false, fmt.Errorf("getting %s %s: %w", r.Kind, key, err)
		case !incomplete.Is(object):
			return object, true, nil
		}
	}
	return object, true, nil
}

// Changed reports whether an update of an owner may change what it wants. It also may
// where a cache shows an owner that was deleted and created again as an update: both are
// of generation 1.
func Changed(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
}
