// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
)

// maxStartFailureMessage is how many bytes the message of the condition Available may have.
// Claims quote it.
const maxStartFailureMessage = 512

// startFailure is why sandboxes of a pool cannot start, or cannot be made.
type startFailure struct {
	// reason and message are the first cause.
	reason, message string
	// sandboxes is how many cannot start; 0 means that they cannot even be made.
	sandboxes int
}

// cause returns the first cause.
func (f *startFailure) cause() string {
	switch {
	case f.message == "":
		return f.reason
	case f.reason == "":
		return f.message
	}
	return f.reason + ": " + f.message
}

// text is what the condition of a set of a name says.
func (f *startFailure) text(set string) string {
	var text string
	switch f.sandboxes {
	case 0:
		text = fmt.Sprintf("SandboxSet %s cannot make sandboxes: %s", set, f.cause())
	case 1:
		text = fmt.Sprintf("1 sandbox of SandboxSet %s cannot start: %s", set, f.cause())
	default:
		text = fmt.Sprintf("%d sandboxes of SandboxSet %s cannot start: %s", f.sandboxes, set, f.cause())
	}
	return report.Truncate(text, maxStartFailureMessage)
}

// whyNotAvailable returns why a sandbox that is neither available nor deleted cannot start.
// The usual steps of a start are no reason, nor is it to be paused, recycled or updated. Nor is a restart of a
// container: most run after it, and those that do not say StartContainerFailed in between.
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
	case v1alpha1.ReasonPodReady, v1alpha1.ReasonInplaceUpdating, v1alpha1.ReasonPending, v1alpha1.ReasonContainerRestarted:
		return "", "", false
	}
	return ready.Reason, ready.Message, ready.Message != ""
}

// failedOf are the failed ones of a revision among sandboxes that have ended.
// They are deleted in the reconcile that finds them.
func failedOf(ended []*v1alpha1.Sandbox, revision string) []*v1alpha1.Sandbox {
	var failed []*v1alpha1.Sandbox
	for _, sandbox := range ended {
		if sandbox.Status.Phase == v1alpha1.SandboxFailed && revisionOf(sandbox) == revision {
			failed = append(failed, sandbox)
		}
	}
	return failed
}

// findStartFailure returns why sandboxes cannot start: the cause of the oldest of those that
// are creating or have just failed, or else why none can be made: createError, if that is not empty. nil is
// that nothing is known to be in their way.
func findStartFailure(o *observation, c *poolCounts, failed []*v1alpha1.Sandbox, createError string) *startFailure {
	var first *v1alpha1.Sandbox
	found := &startFailure{}
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
	case createError != "":
		return &startFailure{message: createError}
	case o.target.unusable != nil && !o.canCreate() && c.unused() < o.desired():
		return &startFailure{reason: o.target.unusable.reason, message: o.target.unusable.message}
	}
	return nil
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
