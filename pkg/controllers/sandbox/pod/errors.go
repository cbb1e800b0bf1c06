// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errPVCTaken means that a volume claim of the sandbox's name is not for it.
var errPVCTaken = errors.New("cannot be used")

// templateError means that a sandbox waits for its template, or for its runtimes. A
// change of a template or of the ConfigMap ends that, and queues the sandbox.
type templateError struct {
	error
	reason string
}

func (e templateError) Unwrap() error { return e.error }

func asTemplateError(err error) (templateError, bool) {
	return errors.AsType[templateError](err)
}

// podExists marks the error of a create that met a pod of the same name.
type podExists struct{ error }

func (e podExists) Unwrap() error { return e.error }

func isPodExists(err error) bool {
	_, ok := errors.AsType[podExists](err)
	return ok
}

// unusableError means that no object can be built from a template. The server refuses
// such templates, so only a change of the template can help.
type unusableError struct{ error }

func (e unusableError) Unwrap() error { return e.error }

func unusable(err error) error { return unusableError{err} }

// isTry reports whether the outcome of a create counts as a try, after which the next one
// backs off. Errors that are not about the pod have the rate limit of the queue: a short
// outage of the API must not delay the pod for long.
func isTry(err error) bool { return err == nil || isPodExists(err) || isRefusal(err) }

// isRefusal reports whether an error is about the pod, so that its user should know: a
// quota, a policy, an admission webhook that fails. Errors that are about the moment, or
// about this client, are not.
func isRefusal(err error) bool {
	if _, ok := errors.AsType[unusableError](err); ok || errors.Is(err, errPVCTaken) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code <= http.StatusInternalServerError
	}
}

// isAnother reports whether a patch was refused because the object of that name is not
// the one that it was for.
func isAnother(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}
