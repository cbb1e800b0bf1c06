// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// IncompleteError means that a claim has ended with less than it asked for. It keeps what
// it has: use that, or hand it to GiveBack.
type IncompleteError struct {
	// Claim is the claim, Completed.
	Claim *v1alpha1.SandboxClaim
	// Reason is that of the claim's condition Completed, such as TimeoutReached.
	Reason string
	// Message is that of the claim's status.
	Message string
}

// Error implements error.
func (e *IncompleteError) Error() string {
	return fmt.Sprintf("SandboxClaim %s/%s ended with %s sandboxes: %s: %s",
		e.Claim.Namespace, e.Claim.Name, share(e.Claim), e.Reason, e.Message)
}

// GivenUpError means that ClaimAndWait ended before the claim did: the context was over, or
// the server gave no clear answer for RetryFor. It says what was left behind.
type GivenUpError struct {
	// Namespace and Name are the claim's, also if it is not stored.
	Namespace, Name string
	// Claim is the claim as it was seen last; nil if it was never seen.
	Claim *v1alpha1.SandboxClaim
	// Known is false if it is not known what has become of the claim: then it may be
	// stored, or be yet to come, and holds sandboxes. Look for it by its name.
	Known bool
	// GivenBack is true if claim and sandboxes were given back.
	GivenBack bool
	// GiveBackErr is why they were not, with GiveUpGiveBack.
	GiveBackErr error
	// Err is why it was given up: the error of the context, and the last one of the server.
	Err error
}

// Error implements error.
func (e *GivenUpError) Error() string {
	what := fmt.Sprintf("gave up on SandboxClaim %s/%s, ", e.Namespace, e.Name)
	switch {
	case e.GivenBack:
		what += "which was given back"
	case !e.Known && e.Claim == nil:
		what += "of which it is not known whether it is stored; look for it by this name"
	case e.Claim == nil:
		what += "which is not stored"
	default:
		what += fmt.Sprintf("which was left %s with %s sandboxes", e.Claim.Status.Phase, share(e.Claim))
	}
	if e.GiveBackErr != nil {
		what += fmt.Sprintf(" because it could not be given back (%v)", e.GiveBackErr)
	}
	return what + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *GivenUpError) Unwrap() error { return e.Err }

// share is how many sandboxes a claim has of those that it wants.
func share(claim *v1alpha1.SandboxClaim) string {
	return fmt.Sprintf("%d/%d", claim.Status.ClaimedReplicas, wanted(claim))
}

func wanted(claim *v1alpha1.SandboxClaim) int32 {
	if claim.Spec.Replicas == nil {
		return v1alpha1.DefaultClaimReplicas
	}
	return *claim.Spec.Replicas
}

// incomplete returns the IncompleteError of a claim that is Completed; nil if it has all.
func incomplete(claim *v1alpha1.SandboxClaim) error {
	if claim.Status.ClaimedReplicas >= wanted(claim) {
		return nil
	}
	e := &IncompleteError{Claim: claim, Message: claim.Status.Message}
	if c := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionCompleted); c != nil {
		e.Reason = c.Reason
	}
	return e
}

// IsShortage reports whether a claim was refused because too few sandboxes are available
// now (onShortage: Fail). Nothing is stored. The server does not say when to try again.
func IsShortage(err error) bool { return apierrors.HasStatusCause(err, v1alpha1.CauseShortage) }

// IsTooManyWaiting reports whether a claim was refused because it would have to wait, and
// too many others do. Nothing is stored, and RetryAfter returns when to try again.
func IsTooManyWaiting(err error) bool {
	return apierrors.HasStatusCause(err, v1alpha1.CauseTooManyWaiting)
}

// RetryAfter returns when the server wants to be asked again, and false if it did not say.
func RetryAfter(err error) (time.Duration, bool) {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second, ok
}

// verdict is what an error means for a request that may be repeated.
type verdict int

const (
	// final is an answer that does not change if the request is repeated.
	final verdict = iota
	// short is a claim that may be served later.
	short
	// notDone is a request that was rejected before it did anything.
	notDone
	// unclear is a request of which it is not known whether it did anything.
	unclear
)

func judge(err error) verdict {
	if IsShortage(err) || IsTooManyWaiting(err) {
		return short
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch code := status.Status().Code; {
		case code == http.StatusTooManyRequests:
			return notDone
		case code >= http.StatusInternalServerError, code == http.StatusRequestTimeout:
			return unclear
		}
		return final
	}
	// A server that cannot be trusted cannot be trusted the next time.
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return final
	}
	return unclear
}
