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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
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
		claimDuration.WithLabelValues(outcome).Observe(took.Seconds())
		observePool(measuredPools, namedPool(claim, sets), outcome, took, start)
		claimReplicas.Observe(float64(claims.Replicas(claim)))
		span.AddEvent("Answered", attribute.String("outcome", outcome))
		span.RecordError(err)
		span.End(slow)
	}
}

var outcomeOfEnd = map[string]string{
	resultCompleted: outcomeBound, resultTimedOut: outcomeTimedOut, resultDeleted: outcomeDeleted,
	resultRejected: outcomeRefused,
}

func outcomeOf(claim *v1alpha1.SandboxClaim, err error) string {
	var shortage *ShortageError
	var tooMany *TooManyWaitingError
	var refusal apierrors.APIStatus
	var refused *RefusedError
	var mismatch *MismatchError
	switch {
	case err == nil && claims.Unfinished(claim):
		return outcomeWaiting
	case err == nil:
		return outcomeOfEnd[endOf(claim)]
	case errors.Is(err, ErrClaimExists):
		return outcomeExists
	case errors.As(err, &shortage):
		return outcomeShortage
	case errors.Is(err, ErrSetNotFound):
		return outcomeSetNotFound
	case errors.As(err, &tooMany):
		return outcomeTooMany
	case errors.As(err, &refused), errors.As(err, &mismatch):
		return outcomeRefused
	case errors.Is(err, ErrTooLarge):
		return outcomeTooLarge
	case errors.Is(err, ErrUnknownOutcome):
		return outcomeUnknown
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return outcomeCanceled
	case errors.As(err, &refusal) && refusal.Status().Code < http.StatusInternalServerError:
		return outcomeRefused
	}
	return outcomeError
}

// endOf is how a claim ended.
func endOf(claim *v1alpha1.SandboxClaim) string {
	completed := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionCompleted)
	switch conditions := claim.Status.Conditions; {
	case meta.IsStatusConditionTrue(conditions, v1alpha1.ClaimConditionTimedOut):
		return resultTimedOut
	case completed != nil && completed.Status == metav1.ConditionTrue && completed.Reason == v1alpha1.ReasonAllReplicasClaimed:
		return resultCompleted
	case completed != nil && completed.Status == metav1.ConditionTrue:
		return resultRejected
	}
	return resultDeleted
}

// observeWritten counts what a transaction has done for a claim.
func observeWritten(isNew bool, p *plan.Plan) {
	sandboxesBound.WithLabelValues(sourcePool).Add(float64(len(p.Bound)))
	sandboxesBound.WithLabelValues(sourceFresh).Add(float64(len(p.Made)))
	succeeded, failed, released := p.Resizes()
	claimResizes.WithLabelValues(resultSucceeded).Add(float64(succeeded))
	claimResizes.WithLabelValues(resultFailed).Add(float64(failed))
	claimResizes.WithLabelValues(resultReleased).Add(float64(released))
	if !isNew && p.Ends() {
		observeEnd(p.Claim, p.Took())
	}
}

// observeSetup counts the setting up of a runtime.
func observeSetup(err error, took time.Duration) {
	result := resultOK
	if err != nil {
		result = resultFailed
	}
	runtimeSetups.WithLabelValues(result).Observe(took.Seconds())
}

// observeEnd counts the end of a claim that took more than one transaction.
func observeEnd(claim *v1alpha1.SandboxClaim, took time.Duration) {
	claimCompletion.WithLabelValues(endOf(claim)).Observe(took.Seconds())
}

// observeResolved counts what was found out after etcd did not answer.
func observeResolved(err error) {
	switch {
	case err == nil:
		unknownOutcomes.WithLabelValues(resultStored).Inc()
	case errors.Is(err, ErrUnknownOutcome):
		unknownOutcomes.WithLabelValues(resultUnresolved).Inc()
	default:
		unknownOutcomes.WithLabelValues(resultNotStored).Inc()
	}
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
	if err != nil {
		poolReads.WithLabelValues(resultError).Inc()
		span.RecordError(err)
		return nil, 0, err
	}
	poolReads.WithLabelValues(resultRead).Inc()
	span.AddEvent("Read", attribute.Int("sandboxes", len(sandboxes)))
	return sandboxes, asOf, nil
}

// observedTxn times and traces a transaction.
type observedTxn struct {
	Txn
	clock clock.PassiveClock
	// claim: the first object is one.
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
	result := t.result(err)
	transactionDuration.WithLabelValues(result).Observe(t.clock.Since(start).Seconds())
	if err != nil {
		span.AddEvent("Not committed", attribute.String("result", result))
		span.RecordError(err)
	}
	return err
}

// result names how the commit went, and counts what had moved.
func (t *observedTxn) result(err error) string {
	var conflict *etcdtxn.ConflictError
	switch {
	case err == nil:
		return resultCommitted
	case errors.As(err, &conflict):
		for _, moved := range conflict.Moved {
			if t.claim && moved.Index == 0 {
				transactionConflicts.WithLabelValues(movedClaim).Inc()
			} else {
				transactionConflicts.WithLabelValues(movedSandbox).Inc()
			}
		}
		return resultConflict
	case errors.Is(err, etcdtxn.ErrTooLarge):
		return resultTooLarge
	case errors.Is(err, etcdtxn.ErrUnknownOutcome):
		return resultUnknown
	}
	return resultError
}
