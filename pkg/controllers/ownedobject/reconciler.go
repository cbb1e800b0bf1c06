// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dependent keeps objects of the cluster that belong to one of ours, such as
// the Service of a sandbox: made when it is missing, corrected when somebody changes
// it, deleted when it is no longer wanted. It goes with its owner, which the garbage
// collector sees to. One that lost its owner is known by its labels, and gets it back;
// so does one whose owner was deleted and made anew under the same name, before the
// garbage collector comes. One of its name that is somebody else's is left alone, and
// told of by an event on the owner.
package ownedobject

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	// Recheck is how often what brings no event is looked at again, such as an object
	// of somebody else, and the longest pause between two tries.
	Recheck = time.Minute
	// soon is when to look again at what a cache will show any moment.
	soon = time.Second
	// maxNote is how long the text of an event may be.
	maxNote = 1024
)

// Reconciler keeps objects of one kind for owners of one kind. Reasons of its events
// begin with its Kind: ServiceNameTaken, ServiceFailed.
type Reconciler[T client.Object] struct {
	// Client reads from a cache, which may be limited to objects that have the labels
	// of those that Ensure is given, and writes.
	Client client.Client
	// Reader asks the server itself.
	Reader client.Reader
	// Recorder records events on owners; nil records none.
	Recorder recorder.EventRecorder
	// Kind and OwnerKind are the kinds. Owners are of our group.
	Kind, OwnerKind string
	// New returns an empty object.
	New func() T
	// Corrected returns what is to become of an object, and whether that is something
	// else. It changes neither.
	Corrected func(is, want T) (T, bool)
	// Fixed says whether an object differs in what the server lets nobody change: it is
	// deleted and made anew. nil is never.
	Fixed func(is, want T) bool
}

// Ensure makes the object that an owner wants, or corrects the one that is there.
func (r *Reconciler[T]) Ensure(ctx context.Context, owner client.Object, want T) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(want)
	is, found, err := r.get(ctx, r.Client, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !found {
		err = r.Client.Create(ctx, want)
		if !apierrors.IsAlreadyExists(err) {
			return reconcile.Result{}, r.told(owner, key, err)
		}
		// It may have lost the labels by which the cache has it, or be another's.
		if is, found, err = r.get(ctx, r.Reader, key); err != nil || !found {
			return reconcile.Result{RequeueAfter: soon}, err
		}
	}
	return r.correct(ctx, owner, is, want)
}

// correct brings back what somebody changed, in an object that is the owner's.
func (r *Reconciler[T]) correct(ctx context.Context, owner client.Object, is, want T) (reconcile.Result, error) {
	switch {
	case is.GetDeletionTimestamp() != nil:
		return reconcile.Result{RequeueAfter: Recheck}, nil // made anew when it is gone
	case !r.isOf(is, owner, want.GetLabels()):
		r.Warn(owner, "NameTaken", fmt.Sprintf(
			"%s %s exists and does not belong to this %s: it is left as it is, and there is none of its own",
			r.Kind, is.GetName(), r.OwnerKind))
		return reconcile.Result{RequeueAfter: Recheck}, nil
	}
	if r.Fixed != nil && r.Fixed(is, want) {
		return reconcile.Result{RequeueAfter: soon}, r.remove(ctx, is)
	}
	fixed, changed := r.Corrected(is, want)
	if !metav1.IsControlledBy(is, owner) {
		adopt(fixed, owner, want)
		changed = true
	}
	if !changed {
		return reconcile.Result{}, nil
	}
	err := r.Client.Patch(ctx, fixed, client.MergeFromWithOptions(is, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	return reconcile.Result{}, r.told(owner, client.ObjectKeyFromObject(is), err)
}

// hasLabels says whether an object has all of some labels. One alone can be a
// coincidence; those of ours name the owner, too.
func hasLabels(object client.Object, want map[string]string) bool {
	return len(want) > 0 && labels.SelectorFromSet(want).Matches(labels.Set(object.GetLabels()))
}

// adopt makes an owner the controller of an object, in place of the one that it has
// and beside its other owners.
func adopt(object, owner, want client.Object) {
	others := slices.DeleteFunc(slices.Clone(object.GetOwnerReferences()), func(o metav1.OwnerReference) bool {
		return o.UID == owner.GetUID() || ptr.Deref(o.Controller, false)
	})
	object.SetOwnerReferences(append(others, want.GetOwnerReferences()...))
}

// Remove deletes the object of a name, if it is the owner's, as from shows it. One
// that has no controller is known by labels.
func (r *Reconciler[T]) Remove(
	ctx context.Context, from client.Reader, owner client.Object, name string, labels map[string]string,
) error {
	key := client.ObjectKey{Namespace: owner.GetNamespace(), Name: name}
	is, found, err := r.get(ctx, from, key)
	if err != nil || !found || !r.isOf(is, owner, labels) || is.GetDeletionTimestamp() != nil {
		return err
	}
	return r.remove(ctx, is)
}

// isOf says whether an object is an owner's, or was, or was that of one that had the
// owner's name before, and is nobody else's by now.
func (r *Reconciler[T]) isOf(object, owner client.Object, labels map[string]string) bool {
	by := metav1.GetControllerOfNoCopy(object)
	if by != nil && by.UID == owner.GetUID() {
		return true
	}
	return (by == nil || r.names(by, owner)) && hasLabels(object, labels)
}

// names says whether a reference is to what has an owner's kind and name. Of two such
// in one namespace, one is gone. Should that be the owner, then the cache is old, and
// will show the other one, which takes back what is its own.
func (r *Reconciler[T]) names(by *metav1.OwnerReference, owner client.Object) bool {
	gv, err := schema.ParseGroupVersion(by.APIVersion)
	return err == nil && gv.Group == v1alpha1.GroupName && by.Kind == r.OwnerKind && by.Name == owner.GetName()
}

// remove deletes an object, unless another one has its name by now.
func (r *Reconciler[T]) remove(ctx context.Context, is T) error {
	err := r.Client.Delete(ctx, is, client.Preconditions{UID: new(is.GetUID())})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting %s %s: %w", r.Kind, client.ObjectKeyFromObject(is), err)
	}
	return nil
}

// get returns the object of a name, if there is one.
func (r *Reconciler[T]) get(ctx context.Context, reader client.Reader, key client.ObjectKey) (T, bool, error) {
	object := r.New()
	switch err := reader.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return object, false, nil
	case err != nil:
		return object, false, fmt.Errorf("getting %s %s: %w", r.Kind, key, err)
	}
	return object, true, nil
}

// told tells the user that the cluster refuses the object, and returns what is to be
// tried again, ever more slowly: policies and quotas change without the owner. What is
// wrong with a field of the object comes from the owner, and is for its next change.
func (r *Reconciler[T]) told(owner client.Object, key client.ObjectKey, err error) error {
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		r.Warn(owner, "Failed", err.Error())
	}
	if blamesField(err) {
		return nil
	}
	return fmt.Errorf("writing %s %s: %w", r.Kind, key, err)
}

// blamesField says whether the server refuses an object for one of its fields.
// Policies and webhooks answer Invalid, too, but name no field.
func blamesField(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}

// Warn records a warning, whose reason is the Kind and what is given. The owner is
// named without its resourceVersion, so that what happens again is one event that is
// counted up.
func (r *Reconciler[T]) Warn(owner client.Object, reason, note string) {
	if r.Recorder == nil {
		return
	}
	note = strings.ToValidUTF8(note[:min(len(note), maxNote)], "")
	r.Recorder.Eventf(&corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: r.OwnerKind,
		Namespace: owner.GetNamespace(), Name: owner.GetName(), UID: owner.GetUID(),
	}, nil, corev1.EventTypeWarning, r.Kind+reason, "Reconcile", "%s", note)
}
