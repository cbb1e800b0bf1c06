// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// What the message of a claim says of its wait, after the words of OpenKruise: how far it
// is from the front, and why what it waits for cannot start. The parts of a message are
// separated by Apart, which a cause cannot have in it.

const (
	// Apart is between the parts of a claim's message.
	Apart = "; "
	// NoneAreMade is what is before the part that tells why no fresh sandboxes are made for
	// a claim that lacks some.
	NoneAreMade = Apart + "no fresh sandboxes can be made: "
	// Front is how many claims of a line are told how many are before them. Those behind
	// are told that it is more than that, which stays true for long, so that it need not be
	// written again for each of thousands whenever one of them is served.
	Front = 10
	// maxCannotStart bounds what is told of why sandboxes cannot start, in bytes.
	maxCannotStart = 512

	waitsFor     = Apart + "waits for "
	beingStarted = " being started: "
	cannotStart  = "cannot start: "
	wouldBeMade  = " would be made for it"
)

// Line is how things stand in line for a claim that waits.
type Line struct {
	// Available is how many sandboxes its pools have, also such as are kept for others.
	Available int
	// Before is how many claims have their turn before it, as things are: Front+1 means
	// that there are more than Front.
	Before int
}

// WaitMessage is the part of a claim's message that tells of what it waits for: need
// sandboxes of a pool, where it stands, if that is known, and why they cannot start, if
// that is known.
func WaitMessage(need int, pool string, line *Line, cause string) string {
	if line == nil && cause == "" {
		return ""
	}
	message := fmt.Sprintf("%s%s of %s", waitsFor, counted(need, "sandbox", "sandboxes"), pool)
	if line != nil {
		message += fmt.Sprintf(" (%s available, %s before it)", upToFront(line.Available), beforeIt(line.Before))
	}
	if cause != "" {
		message += ": " + cause
	}
	return message
}

// StartMessage is the part of a claim's message that tells why sandboxes that it holds do
// not start, if that is known.
func StartMessage(n int, cause string) string {
	if cause == "" {
		return ""
	}
	be := "are"
	if n == 1 {
		be = "is"
	}
	return fmt.Sprintf("%s%s %s%s%s", Apart, counted(n, "sandbox", "sandboxes"), be, beingStarted, cause)
}

// WouldMakeMessage is the part of the message of a claim that is shown by a dry run which
// tells how many sandboxes would be made for it.
func WouldMakeMessage(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s%s%s", Apart, counted(n, "sandbox", "sandboxes"), wouldBeMade)
}

// OnlyWouldMake reports whether what a claim's message says beside its numbers is only what
// WouldMakeMessage adds.
func OnlyWouldMake(said string) bool {
	return strings.HasSuffix(said, wouldBeMade) && !strings.Contains(said, Apart)
}

// EndMessage is the part of the message of a claim that ended short that tells why the
// sandboxes that it waited for could not start, if that is known.
func EndMessage(cause string) string {
	if cause == "" {
		return ""
	}
	return Apart + cause
}

// WithoutWait is a claim's message without what WaitMessage and StartMessage added to it.
func WithoutWait(message string) string {
	parts := strings.Split(message, Apart)
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool {
		return strings.HasPrefix(Apart+part, waitsFor) || strings.Contains(part, beingStarted)
	}), Apart)
}

// WaitsForPool reports whether a claim's message says that it waits for a pool, or that
// nothing else can serve it.
func WaitsForPool(message string) bool {
	return strings.Contains(message, waitsFor) || strings.Contains(message, NoneAreMade)
}

// TellsCause reports whether a claim's message says why what it waits for cannot start.
func TellsCause(message string) bool {
	return waitCause.MatchString(message) || strings.Contains(message, beingStarted)
}

var waitCause = regexp.MustCompile(waitsFor + `\d+ sandbox(es)? of [^(:;]+(\([^)]*\))?: `)

// CannotStart is why sandboxes cannot start of the first of these sets that says so; empty
// if none does.
func CannotStart(sets []*v1alpha1.SandboxSet) string {
	for _, set := range sets {
		available := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionAvailable)
		if available == nil || available.Status != metav1.ConditionFalse || available.Reason != v1alpha1.ReasonSandboxesCannotStart {
			continue
		}
		message := available.Message
		if !strings.Contains(message, set.Name) {
			message = fmt.Sprintf("sandboxes of SandboxSet %s %s%s", set.Name, cannotStart, cmp.Or(message, available.Reason))
		}
		return Cause(message)
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
	case "", v1alpha1.ReasonPending, v1alpha1.ReasonInplaceUpdating, v1alpha1.ReasonCreatePod:
		return ""
	case v1alpha1.ReasonPodReady: // which tells of pods that start well, too
		if !strings.HasPrefix(ready.Message, "Unschedulable") && !strings.HasPrefix(ready.Message, "SchedulingGated") {
			return ""
		}
		return Cause(ready.Message)
	default:
		if ready.Message == "" {
			return reason
		}
		return Cause(reason + ": " + ready.Message)
	}
}

// Cause makes a text fit into a claim's message: it is cut, and ends no part of it.
func Cause(text string) string { return cut(strings.TrimSpace(text), maxCannotStart) }

// cut cuts a text to a number of bytes, and takes what separates parts out of it.
func cut(text string, most int) string {
	return truncate(strings.ReplaceAll(text, Apart, ", "), most)
}

// truncate cuts a text to a number of bytes, between two characters.
func truncate(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len("...")], "") + "..."
	}
	return text
}

func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func upToFront(n int) string {
	if n > Front {
		return fmt.Sprintf("more than %d", Front)
	}
	return fmt.Sprint(n)
}

func beforeIt(n int) string {
	switch n {
	case 0:
		return "no claims"
	case 1:
		return "1 claim"
	}
	return upToFront(n) + " claims"
}
