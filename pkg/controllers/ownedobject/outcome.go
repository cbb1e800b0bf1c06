// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/pkg/controllers/report"
)

// handleWriteError records an event when the cluster refuses the object, and returns the
// errors that are to be retried: policies and quotas change without the owner. What is
// wrong with a field of the object comes from the owner, and waits for its next change.
func (r *Reconciler[T]) handleWriteError(owner client.Object, object T, err error) error {
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return nil // or the namespace is gone
	}
	// A webhook that does not answer is an internal error.
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsInternalError(err) {
		r.warnAbout(owner, object, "Failed", err.Error())
	}
	if namesField(err) {
		return nil
	}
	return fmt.Errorf("writing %s %s: %w", r.Kind, client.ObjectKeyFromObject(object), err)
}

// namesField reports whether the server refuses an object for one of its fields.
// Policies and webhooks answer Invalid, too, but name no field.
func namesField(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}

// Warn records a warning on an owner of our group, whose reason is the Kind followed by the
// given one.
func (r *Reconciler[T]) Warn(owner client.Object, reason, note string) {
	r.warn(r.OwnerKind, owner, reason, note)
}

// warnAbout is Warn, but where a namespace is the owner it is on the object. Events on a
// namespace are kept in another one, "default": who looks at the namespace sees none.
func (r *Reconciler[T]) warnAbout(owner client.Object, object T, reason, note string) {
	if r.OwnerKind == OwnerKindNamespace {
		r.warn(r.Kind, object, reason, note)
		return
	}
	r.Warn(owner, reason, note)
}

func (r *Reconciler[T]) warn(kind string, regarding client.Object, reason, note string) {
	report.Recorder{EventRecorder: r.Recorder, Kind: kind, Action: "Reconcile"}.
		Event(regarding, corev1.EventTypeWarning, r.Kind+reason, note)
}

// warnReverted reports that the answer to a correction showed the object uncorrected.
func (r *Reconciler[T]) warnReverted(owner client.Object, object T) {
	r.warnAbout(owner, object, "Changed", fmt.Sprintf("%s %s was not stored as it was written: find what changes it, such as a mutating webhook. "+
		"It is written again after ever longer pauses of up to %s", r.Kind, object.GetName(), Recheck))
}

// warnRepeated reports that the object had to be written again soon after it was.
func (r *Reconciler[T]) warnRepeated(owner client.Object, object T, pause time.Duration) {
	r.warnAbout(owner, object, "Changed", fmt.Sprintf("%s %s was changed or deleted after it was written, and has been written again: "+
		"find what changes it. The next time is in %s at the earliest", r.Kind, object.GetName(), pause))
}
