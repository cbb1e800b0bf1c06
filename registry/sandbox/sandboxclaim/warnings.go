// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	rules "github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// maxWhy bounds what a warning quotes of a claim's message. The server cuts the warnings
// of an answer when they are too long together, at the end of the one that is last.
const maxWhy = 400

// warnIfShort warns the creator of a claim that it has not got all it asked for, and why,
// as far as the claim says so. preview is whether it is a dry run.
func warnIfShort(ctx context.Context, claim *v1alpha1.SandboxClaim, preview bool) {
	if text := shortWarning(claim, preview); text != "" {
		base.Warn(ctx, []string{text})
	}
}

// shortWarning returns the warning of warnIfShort; empty for a claim that got all.
//
// The preview of an unfinished claim does not show how the work would continue: there is a
// warning only if something is in its way.
func shortWarning(claim *v1alpha1.SandboxClaim, preview bool) string {
	if v1alpha1.OfAgentSandbox(claim) {
		return agentWarning(claim)
	}
	claimed, wanted := claim.Status.ClaimedReplicas, ptr.Deref(claim.Spec.Replicas, 1)
	ended := claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted
	if ended && claimed >= wanted {
		return ""
	}
	waiting := ptr.Deref(claim.Status.Waiting, v1alpha1.ClaimWaiting{})
	goesOn := !ended && waiting.Reason == ""
	why := claim.Status.Message
	if goesOn { // the numbers are reported already
		if preview && !rules.HasStartProblem(claim) && !rules.HasCreateProblem(claim) {
			return ""
		}
		why = whyNotYet(claim, &waiting)
	}
	text := fmt.Sprintf("claimed %d/%d", claimed, wanted)
	if goesOn {
		text += " so far"
	}
	if why != "" {
		text += ": " + plain(why)
	}
	switch {
	case preview:
		return "dry run: " + text
	case ended:
		return text
	}
	return text + fmt.Sprintf("; it continues in the background: kubectl get sandboxclaim %s --namespace %s --watch", claim.Name, claim.Namespace)
}

// whyNotYet returns what an unfinished claim waits for.
func whyNotYet(claim *v1alpha1.SandboxClaim, waiting *v1alpha1.ClaimWaiting) string {
	asked, _ := v1alpha1.AskedOf(claim)
	why := rules.WaitingMessage(waiting, asked) + rules.FailuresMessage(&claim.Status)
	if waiting.CreateProblem != "" {
		why += rules.CreateProblemMessage(waiting.CreateProblem)
	}
	return strings.TrimPrefix(why, rules.Apart)
}

// plain is a text as a header takes it: in one line, and bounded.
func plain(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(text) > maxWhy {
		text = strings.ToValidUTF8(text[:maxWhy], "") + "..."
	}
	return text
}
