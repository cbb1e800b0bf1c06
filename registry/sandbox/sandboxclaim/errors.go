// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"errors"
	"math"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator"
)

// statusError is what a client gets when a claim could not be bound.
//
// The generic server answers 500 for a Status that is wrapped. One that comes from
// below, such as that of a watch cache that begins again, was met before anything was
// written, so it is returned as it is, with its Retry-After.
func statusError(claim *v1alpha1.SandboxClaim, err error) error {
	kind := kindOf(claim)
	spec := field.NewPath("spec")
	var shortage *allocator.ShortageError
	var tooMany *allocator.TooManyWaitingError
	var source *allocator.SourceError
	var refused *allocator.RefusedError
	var mismatch *allocator.MismatchError
	var throttled *allocator.ThrottledError
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, allocator.ErrClaimExists):
		return apierrors.NewAlreadyExists(schema.GroupResource{Group: kind.Group, Resource: "sandboxclaims"}, claim.Name)
	case errors.As(err, &refused):
		return apierrors.NewInvalid(kind, claim.Name, refused.Errors)
	case errors.As(err, &mismatch):
		return apierrors.NewInvalid(kind, claim.Name, field.ErrorList{
			field.Invalid(spec.Child("warmPoolRef", "name"), mismatch.Pool, mismatch.Error()),
		})
	case errors.As(err, &source):
		path := field.NewPath("spec", strings.Split(source.Field, ".")...)
		blame := field.Invalid(path, source.Name, source.Message)
		if source.Missing {
			blame = field.NotFound(path, source.Name)
		}
		return apierrors.NewInvalid(kind, claim.Name, field.ErrorList{blame})
	case errors.Is(err, allocator.ErrSetNotFound):
		return apierrors.NewInvalid(kind, claim.Name, field.ErrorList{
			notFound(claim, spec),
		})
	case errors.Is(err, allocator.ErrTooLarge):
		return apierrors.NewInvalid(kind, claim.Name, field.ErrorList{
			field.Invalid(spec.Child("replicas"), claim.Spec.Replicas, err.Error()),
		})
	case errors.As(err, &shortage):
		// No Retry-After: the user asked for an answer at once, and clients such as kubectl follow
		// it by themselves, ten times.
		return tryAgain(claim, shortage, 0, v1alpha1.CauseShortage, spec.Child("replicas").String())
	case errors.As(err, &tooMany):
		return tryAgain(claim, tooMany, tooMany.RetryAfter, v1alpha1.CauseTooManyWaiting, "")
	case errors.As(err, &throttled):
		return tryAgain(claim, throttled, throttled.RetryAfter, v1alpha1.CauseWriteLimit, "")
	case errors.Is(err, allocator.ErrUnknownOutcome):
		// No Retry-After: clients follow it by themselves, and with generateName
		// would try again by another name, which could bind a second time.
		return apierrors.NewTimeoutError(
			err.Error()+"; creating it again by the same name is safe and cannot bind twice", 0)
	case errors.As(err, &status):
		return &apierrors.StatusError{ErrStatus: status.Status()}
	}
	return err
}

// kindOf is the kind of a claim in the API that it was made in.
func kindOf(claim *v1alpha1.SandboxClaim) schema.GroupKind {
	kind := schema.GroupKind{Group: v1alpha1.GroupName, Kind: "SandboxClaim"}
	if v1alpha1.OfAgentSandbox(claim) {
		kind.Group = v1alpha1.ExtensionsGroup
	}
	return kind
}

// notFound is what is said of a set that is not there, by the field that names it.
func notFound(claim *v1alpha1.SandboxClaim, spec *field.Path) *field.Error {
	if ref := claim.Spec.WarmPoolRef; ref != nil {
		return field.NotFound(spec.Child("warmPoolRef", "name"), ref.Name)
	}
	return field.NotFound(spec.Child("templateName"), claim.Spec.TemplateName)
}

// tryAgain is the refusal of a claim that may be served later. It has a Retry-After if that is not 0.
func tryAgain(claim *v1alpha1.SandboxClaim, err error, after time.Duration, cause metav1.CauseType, field string) error {
	refusal := apierrors.NewTooManyRequests(err.Error(), int(math.Ceil(after.Seconds())))
	details := refusal.ErrStatus.Details
	details.Group, details.Kind, details.Name = kindOf(claim).Group, "SandboxClaim", claim.Name
	details.Causes = append(details.Causes, metav1.StatusCause{Type: cause, Field: field, Message: err.Error()})
	return refusal
}
