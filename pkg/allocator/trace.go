// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// slow is how long a part of a claim may take before it is logged.
const slow = 500 * time.Millisecond

// observeCreate begins a span for the create of a claim. The returned function ends
// it and counts how the create went.
func observeCreate(ctx context.Context, c clock.PassiveClock, sets claims.Sets, claim *v1alpha1.SandboxClaim) (context.Context, func(*v1alpha1.SandboxClaim, error)) {
	start := c.Now()
	asked, _ := v1alpha1.AskedOf(claim)
	ctx, span := tracing.Start(ctx, "Bind SandboxClaim",
		attribute.String("namespace", claim.Namespace),
		attribute.String("template", asked),
		attribute.Int("replicas", claims.Replicas(claim)))
	return ctx, func(created *v1alpha1.SandboxClaim, err error) {
		outcome := outcomeOf(created, err)
		took := c.Since(start)
		metrics.ObserveCreate(claim, sets, outcome, start, took)
		span.AddEvent("Answered", attribute.String("outcome", outcome))
		span.RecordError(err)
		span.End(slow)
	}
}

func outcomeOf(claim *v1alpha1.SandboxClaim, err error) string {
	var shortage *ShortageError
	var tooMany *TooManyWaitingError
	var refusal apierrors.APIStatus
	var refused *RefusedError
	var mismatch *MismatchError
	switch {
	case err == nil && claims.Unfinished(claim):
		return metrics.OutcomeWaiting
	case err == nil:
		return metrics.OutcomeOfEnd(claim)
	case errors.Is(err, ErrClaimExists):
		return metrics.OutcomeExists
	case errors.As(err, &shortage):
		return metrics.OutcomeShortage
	case errors.Is(err, ErrSetNotFound):
		return metrics.OutcomeSetNotFound
	case errors.As(err, &tooMany):
		return metrics.OutcomeTooMany
	case errors.As(err, &refused), errors.As(err, &mismatch):
		return metrics.OutcomeRefused
	case errors.Is(err, ErrTooLarge):
		return metrics.OutcomeTooLarge
	case errors.Is(err, ErrUnknownOutcome):
		return metrics.OutcomeUnknown
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return metrics.OutcomeCanceled
	case errors.As(err, &refusal) && refusal.Status().Code < http.StatusInternalServerError:
		return metrics.OutcomeRefused
	}
	return metrics.OutcomeError
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
func (t *observedTxn) UpdateClaim(ctx context.Context, claim *v1alpha1.SandboxClaim, at int64) error {
	t.claim = true
	return t.Txn.UpdateClaim(ctx, claim, at)
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
