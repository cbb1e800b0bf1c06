// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
)

// maxMessage is how long the message of a condition may be here. The API takes 32768
// bytes, which is more than a reader does.
const maxMessage = 2048

const (
	// reasonFailedWrite is a reason of the condition ReplicaFailure: a sandbox could not be
	// created or deleted, or a SandboxTemplate of a revision. The message is the server's.
	reasonFailedWrite = "FailedWrite"
	// reasonSandboxesFail is a reason of the condition ReplicaFailure: sandboxes of the
	// current template fail or end, and are replaced at growing intervals.
	reasonSandboxesFail = "SandboxesFail"
)

// replicaFailure is what the condition ReplicaFailure should say, or nil.
func replicaFailure(writeErr error, backoff time.Duration) *problem {
	switch {
	case writeErr != nil:
		return newProblem(reasonFailedWrite, writeErr)
	case backoff > 0:
		return &problem{reasonSandboxesFail, "Sandboxes of the current template fail or end and are replaced at growing intervals"}
	}
	return nil
}

func (b *statusBuilder) setCondition(conditionType string, value metav1.ConditionStatus, reason, message string) {
	o := b.o
	meta.SetStatusCondition(&b.status.Conditions, metav1.Condition{
		Type: conditionType, Status: value, Reason: reason, Message: message,
		ObservedGeneration: o.set.Generation,
		LastTransitionTime: metav1.NewTime(o.now),
	})
}

// setResolved sets whether the template that the spec refers to could be used.
func (b *statusBuilder) setResolved() {
	o := b.o
	switch {
	case o.set.Spec.Template != nil:
		meta.RemoveStatusCondition(&b.status.Conditions, v1alpha1.SetConditionTemplateResolved)
	case o.target.unusable != nil:
		b.setCondition(v1alpha1.SetConditionTemplateResolved, metav1.ConditionFalse, o.target.unusable.reason, o.target.unusable.message)
	default:
		message := ""
		if len(o.target.chain) > 0 {
			message = fmt.Sprintf("The pod template is that of %s", strings.Join(o.target.chain, " -> "))
		}
		b.setCondition(v1alpha1.SetConditionTemplateResolved, metav1.ConditionTrue, v1alpha1.ReasonResolved, message)
	}
}

// setAccepted sets whether the cluster takes pods of the revision: surely, once one
// is available, whatever comes later. What was reported of the same revision before
// stays, because a restart forgets it otherwise; and it stays as it is, with the
// generation that it is about, while the set serves on at that revision because what
// it asks for now cannot be used, or not be held yet.
func (b *statusBuilder) setAccepted() {
	o := b.o
	if !o.hasCluster || o.target.unusable != nil || o.target.holderErr != nil {
		return
	}
	const conditionType = v1alpha1.SetConditionTemplateAccepted
	before := meta.FindStatusCondition(o.set.Status.Conditions, conditionType)
	if o.set.Status.UpdateRevision != o.target.revision {
		before = nil
	}
	switch {
	case b.counts.updatedAvailable > 0,
		before != nil && before.Status == metav1.ConditionTrue,
		o.dryRun != nil && len(o.dryRun.warnings) == 0:
		b.setCondition(conditionType, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
	case o.dryRun != nil:
		b.setCondition(conditionType, metav1.ConditionUnknown, v1alpha1.ReasonWarned,
			report.Truncate(strings.Join(o.dryRun.warnings, "; "), maxMessage))
	case before != nil:
		b.setCondition(conditionType, before.Status, before.Reason, before.Message)
	default:
		meta.RemoveStatusCondition(&b.status.Conditions, conditionType)
	}
}

// setAvailable sets whether the pool has something to claim, and what is in its way.
// While sandboxes of a revision fail, and are made anew at growing intervals, what was
// reported of the last ones stays: those that start now prove nothing yet.
func (b *statusBuilder) setAvailable() {
	o, c := b.o, b.counts
	const conditionType = v1alpha1.SetConditionAvailable
	text := ""
	if b.startFailure != nil {
		text = b.startFailure.text(o.set.Name)
	} else if b.isFailing && c.updatedAvailable == 0 {
		text = b.reportedStartFailure()
	}
	switch {
	case len(c.available) > 0:
		b.setCondition(conditionType, metav1.ConditionTrue, v1alpha1.ReasonSandboxesAvailable, text)
	case o.desired() == 0:
		b.setCondition(conditionType, metav1.ConditionTrue, v1alpha1.ReasonNoSandboxesWanted, text)
	case text != "":
		b.setCondition(conditionType, metav1.ConditionFalse, v1alpha1.ReasonSandboxesCannotStart, text)
	default:
		b.setCondition(conditionType, metav1.ConditionFalse, v1alpha1.ReasonSandboxesStarting,
			fmt.Sprintf("Sandboxes of SandboxSet %s are starting", o.set.Name))
	}
}

// reportedStartFailure is what Available says of the revision until now.
func (b *statusBuilder) reportedStartFailure() string {
	o := b.o
	before := meta.FindStatusCondition(o.set.Status.Conditions, v1alpha1.SetConditionAvailable)
	if before == nil || before.Reason == v1alpha1.ReasonSandboxesStarting || before.Message == "" ||
		o.set.Status.UpdateRevision != o.target.revision {
		return fmt.Sprintf("Sandboxes of SandboxSet %s fail or end and are replaced at growing intervals", o.set.Name)
	}
	return before.Message
}

// setRolledOut sets whether the pool has been full at the revision that the spec asks
// for. Once it has been, it stays so until the spec or the revision changes: what claims
// take away, or what fails later, is no matter of the roll-out.
func (b *statusBuilder) setRolledOut() {
	o, c := b.o, b.counts
	const conditionType = v1alpha1.SetConditionRolledOut
	before := meta.FindStatusCondition(o.set.Status.Conditions, conditionType)
	stays := before != nil && before.Status == metav1.ConditionTrue &&
		before.ObservedGeneration == o.set.Generation && o.set.Status.UpdateRevision == o.target.revision
	older := c.unused() - c.updated()
	message := fmt.Sprintf("%d of %d sandboxes are of the current revision and available", c.updatedAvailable, o.replicas())
	if older > 0 {
		message += fmt.Sprintf(", %d are of an older one", older)
	}
	switch {
	case o.target.unusable != nil:
		b.setCondition(conditionType, metav1.ConditionFalse, v1alpha1.ReasonRollingOut, report.Truncate(
			fmt.Sprintf("The template cannot be used: %s: %s", o.target.unusable.reason, o.target.unusable.message), maxStartFailureMessage))
	case stays, o.target.holderErr == nil && older == 0 && c.updatedAvailable >= o.replicas():
		b.setCondition(conditionType, metav1.ConditionTrue, v1alpha1.ReasonRolledOut, "")
	case o.target.holderErr != nil:
		b.setCondition(conditionType, metav1.ConditionFalse, v1alpha1.ReasonRollingOut,
			"The revision cannot be held in a SandboxTemplate for the moment, and is tried again")
	default:
		b.setCondition(conditionType, metav1.ConditionFalse, v1alpha1.ReasonRollingOut, message)
	}
}

// setScalingLimited sets the condition ScalingLimited: true if the sandboxes that fail to start use
// up the budget. Without maxUnavailable the budget is all unused sandboxes of the pool.
func (b *statusBuilder) setScalingLimited() {
	o, c := b.o, b.counts
	budget, isLimited, err := o.startBudget()
	if err != nil || !isLimited {
		budget = c.unused()
	}
	budget = max(budget, 1)
	blocked := &c.blocked
	value, reason := metav1.ConditionFalse, v1alpha1.ReasonStartupBudgetAvailable
	if blocked.total() >= budget {
		value, reason = metav1.ConditionTrue, v1alpha1.ReasonStartupBudgetExhausted
	}
	b.setCondition(v1alpha1.SetConditionScalingLimited, value, reason,
		fmt.Sprintf("%d of %d startup slots are blocked: Timeout=%d, Failed=%d", blocked.total(), budget, blocked.timedOut, blocked.failed))
}
