// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
)

// rank says which of the causes for which a claim is not ready is reported: the first.
type rank int

const (
	missing rank = iota
	failed
	succeeded
	paused
	notReady
	well
)

// cause is why a claim is not ready on account of one sandbox.
type cause struct {
	rank   rank
	reason string
	// text is what is said of the sandbox.
	text string
}

// causeOf returns what is wrong with a sandbox, nil being none.
func causeOf(sandbox *v1alpha1.Sandbox) cause {
	if sandbox == nil {
		return cause{missing, v1alpha1.ReasonSandboxMissing, v1alpha1.SandboxMissingMessage}
	}
	ready := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
	if ready == nil {
		ready = &metav1.Condition{}
	}
	detailed := func(text string) string {
		if ready.Status != metav1.ConditionFalse || ready.Message == "" {
			return text
		}
		return text + ": " + ready.Message
	}
	switch phase := sandbox.Status.Phase; {
	case phase == v1alpha1.SandboxFailed:
		return cause{failed, v1alpha1.ReasonPodFailed, cmp.Or(lossOf(ready), detailed(v1alpha1.PodFailedMessage))}
	case phase == v1alpha1.SandboxSucceeded:
		return cause{succeeded, v1alpha1.ReasonPodSucceeded, v1alpha1.PodSucceededMessage}
	case sandbox.DeletionTimestamp != nil:
		return cause{notReady, v1alpha1.ReasonSandboxNotReady, "Sandbox is being deleted"}
	case sandbox.Spec.Paused || phase == v1alpha1.SandboxPaused:
		return cause{paused, v1alpha1.ReasonSandboxPaused, "Sandbox is paused"}
	case phase == v1alpha1.SandboxResuming:
		return cause{paused, v1alpha1.ReasonSandboxPaused, "Sandbox is being resumed"}
	case ready.Status == metav1.ConditionTrue && phase == v1alpha1.SandboxRunning:
		return cause{rank: well}
	}
	return cause{notReady, unreadyReason(ready), detailed("Sandbox is not ready")}
}

// lossOf is how a sandbox that failed says that it was lost, such as "Evicted: The node was
// low on memory"; nothing where it does not say more than that its pod failed.
func lossOf(ready *metav1.Condition) string {
	switch {
	case ready.Status != metav1.ConditionFalse, ready.Reason == "",
		ready.Reason == v1alpha1.ReasonPodReady, ready.Reason == v1alpha1.ReasonPodFailed:
		return ""
	case ready.Message == "":
		return ready.Reason
	}
	return ready.Reason + ": " + ready.Message
}

// unreadyReason is why a sandbox is not ready, as far as it says so itself.
func unreadyReason(ready *metav1.Condition) string {
	if ready.Status != metav1.ConditionFalse || ready.Reason == v1alpha1.ReasonPodReady {
		return v1alpha1.ReasonSandboxNotReady
	}
	return cmp.Or(ready.Reason, v1alpha1.ReasonSandboxNotReady)
}

// tally counts the members of a claim by what is wrong with them.
type tally struct {
	// first and who are the cause that is reported, and the first sandbox of which it is true.
	first cause
	who   string
	// same is how many have a cause of that rank, of all.
	same, all int
	// there is how many sandboxes exist, and ended and failed how many of these have ended.
	there, ended, failed int
}

func count(all []member) tally {
	t := tally{first: cause{rank: well}, all: len(all)}
	for i := range all {
		sandbox := all[i].sandbox
		if sandbox != nil {
			t.there++
			if hasEnded(sandbox) {
				t.ended++
			}
			if sandbox.Status.Phase == v1alpha1.SandboxFailed {
				t.failed++
			}
		}
		switch c := causeOf(sandbox); {
		case c.rank == well:
		case c.rank < t.first.rank:
			t.first, t.who, t.same = c, all[i].entry.Name, 1
		case c.rank == t.first.rank:
			t.same++
		}
	}
	return t
}

// message describes the first cause. A claim of one sandbox says of what is missing
// just that, as in agent-sandbox.
func (t tally) message() string {
	switch {
	case t.first.rank == missing && t.all == 1:
		return t.first.text
	case t.first.rank == missing:
		return fmt.Sprintf("%s: %s", t.first.text, t.named())
	}
	who := t.named()
	if t.first.rank == failed {
		who = "sandbox " + who
	}
	return report.Truncate(fmt.Sprintf("%s: %s", who, t.first.text), report.MaxNote)
}

// finished returns the reason and the message of Finished, and reports whether the claim
// has: all of its sandboxes that exist have ended, and there are some, or need be none.
func (t tally) finished(withoutAny bool) (reason, message string, ok bool) {
	if t.there == 0 && withoutAny && t.all > 0 {
		return v1alpha1.ReasonSandboxMissing, v1alpha1.SandboxMissingMessage, true
	}
	if t.there == 0 || t.ended < t.there {
		return "", "", false
	}
	reason, message = v1alpha1.ReasonPodSucceeded, v1alpha1.PodSucceededMessage
	if t.failed > 0 {
		reason, message = v1alpha1.ReasonPodFailed, v1alpha1.PodFailedMessage
	}
	if t.all > 1 {
		message = fmt.Sprintf("%d of %d sandboxes ended, %d of them failed", t.ended, t.all, t.failed)
	}
	return reason, message, true
}

// named names the first sandbox, and how many others there are like it.
func (t tally) named() string {
	if t.all == 1 {
		return t.who
	}
	return fmt.Sprintf("%s (%d of %d)", cmp.Or(t.who, "none"), t.same, t.all)
}
