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

// warnIfShort tells who creates a claim that it has not got all it asked for, and why, as
// far as the claim says so. preview is whether it is a dry run.
func warnIfShort(ctx context.Context, claim *v1alpha1.SandboxClaim, preview bool) {
	if text := shortWarning(claim, preview); text != "" {
		base.Warn(ctx, []string{text})
	}
}

// shortWarning is empty for a claim that got all.
//
// The preview of a claim that goes on knows nothing of what happens then: it is warned of
// only if something is in its way.
func shortWarning(claim *v1alpha1.SandboxClaim, preview bool) string {
	if v1alpha1.OfAgentSandbox(claim) {
		return agentWarning(claim)
	}
	claimed, wanted := claim.Status.ClaimedReplicas, ptr.Deref(claim.Spec.Replicas, 1)
	ended := claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted
	if ended && claimed >= wanted {
		return ""
	}
	missing := missingOf(claim)
	why := missing
	if why == "" {
		why = plain(claim.Status.Message)
	}
	if !ended && missing == "" {
		// The numbers are told already.
		why = strings.TrimLeft(strings.TrimPrefix(why, v1alpha1.ClaimingMessage(claimed, wanted)), ":;,. ")
		if preview && (why == "" || rules.OnlyWouldMake(why)) {
			return ""
		}
	}
	text := fmt.Sprintf("claimed %d/%d", claimed, wanted)
	if !ended && missing == "" {
		text += " so far"
	}
	if why != "" {
		text += ": " + why
	}
	switch {
	case preview:
		return "dry run: " + text
	case ended:
		return text
	}
	return text + fmt.Sprintf("; it goes on in the background: kubectl get sandboxclaim %s --namespace %s --watch", claim.Name, claim.Namespace)
}

// missingOf says which set or template that a claim names does not exist; empty if its
// message says nothing like that.
func missingOf(claim *v1alpha1.SandboxClaim) string {
	asked, _ := v1alpha1.AskedOf(claim)
	for _, name := range []string{claim.Spec.WarmPool, asked} {
		for kind, message := range map[string]string{
			"SandboxSet":      v1alpha1.SandboxSetNotFoundMessage(claim.Namespace, name),
			"SandboxTemplate": v1alpha1.SandboxTemplateNotFoundMessage(claim.Namespace, name),
		} {
			if name != "" && strings.HasPrefix(claim.Status.Message, message) {
				return fmt.Sprintf("%s %q not found in namespace %q", kind, name, claim.Namespace)
			}
		}
	}
	return ""
}

// plain is a text as a header takes it: in one line, and bounded.
func plain(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(text) > maxWhy {
		text = strings.ToValidUTF8(text[:maxWhy], "") + "..."
	}
	return text
}
