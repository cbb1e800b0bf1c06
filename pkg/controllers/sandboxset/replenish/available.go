// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
)

const (
	// maxStartFailureMessage is how many bytes the message of the condition Available may have.
	// Claims quote it.
	maxStartFailureMessage = 512
	// tellInterval is the least time between two writes of a status in which nothing
	// but the text of Available differs: schedulers and kubelets reword theirs often.
	tellInterval = 10 * time.Second
	// troubleEventInterval is after what time an event reports the same failure again.
	troubleEventInterval = 15 * time.Minute
)

// startFailure is why sandboxes of a pool cannot start, or cannot be made.
type startFailure struct {
	// reason and message are the first cause.
	reason, message string
	// sandboxes is how many cannot start; 0 means that they cannot even be made.
	sandboxes int
}

// cause returns the first cause.
func (t *startFailure) cause() string {
	switch {
	case t.message == "":
		return t.reason
	case t.reason == "":
		return t.message
	}
	return t.reason + ": " + t.message
}

// text is what the condition of a set of a name says.
func (t *startFailure) text(set string) string {
	var text string
	switch t.sandboxes {
	case 0:
		text = fmt.Sprintf("SandboxSet %s cannot make sandboxes: %s", set, t.cause())
	case 1:
		text = fmt.Sprintf("1 sandbox of SandboxSet %s cannot start: %s", set, t.cause())
	default:
		text = fmt.Sprintf("%d sandboxes of SandboxSet %s cannot start: %s", t.sandboxes, set, t.cause())
	}
	return report.Truncate(text, maxStartFailureMessage)
}

// whyNotAvailable returns why a sandbox that is neither available nor deleted cannot start.
// The usual steps of a start are no reason, nor is it to be paused, recycled or updated.
func whyNotAvailable(sandbox *v1alpha1.Sandbox) (reason, message string, found bool) {
	ready := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
	if ready != nil && ready.Status != metav1.ConditionFalse {
		ready = nil
		if c := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized); c != nil && c.Status == metav1.ConditionFalse {
			return v1alpha1.ReasonRuntimeInitFailed, c.Message, c.Message != ""
		}
	}
	if sandbox.Status.Phase == v1alpha1.SandboxFailed {
		if ready == nil || ready.Reason == v1alpha1.ReasonPodReady {
			if ready != nil {
				message = ready.Message
			}
			return string(v1alpha1.SandboxFailed), cmp.Or(message, sandbox.Status.Message), true
		}
		return ready.Reason, ready.Message, true
	}
	if ready == nil {
		return "", "", false
	}
	switch ready.Reason {
	case v1alpha1.ReasonPodReady, v1alpha1.ReasonInplaceUpdating, v1alpha1.ReasonPending:
		return "", "", false
	}
	return ready.Reason, ready.Message, ready.Message != ""
}

// failedOf are the failed ones among the sandboxes of the current revision that have ended.
// They are deleted in the reconcile that finds them.
func (o *observation) failedOf(c *poolCounts) []*v1alpha1.Sandbox {
	var failed []*v1alpha1.Sandbox
	for _, sandbox := range c.ended {
		if sandbox.Status.Phase == v1alpha1.SandboxFailed && revisionOf(sandbox) == o.revision {
			failed = append(failed, sandbox)
		}
	}
	return failed
}

// findStartFailure returns why sandboxes cannot start: the cause of the oldest of those that
// are starting or have just failed, or else why none can be made. nil is that nothing
// is known to be in their way.
func (o *observation) findStartFailure(c *poolCounts) *startFailure {
	var first *v1alpha1.Sandbox
	found := &startFailure{}
	failed := o.failed
	if c.updatedAvailable > 0 {
		failed = nil // others do start; this one may have been lost later
	}
	for _, sandboxes := range [][]*v1alpha1.Sandbox{c.creating, failed} {
		for _, sandbox := range sandboxes {
			reason, message, stuck := whyNotAvailable(sandbox)
			if !stuck {
				continue
			}
			found.sandboxes++
			if first == nil || byAge(sandbox, first) < 0 {
				first, found.reason, found.message = sandbox, reason, message
			}
		}
	}
	switch {
	case first != nil:
		return found
	case o.createError != "":
		return &startFailure{message: o.createError}
	case o.templateProblem != nil && !o.canCreate() && c.unused() < o.desired():
		return &startFailure{reason: o.templateProblem.reason, message: o.templateProblem.message}
	}
	return nil
}

// setAvailable sets whether the pool has something to claim, and what is in its way.
// While sandboxes of a revision fail, and are made anew at growing intervals, what was
// reported of the last ones stays: those that start now prove nothing yet.
func (o *observation) setAvailable(status *v1alpha1.SandboxSetStatus, c *poolCounts, t *startFailure) {
	const kind = v1alpha1.SetConditionAvailable
	text := ""
	if t != nil {
		text = t.text(o.set.Name)
	} else if o.failing && c.updatedAvailable == 0 {
		text = o.reportedStartFailure()
	}
	switch {
	case len(c.available) > 0:
		o.setCondition(status, kind, metav1.ConditionTrue, v1alpha1.ReasonSandboxesAvailable, text)
	case o.desired() == 0:
		o.setCondition(status, kind, metav1.ConditionTrue, v1alpha1.ReasonNoSandboxesWanted, text)
	case text != "":
		o.setCondition(status, kind, metav1.ConditionFalse, v1alpha1.ReasonSandboxesCannotStart, text)
	default:
		o.setCondition(status, kind, metav1.ConditionFalse, v1alpha1.ReasonSandboxesStarting,
			fmt.Sprintf("Sandboxes of SandboxSet %s are starting", o.set.Name))
	}
}

// reportedStartFailure is what Available says of the revision until now.
func (o *observation) reportedStartFailure() string {
	before := meta.FindStatusCondition(o.set.Status.Conditions, v1alpha1.SetConditionAvailable)
	if before == nil || before.Reason == v1alpha1.ReasonSandboxesStarting || before.Message == "" ||
		o.set.Status.UpdateRevision != o.revision {
		return fmt.Sprintf("Sandboxes of SandboxSet %s fail or end and are replaced at growing intervals", o.set.Name)
	}
	return before.Message
}

// setRolledOut sets whether the pool has been full at the revision that the spec asks
// for. Once it has been, it stays so until the spec or the revision changes: what claims
// take away, or what fails later, is no matter of the roll-out.
func (o *observation) setRolledOut(status *v1alpha1.SandboxSetStatus, c *poolCounts) {
	const kind = v1alpha1.SetConditionRolledOut
	before := meta.FindStatusCondition(o.set.Status.Conditions, kind)
	stays := before != nil && before.Status == metav1.ConditionTrue &&
		before.ObservedGeneration == o.set.Generation && o.set.Status.UpdateRevision == o.revision
	older := c.unused() - c.updated()
	message := fmt.Sprintf("%d of %d sandboxes are of the current revision and available", c.updatedAvailable, o.replicas())
	if older > 0 {
		message += fmt.Sprintf(", %d are of an older one", older)
	}
	switch {
	case o.templateProblem != nil:
		o.setCondition(status, kind, metav1.ConditionFalse, v1alpha1.ReasonRollingOut, report.Truncate(
			fmt.Sprintf("The template cannot be used: %s: %s", o.templateProblem.reason, o.templateProblem.message), maxStartFailureMessage))
	case stays, o.templateErr == nil && older == 0 && c.updatedAvailable >= o.replicas():
		o.setCondition(status, kind, metav1.ConditionTrue, v1alpha1.ReasonRolledOut, "")
	case o.templateErr != nil:
		o.setCondition(status, kind, metav1.ConditionFalse, v1alpha1.ReasonRollingOut,
			"The revision cannot be held in a SandboxTemplate for the moment, and is tried again")
	default:
		o.setCondition(status, kind, metav1.ConditionFalse, v1alpha1.ReasonRollingOut, message)
	}
}

// createErrorMessage returns the server's answer to the create of a sandbox, if it is one that may
// stay (a quota, a policy, a webhook, a write limit) and no failure of the moment, and "" otherwise.
// The name of the sandbox is left out: it is another one each time.
func createErrorMessage(err error, name string) string {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return ""
	}
	status := answer.Status()
	switch status.Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotAcceptable,
		http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusInternalServerError:
		return report.Truncate(strings.ReplaceAll(status.Message, fmt.Sprintf(" %q", name), ""), maxStartFailureMessage)
	}
	return ""
}

// conditionThrottle limits how often conditions and events about failing sandboxes are written.
// After a restart the first one is written at once.
type conditionThrottle struct {
	// written is when a status was last written with a change of one of spacedConditions.
	written time.Time
	// reason is that of the last event, and told when that was.
	reason string
	told   time.Time
}

// spacedConditions are the conditions whose messages change with each sandbox that fails.
var spacedConditions = []string{v1alpha1.SetConditionAvailable, v1alpha1.SetConditionScalingLimited}

// spaced limits how often a status is written for a reason or message of spacedConditions alone.
// If one was written a short time ago, it returns a status with these conditions as before, and
// after what time to look again.
func (m *conditionThrottle) spaced(before, status *v1alpha1.SandboxSetStatus, now time.Time) (*v1alpha1.SandboxSetStatus, time.Duration) {
	same, differs := status.DeepCopy(), false
	for _, kind := range spacedConditions {
		was, is := meta.FindStatusCondition(before.Conditions, kind), meta.FindStatusCondition(same.Conditions, kind)
		if was == nil || is == nil || equality.Semantic.DeepEqual(was, is) {
			continue
		}
		differs = true
		if was.Status == is.Status && was.ObservedGeneration == is.ObservedGeneration {
			*is = *was
		}
	}
	if !differs {
		return status, 0
	}
	wait := m.written.Add(tellInterval).Sub(now)
	if wait <= 0 || !equality.Semantic.DeepEqual(before, same) {
		m.written = now
		return status, 0
	}
	return same, wait
}

// eventDue reports whether an event has to report a failure: when it begins, when its
// reason changes, and again after a long time.
func (m *conditionThrottle) eventDue(t *startFailure, now time.Time) bool {
	if t == nil || t.sandboxes == 0 {
		return false // events of their own report what cannot be made
	}
	if t.reason == m.reason && now.Before(m.told.Add(troubleEventInterval)) {
		return false
	}
	m.reason, m.told = t.reason, now
	return true
}
