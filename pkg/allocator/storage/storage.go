// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage says what the allocator needs of the API's storage, and measures and traces its transactions.
package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

var (
	// ErrReplan means that a plan did not fit what is stored, and that what was in the way has been removed
	// from the reservation. The caller plans again.
	ErrReplan = fmt.Errorf("%w: plan again", reconciler.ErrRequeue)

	// ErrConflict means that the claim, or a sandbox that it holds, is not what the plan was made from.
	// The caller reads both again and requeues the claim.
	ErrConflict = fmt.Errorf("%w: the claim or a sandbox of it has changed", reconciler.ErrRequeue)
)

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

// ThrottledFor returns how long to wait before the retry after a ThrottledError; 0 for other errors.
func ThrottledFor(err error) time.Duration {
	if throttled := (*ThrottledError)(nil); errors.As(err, &throttled) {
		return throttled.RetryAfter
	}
	return 0
}

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

// Txn writes several objects at once or not at all; claimTxn of pkg/apiserver
// implements it by an *etcdtxn.Txn. It is written only if each object
// that it updates is still at its resourceVersion. Objects that were written have the new one.
type Txn interface {
	CreateClaim(ctx context.Context, claim *v1alpha1.SandboxClaim) error
	UpdateClaim(ctx context.Context, claim *v1alpha1.SandboxClaim) error
	// ExpectClaim lets the transaction fail unless the claim, which it leaves as it is, is
	// still at its resourceVersion.
	ExpectClaim(claim *v1alpha1.SandboxClaim) error
	CreateSandbox(ctx context.Context, sb *v1alpha1.Sandbox) error
	UpdateSandbox(ctx context.Context, sb *v1alpha1.Sandbox) error
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

// CommitTimeout bounds one transaction.
const CommitTimeout = 10 * time.Second

// Detached returns a context for a transaction. Once that is on its way it is seen through, so that a
// caller who leaves cannot make its outcome unknown.
func Detached(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// UpdateClaim writes a claim alone, as it is to be after the state of its resourceVersion. It returns
// ErrConflict if the claim is not in that state any more.
func UpdateClaim(ctx context.Context, store Store, claim *v1alpha1.SandboxClaim) error {
	txn := store.Begin()
	defer txn.Release()
	if err := txn.UpdateClaim(ctx, claim); err != nil {
		return err
	}
	within, cancel := Detached(ctx, CommitTimeout)
	defer cancel()
	err := txn.Commit(within)
	if _, moved := errors.AsType[*etcdtxn.ConflictError](err); moved {
		return ErrConflict
	}
	return err
}

// Slow is how long a part of a claim may take before it is logged.
const Slow = 500 * time.Millisecond

// observedStore is a Store whose transactions are timed and traced.
type observedStore struct {
	Store
	clock clock.PassiveClock
}

// Observed returns a Store whose transactions are timed and traced.
func Observed(store Store, clock clock.PassiveClock) Store { return observedStore{store, clock} }

// Begin implements Store.
func (s observedStore) Begin() Txn {
	return &observedTxn{Txn: s.Store.Begin(), clock: s.clock}
}

// PoolSandboxes implements Store.
func (s observedStore) PoolSandboxes(ctx context.Context, namespace, set string) ([]*v1alpha1.Sandbox, uint64, error) {
	ctx, span := tracing.Start(ctx, "Read pool", attribute.String("sandboxset", set))
	defer span.End(Slow)
	sandboxes, asOf, err := s.Store.PoolSandboxes(ctx, namespace, set)
	metrics.ObservePoolRead(err)
	if err != nil {
		span.RecordError(err)
		return nil, 0, err
	}
	span.AddEvent("Read", attribute.Int("sandboxes", len(sandboxes)))
	return sandboxes, asOf, nil
}

// observedTxn times and traces a transaction.
type observedTxn struct {
	Txn
	clock clock.PassiveClock
	// claim is set if the first object is one.
	claim bool
}

// CreateClaim implements Txn.
func (t *observedTxn) CreateClaim(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	t.claim = true
	return t.Txn.CreateClaim(ctx, claim)
}

// UpdateClaim implements Txn.
func (t *observedTxn) UpdateClaim(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	t.claim = true
	return t.Txn.UpdateClaim(ctx, claim)
}

// Commit implements Txn.
func (t *observedTxn) Commit(ctx context.Context) error {
	ctx, span := tracing.Start(ctx, "Commit", attribute.Int("objects", t.Len()), attribute.Int("bytes", t.Bytes()))
	defer span.End(Slow)
	start := t.clock.Now()
	err := t.Txn.Commit(ctx)
	result := metrics.ObserveCommit(err, t.claim, t.clock.Since(start))
	if err != nil {
		span.AddEvent("Not committed", attribute.String("result", result))
		span.RecordError(err)
	}
	return err
}
