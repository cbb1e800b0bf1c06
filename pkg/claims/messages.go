// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// The message of a claim says in words what its status says by fields, after the words of
// OpenKruise. It is made from the fields, and nothing reads it. Its parts are separated by Apart,
// which a cause does not contain.

const (
	// Apart is between the parts of a claim's message.
	Apart = "; "
	// MaxFailures is how many failures the status of a claim lists.
	MaxFailures = 3
	// MaxFailureMessage bounds what a claim says of the failure of one sandbox, in bytes.
	MaxFailureMessage = 256
	// maxCause bounds what is said of why sandboxes cannot start, in bytes.
	maxCause = 512
)

// WaitingMessage returns what follows the number of claimed sandboxes in the message of a claim
// that waits. pool names what it waits for.
func WaitingMessage(w *v1alpha1.ClaimWaiting, pool string) string {
	var message strings.Builder
	if w.StartProblem != "" {
		be := "are"
		if w.Starting == 1 {
			be = "is"
		}
		fmt.Fprintf(&message, "%s%s %s being started: %s", Apart, countedSandboxes(w.Starting), be, w.StartProblem)
	}
	if w.Replicas > 0 {
		fmt.Fprintf(&message, "%swaits for %s of %s", Apart, countedSandboxes(w.Replicas), pool)
		if w.PoolProblem != "" {
			message.WriteString(": " + w.PoolProblem)
		}
	}
	return message.String()
}

// PreviewMessage returns what a dry run adds to the message of a claim for which a create would
// make n sandboxes.
func PreviewMessage(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s%s would be made for it", Apart, countedSandboxes(int32(n)))
}

// EndMessage returns what follows the first part of the message of a claim that ended short, if
// it is known why the sandboxes that it waited for could not start.
func EndMessage(cause string) string {
	if cause == "" {
		return ""
	}
	return Apart + cause
}

// FailuresMessage returns what a claim's message says of sandboxes that failed while they were
// prepared for it.
func FailuresMessage(status *v1alpha1.SandboxClaimStatus) string {
	listed := status.Failures[:min(len(status.Failures), MaxFailures)] // of which a client may have written more
	if len(listed) == 0 {
		return ""
	}
	var message strings.Builder
	fmt.Fprintf(&message, "%s%d failed in preparation: ", Apart, status.FailedReplicas)
	for i := range listed {
		if i > 0 {
			message.WriteString(Apart)
		}
		message.WriteString(FailureMessage(&listed[i]))
	}
	if more := int(status.FailedReplicas) - len(listed); more > 0 {
		fmt.Fprintf(&message, "%sand %d more", Apart, more)
	}
	return message.String()
}

// FailureMessage returns what a message says of one sandbox that failed.
func FailureMessage(f *v1alpha1.SandboxFailure) string {
	return Cut(f.Name+": "+f.Message, MaxFailureMessage)
}

// CreateProblem returns what a claim says of why no sandboxes can be created for it.
func CreateProblem(err error) string { return truncate(err.Error(), maxCause) }

// CreateProblemMessage returns what the message of a claim says of why no sandboxes can be
// created for it.
func CreateProblemMessage(problem string) string {
	return Apart + "no fresh sandboxes can be made: " + problem
}

// HasStartProblem reports whether it is known why sandboxes that a claim waits for cannot start.
func HasStartProblem(claim *v1alpha1.SandboxClaim) bool {
	w := claim.Status.Waiting
	return w != nil && (w.StartProblem != "" || w.Replicas > 0 && w.PoolProblem != "")
}

// HasCreateProblem reports whether no sandboxes can be created for a claim that lacks some. It is
// how servers know that do not work on the claim.
func HasCreateProblem(claim *v1alpha1.SandboxClaim) bool {
	return claim.Status.Waiting != nil && claim.Status.Waiting.CreateProblem != ""
}

// NeedsPool reports whether a claim waits for a pool, or only a pool could serve it.
func NeedsPool(claim *v1alpha1.SandboxClaim) bool {
	return claim.Status.Waiting != nil && claim.Status.Waiting.Replicas > 0 || HasCreateProblem(claim)
}

// CannotStart is why sandboxes cannot start of the first of these sets that says so; empty
// if none does.
func CannotStart(sets []*v1alpha1.SandboxSet) string {
	for _, set := range sets {
		available := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionAvailable)
		if available == nil || available.Status != metav1.ConditionFalse || available.Reason != v1alpha1.ReasonSandboxesCannotStart {
			continue
		}
		return Cause(cmp.Or(available.Message, fmt.Sprintf("sandboxes of SandboxSet %s cannot start", set.Name)))
	}
	return ""
}

// StartProblem is why a sandbox that is starting may not come to be ready, as its condition
// Ready tells; empty if that is not known.
func StartProblem(sb *v1alpha1.Sandbox) string {
	ready := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return ""
	}
	switch reason := ready.Reason; reason {
	case "", v1alpha1.ReasonPending, v1alpha1.ReasonInplaceUpdating, v1alpha1.ReasonCreatePod, v1alpha1.ReasonPodReady:
		return "" // the usual steps of a start
	default:
		if ready.Message == "" {
			return reason
		}
		return Cause(reason + ": " + ready.Message)
	}
}

// Cause makes a text fit into a claim's message.
func Cause(text string) string { return Cut(strings.TrimSpace(text), maxCause) }

// Cut cuts a text to a number of bytes, and replaces what separates the parts of a message.
func Cut(text string, most int) string {
	return truncate(strings.ReplaceAll(text, Apart, ", "), most)
}

// truncate cuts a text to a number of bytes, between two characters.
func truncate(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len("...")], "") + "..."
	}
	return text
}

func countedSandboxes(n int32) string {
	if n == 1 {
		return "1 sandbox"
	}
	return fmt.Sprintf("%d sandboxes", n)
}
