// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// ObserveCreate counts how the create of a claim went, which began at start.
func ObserveCreate(claim *v1alpha1.SandboxClaim, sets claims.Sets, outcome string, start time.Time, took time.Duration) {
	claimDuration.WithLabelValues(outcome).Observe(took.Seconds())
	observePool(measuredPools, namedPool(claim, sets), outcome, took, start)
	claimReplicas.Observe(float64(claims.Replicas(claim)))
}

// resultOfEnd has the results of ends of claims, by the outcomes of their creates.
var resultOfEnd = map[string]string{
	OutcomeBound: resultCompleted, OutcomeTimedOut: resultTimedOut, OutcomeDeleted: resultDeleted,
	OutcomeRefused: resultRejected,
}

// OutcomeOfEnd returns the outcome of a create whose claim has ended.
func OutcomeOfEnd(claim *v1alpha1.SandboxClaim) string {
	completed := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionCompleted)
	switch conditions := claim.Status.Conditions; {
	case meta.IsStatusConditionTrue(conditions, v1alpha1.ClaimConditionTimedOut):
		return OutcomeTimedOut
	case completed != nil && completed.Status == metav1.ConditionTrue && completed.Reason == v1alpha1.ReasonAllReplicasClaimed:
		return OutcomeBound
	case completed != nil && completed.Status == metav1.ConditionTrue:
		return OutcomeRefused
	}
	return OutcomeDeleted
}

// ObserveWritten counts what a transaction has done for a claim.
func ObserveWritten(p *plan.Plan, sets claims.Sets, now time.Time) {
	sandboxesBound.WithLabelValues(sourcePool).Add(float64(len(p.Bound)))
	sandboxesBound.WithLabelValues(sourceFresh).Add(float64(len(p.Made)))
	succeeded, failed, released := p.Resizes()
	claimResizes.WithLabelValues(resultSucceeded).Add(float64(succeeded))
	claimResizes.WithLabelValues(resultFailed).Add(float64(failed))
	claimResizes.WithLabelValues(resultReleased).Add(float64(released))
	observeGiven(measuredSources, p, sets, now)
	if v1alpha1.OfAgentSandbox(p.Claim) && p.BecomesReady() {
		observeFirstReady(measuredTemplates, p, now)
	}
}

// ObserveSetup counts the setting up of a runtime.
func ObserveSetup(err error, took time.Duration) {
	result := resultOK
	if err != nil {
		result = resultFailed
	}
	runtimeSetups.WithLabelValues(result).Observe(took.Seconds())
}

// ObserveEnd counts the end of a claim that took more than one transaction.
func ObserveEnd(claim *v1alpha1.SandboxClaim, took time.Duration) {
	claimCompletion.WithLabelValues(resultOfEnd[OutcomeOfEnd(claim)]).Observe(took.Seconds())
}

// ObserveSettled counts what was found out after etcd did not answer: err is nil if the claim is
// stored, and unknown reports whether it is still not known.
func ObserveSettled(err error, unknown bool) {
	switch {
	case err == nil:
		unknownOutcomes.WithLabelValues(resultStored).Inc()
	case unknown:
		unknownOutcomes.WithLabelValues(resultUnresolved).Inc()
	default:
		unknownOutcomes.WithLabelValues(resultNotStored).Inc()
	}
}

// ObservePoolRead counts a read of a pool past the index.
func ObservePoolRead(err error) {
	result := resultRead
	if err != nil {
		result = resultError
	}
	poolReads.WithLabelValues(result).Inc()
}

// ObserveCommit counts how a commit went and which objects had changed, and returns the name of the
// result. withClaim is set if the first object of the transaction is a claim.
func ObserveCommit(err error, withClaim bool, took time.Duration) (result string) {
	conflict, isConflict := errors.AsType[*etcdtxn.ConflictError](err)
	switch {
	case err == nil:
		result = resultCommitted
	case isConflict:
		result = resultConflict
		for _, moved := range conflict.Modified {
			if withClaim && moved.Index == 0 {
				transactionConflicts.WithLabelValues(movedClaim).Inc()
			} else {
				transactionConflicts.WithLabelValues(movedSandbox).Inc()
			}
		}
	case errors.Is(err, etcdtxn.ErrTooLarge):
		result = resultTooLarge
	case errors.Is(err, etcdtxn.ErrUnknownOutcome):
		result = resultUnknown
	default:
		result = resultError
	}
	transactionDuration.WithLabelValues(result).Observe(took.Seconds())
	return result
}
