// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
)

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
