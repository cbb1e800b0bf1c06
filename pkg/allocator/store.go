// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
)

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

// observedStore is a Store whose transactions are timed and traced.
type observedStore struct {
	Store
	clock clock.PassiveClock
}

// Begin implements Store.
func (s observedStore) Begin() Txn {
	return &observedTxn{Txn: s.Store.Begin(), clock: s.clock}
}

// PoolSandboxes implements Store.
func (s observedStore) PoolSandboxes(ctx context.Context, namespace, set string) ([]*v1alpha1.Sandbox, uint64, error) {
	ctx, span := tracing.Start(ctx, "Read pool", attribute.String("sandboxset", set))
	defer span.End(slow)
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
	defer span.End(slow)
	start := t.clock.Now()
	err := t.Txn.Commit(ctx)
	result := metrics.ObserveCommit(err, t.claim, t.clock.Since(start))
	if err != nil {
		span.AddEvent("Not committed", attribute.String("result", result))
		span.RecordError(err)
	}
	return err
}
