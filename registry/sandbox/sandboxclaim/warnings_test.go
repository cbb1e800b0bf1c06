// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"strings"
	"testing"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestShortWarning(t *testing.T) {
	const watch = "; it continues in the background: kubectl get sandboxclaim c --namespace team-a --watch"
	tests := map[string]struct {
		spec               v1alpha1.SandboxClaimSpec
		ended              bool
		claimed            int32
		message            string
		waiting            *v1alpha1.ClaimWaiting
		created, previewed string
	}{
		"all": {
			spec: v1alpha1.SandboxClaimSpec{Replicas: new(int32(2))}, ended: true, claimed: 2, message: "Successfully claimed 2/2 sandboxes",
		},
		"one, which is the default": {ended: true, claimed: 1},
		"no set": {
			spec: v1alpha1.SandboxClaimSpec{TemplateName: "pyton"}, message: v1alpha1.SandboxSetNotFoundMessage("team-a", "pyton"),
			waiting:   &v1alpha1.ClaimWaiting{Reason: v1alpha1.ReasonSandboxSetNotFound},
			created:   `claimed 0/1: SandboxSet pyton not found in namespace team-a` + watch,
			previewed: `dry run: claimed 0/1: SandboxSet pyton not found in namespace team-a`,
		},
		"no set, at its end": {
			spec: v1alpha1.SandboxClaimSpec{TemplateName: "pyton"}, ended: true, message: v1alpha1.SandboxSetNotFoundMessage("team-a", "pyton"),
			created:   `claimed 0/1: SandboxSet pyton not found in namespace team-a`,
			previewed: `dry run: claimed 0/1: SandboxSet pyton not found in namespace team-a`,
		},
		"no such pool": {
			spec: v1alpha1.SandboxClaimSpec{TemplateName: "python", WarmPool: "gold"}, message: v1alpha1.SandboxSetNotFoundMessage("team-a", "gold"),
			waiting:   &v1alpha1.ClaimWaiting{Reason: v1alpha1.ReasonSandboxSetNotFound},
			created:   `claimed 0/1: SandboxSet gold not found in namespace team-a` + watch,
			previewed: `dry run: claimed 0/1: SandboxSet gold not found in namespace team-a`,
		},
		"no template": {
			spec:      v1alpha1.SandboxClaimSpec{SandboxTemplateRef: &v1alpha1.SandboxClaimTemplateRef{Name: "base"}},
			message:   v1alpha1.SandboxTemplateNotFoundMessage("team-a", "base"),
			waiting:   &v1alpha1.ClaimWaiting{Reason: v1alpha1.ReasonSandboxTemplateNotFound},
			created:   `claimed 0/1: SandboxTemplate base not found in namespace team-a` + watch,
			previewed: `dry run: claimed 0/1: SandboxTemplate base not found in namespace team-a`,
		},
		"continues": {
			spec: v1alpha1.SandboxClaimSpec{TemplateName: "python", Replicas: new(int32(3))}, claimed: 1, message: v1alpha1.ClaimingMessage(1, 3),
			created: "claimed 1/3 so far" + watch,
		},
		"continues, and says more": {
			spec: v1alpha1.SandboxClaimSpec{TemplateName: "python", Replicas: new(int32(3))}, claimed: 1,
			message:   v1alpha1.ClaimingMessage(1, 3) + "; and more",
			waiting:   &v1alpha1.ClaimWaiting{Replicas: 2, CreateProblem: "a limit"},
			created:   "claimed 1/3 so far: waits for 2 sandboxes of python; no fresh sandboxes can be made: a limit" + watch,
			previewed: "dry run: claimed 1/3 so far: waits for 2 sandboxes of python; no fresh sandboxes can be made: a limit",
		},
		"waits": {
			spec: v1alpha1.SandboxClaimSpec{TemplateName: "python", Replicas: new(int32(3))}, claimed: 1,
			waiting: &v1alpha1.ClaimWaiting{Replicas: 2}, created: "claimed 1/3 so far: waits for 2 sandboxes of python" + watch,
		},
		"makes others": {
			spec: v1alpha1.SandboxClaimSpec{TemplateName: "python", Replicas: new(int32(3))}, claimed: 1,
			waiting: &v1alpha1.ClaimWaiting{Starting: 2}, created: "claimed 1/3 so far" + watch,
		},
		"ended short": {
			spec: v1alpha1.SandboxClaimSpec{TemplateName: "python", Replicas: new(int32(3))}, ended: true, claimed: 1, message: "Timeout\nreached",
			created:   "claimed 1/3: Timeout reached",
			previewed: "dry run: claimed 1/3: Timeout reached",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "c"}, Spec: tc.spec}
			claim.Status = v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseClaiming, ClaimedReplicas: tc.claimed, Message: tc.message, Waiting: tc.waiting}
			if tc.ended {
				claim.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted
			}
			if got := shortWarning(claim, false); got != tc.created {
				t.Errorf("created:\n got %q\nwant %q", got, tc.created)
			}
			if got := shortWarning(claim, true); got != tc.previewed {
				t.Errorf("dry run:\n got %q\nwant %q", got, tc.previewed)
			}
		})
	}
}

// A cluster may have said anything, in any length, of what went wrong. Headers take one
// line.
func TestShortWarningIsBounded(t *testing.T) {
	claim := &v1alpha1.SandboxClaim{}
	claim.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted
	claim.Status.Message = strings.Repeat("é\n\tno\r\x01", 5000)
	got := shortWarning(claim, false)
	if len(got) > maxWhy+50 || strings.ContainsFunc(got, unicode.IsControl) || !strings.HasSuffix(got, "...") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
