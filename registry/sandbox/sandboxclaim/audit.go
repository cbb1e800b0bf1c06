// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiserver/pkg/audit"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	// auditSandboxes is the annotation of an audit event that lists the sandboxes
	// which the create of a claim, or a release, answered with.
	auditSandboxes = v1alpha1.SandlotKeyPrefix + "sandboxes"

	// maxAuditedSandboxes bounds the list, for audit logs are kept for long. The
	// claim itself names all.
	maxAuditedSandboxes = 100
)

// addAuditAnnotations notes in the audit event of a request which sandboxes of a claim it bound or
// released. The event names the user too, but not the claim that generateName named, and
// what was bound only where whole responses are logged.
func addAuditAnnotations(ctx context.Context, claim *v1alpha1.SandboxClaim, sandboxes []v1alpha1.ClaimedSandbox) {
	if !audit.AuditContextFrom(ctx).Enabled() {
		return
	}
	audit.AddAuditAnnotations(ctx,
		v1alpha1.SandlotKeyPrefix+"claim", claim.Name,
		v1alpha1.AnnotationClaimedBy, claim.Annotations[v1alpha1.AnnotationClaimedBy],
		auditSandboxes, auditedSandboxes(sandboxes),
	)
}

func auditedSandboxes(sandboxes []v1alpha1.ClaimedSandbox) string {
	var list strings.Builder
	for i, sb := range sandboxes {
		switch {
		case i == maxAuditedSandboxes:
			fmt.Fprintf(&list, " and %d more", len(sandboxes)-i)
			return list.String()
		case i > 0:
			list.WriteByte(',')
		}
		list.WriteString(sb.Name)
	}
	return list.String()
}
