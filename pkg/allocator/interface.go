// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

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
	// RetryAfter is when it may be worth asking again.
	RetryAfter time.Duration
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
// Create returns it; in the background the claim is retried after RetryAfter.
type ThrottledError struct {
	// Reason is the message for the client.
	Reason string
	// RetryAfter is how long to wait before the retry.
	RetryAfter time.Duration
}

// Error implements error.
func (e *ThrottledError) Error() string { return e.Reason }

// Store is what the allocator needs of the API's storage.
type Store interface {
	// Store of candidates reads sandboxes, sets and templates.
	candidates.Store

	// Claim returns a claim as it is in etcd now; nil, nil where there is none.
	Claim(ctx context.Context, namespace, name string) (*v1alpha1.SandboxClaim, error)

	// CreatedClaim is like Claim, and also returns the revision of the transaction that
	// created the claim. Unlike resourceVersion, it does not change when the claim is updated.
	CreatedClaim(ctx context.Context, namespace, name string) (claim *v1alpha1.SandboxClaim, created uint64, err error)

	// SandboxesOf returns, as they are in etcd now, the sandboxes that name
	// the claim's UID as their owner. The caller must not change them.
	SandboxesOf(ctx context.Context, claim *v1alpha1.SandboxClaim) ([]*v1alpha1.Sandbox, error)

	// Begin starts a transaction.
	Begin() Txn
}

// Txn writes several objects at once or not at all; *etcdtxn.Txn bound to the
// resources of claims and sandboxes is the one implementation. Objects that
// were written have their resourceVersion set.
type Txn interface {
	CreateClaim(ctx context.Context, claim *v1alpha1.SandboxClaim) error
	UpdateClaim(ctx context.Context, claim *v1alpha1.SandboxClaim, at int64) error
	// ExpectClaim lets the transaction fail unless the claim, which it leaves as it is, is
	// still at a revision.
	ExpectClaim(claim *v1alpha1.SandboxClaim, at int64) error
	CreateSandbox(ctx context.Context, sb *v1alpha1.Sandbox) error
	UpdateSandbox(ctx context.Context, sb *v1alpha1.Sandbox, at int64) error
	// Len and Bytes say how much the transaction holds.
	Len() int
	Bytes() int
	// AllowThrottling lets Commit fail with a *ThrottledError. Without it, the transaction
	// counts against the write limits but is never rejected, as when it ends a claim or
	// releases sandboxes.
	AllowThrottling()
	// ChargeUser counts the transaction for a user too; without it, or with an empty name, it
	// counts for the namespace alone.
	ChargeUser(name string)
	// Commit fails with the errors of etcdtxn.Txn.Commit.
	Commit(ctx context.Context) error
	// Guard lets the transaction be settled although it updates no object, if it has
	// room for that: see etcdtxn.Txn.Guard. token differs from those of all others.
	Guard(ctx context.Context, token string, now time.Time) error
	// Settle finds out, after Commit did not, whether the transaction was written, and
	// keeps it from being written later. Its errors are those of etcdtxn.Txn.Settle.
	Settle(ctx context.Context) (written bool, err error)
	// Release is called when the transaction is done with.
	Release()
}

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
