// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"fmt"
	"time"

	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// retryAfter is when it may be worth asking again after a TooManyWaitingError.
const retryAfter = time.Second

var (
	// ErrClaimExists means that the claim's name is taken. Nothing was written.
	ErrClaimExists = errors.New("a claim of this name exists")

	// ErrSetNotFound means that the claim asks to fail rather than wait and
	// names a SandboxSet that does not exist, or something else that cannot serve it:
	// see SourceError. Nothing was written.
	ErrSetNotFound = errors.New("the SandboxSet does not exist")

	// ErrTooLarge means that the sandboxes are too large, or too many, to be
	// bound in one transaction as the claim demands. Nothing was written.
	ErrTooLarge = errors.New("too large for one transaction")

	// ErrUnknownOutcome means that the store stopped answering in the middle
	// of the transaction and could not be asked afterwards. Creating the claim
	// again by the same name is safe: it cannot bind twice.
	ErrUnknownOutcome = errors.New("it is not known whether the claim was stored")

	// ErrIdentityUnknown is what Options.Admit fails with for a claim of which it is not
	// known who asks for it. Its text is for the status of the claim.
	ErrIdentityUnknown = errors.New("it is not recorded in full who made the claim, or another user has changed it; " +
		"what it lacks waits for the pool")
)

// SourceError is the ErrSetNotFound of a claim, and says what it is about.
type SourceError struct{ claims.Problem }

// Error implements error.
func (e *SourceError) Error() string { return e.Message }

// Unwrap says that this is an ErrSetNotFound.
func (e *SourceError) Unwrap() error { return ErrSetNotFound }

// RefusedError means that the template does not take what the claim adds to its
// sandboxes. Nothing was written.
type RefusedError = plan.RefusedError

// ShortageError means that a claim with onShortage Fail found too few available
// sandboxes. Nothing was written and nothing taken.
type ShortageError struct {
	// Set is the SandboxSet that was asked, or Template the SandboxTemplate whose
	// sets were.
	Set, Template string
	// Wanted and Available count sandboxes.
	Wanted, Available int
}

// Error implements error.
func (e *ShortageError) Error() string {
	if e.Template != "" {
		return fmt.Sprintf("SandboxTemplate %s has %d of %d sandboxes available", e.Template, e.Available, e.Wanted)
	}
	return fmt.Sprintf("SandboxSet %s has %d of %d sandboxes available", e.Set, e.Available, e.Wanted)
}

// TooManyWaitingError means that a claim would have to wait, and that as many of its
// namespace wait as may. Nothing was written and nothing taken.
type TooManyWaitingError struct {
	Namespace string
	// Most is how many claims of the namespace may wait.
	Most int
	// RetryAfter is when it may be worth asking again.
	RetryAfter time.Duration
}

// Error implements error.
func (e *TooManyWaitingError) Error() string {
	return fmt.Sprintf("too few sandboxes are available now, and no more claims of this user may wait in namespace %s, which has places for %d",
		e.Namespace, e.Most)
}

// ThrottledError means that a write limit was exceeded or etcd is nearly full. Nothing was written.
type ThrottledError = storage.ThrottledError

// MismatchError means that a claim of agent-sandbox names a pool and a template, and the pool
// is of another one. Nothing was written.
type MismatchError struct {
	// Pool and Template are what the claim names.
	Pool, Template string
}

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("is not a pool of SandboxTemplate %q, which spec.sandboxTemplateRef names; "+
		"name a pool of that template, or leave one of the two out", e.Template)
}

// isRefusal reports whether an error says why a claim was not stored, although its name may be taken.
func isRefusal(err error) bool {
	return is[*ShortageError](err) || is[*TooManyWaitingError](err) || is[*RefusedError](err) || is[*MismatchError](err) ||
		is[*ThrottledError](err) || errors.Is(err, ErrSetNotFound)
}

// is reports whether an error is a T or wraps one.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
