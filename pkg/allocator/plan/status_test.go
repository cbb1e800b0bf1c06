// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// report is what a claim's status is that continues with these sandboxes.
func report(c *v1alpha1.SandboxClaim, listed []v1alpha1.ClaimedSandbox, p *claims.Problem) {
	a := &Assessment{claim: c, held: holdings{listed: listed}}
	reportOn(a, p)
}

// The texts here are the contract's: clients parse them.
func TestStatus(t *testing.T) {
	two := []v1alpha1.ClaimedSandbox{{Name: "a", PodIPs: []string{"127.0.0.1"}}, {Name: "b"}}
	of3 := claimOf(func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = ptr.To[int32](3) })
	of2 := claimOf(func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = ptr.To[int32](2) })
	noSet := &claims.Problem{Message: "SandboxSet pool not found", Reason: v1alpha1.ReasonSandboxSetNotFound}
	tests := map[string]struct {
		claim      *v1alpha1.SandboxClaim
		change     func(c *v1alpha1.SandboxClaim)
		phase      v1alpha1.SandboxClaimPhase
		message    string
		claimed    int32
		conditions []metav1.Condition
	}{
		"progress": {
			claim:   of3,
			change:  func(c *v1alpha1.SandboxClaim) { report(c, two, nil) },
			phase:   v1alpha1.SandboxClaimPhaseClaiming,
			message: "Claiming sandboxes: 2/3 claimed",
			claimed: 2,
		},
		"the set is missing": {
			claim:   of3,
			change:  func(c *v1alpha1.SandboxClaim) { report(c, nil, noSet) },
			phase:   v1alpha1.SandboxClaimPhaseClaiming,
			message: "SandboxSet pool not found",
		},
		"complete": {
			claim:   of2,
			change:  func(c *v1alpha1.SandboxClaim) { report(c, two, nil); complete(c, birth) },
			phase:   v1alpha1.SandboxClaimPhaseCompleted,
			message: "Successfully claimed 2/2 sandboxes",
			claimed: 2,
			conditions: []metav1.Condition{
				{Type: "Completed", Status: "True", Reason: "AllReplicasClaimed", Message: "Successfully claimed all 2 sandboxes"},
				{Type: "Ready", Status: "True", Reason: "AllReplicasClaimed", Message: "Every sandbox was ready when it was counted"},
			},
		},
		"timed out with a part": {
			claim: of3,
			change: func(c *v1alpha1.SandboxClaim) {
				report(c, two, nil)
				timeOut(c, birth, 61234567891*time.Nanosecond, nil)
			},
			phase:   v1alpha1.SandboxClaimPhaseCompleted,
			message: "Timeout reached after 1m1.235s, claimed 2/3 sandboxes",
			claimed: 2,
			conditions: []metav1.Condition{
				{Type: "TimedOut", Status: "True", Reason: "ClaimTimeoutReached", Message: "Timeout after 1m1.235s, claimed 2/3"},
				{Type: "Completed", Status: "True", Reason: "TimeoutReached", Message: "Timeout reached after 1m1.235s, claimed 2/3 sandboxes"},
				{Type: "Ready", Status: "False", Reason: "TimeoutReached", Message: "Timeout reached after 1m1.235s, claimed 2/3 sandboxes"},
			},
		},
		"timed out without a set": {
			claim: of3,
			change: func(c *v1alpha1.SandboxClaim) {
				report(c, nil, noSet)
				timeOut(c, birth, time.Minute, noSet)
			},
			phase:   v1alpha1.SandboxClaimPhaseCompleted,
			message: "SandboxSet pool not found",
			conditions: []metav1.Condition{
				{Type: "TimedOut", Status: "True", Reason: "ClaimTimeoutReached", Message: "Timeout after 1m0s, claimed 0/3"},
				{Type: "Completed", Status: "True", Reason: "SandboxSetNotFound", Message: "SandboxSet pool not found"},
				{Type: "Ready", Status: "False", Reason: "SandboxSetNotFound", Message: "SandboxSet pool not found"},
			},
		},
		"timed out": {
			claim: of3,
			change: func(c *v1alpha1.SandboxClaim) {
				report(c, two, nil)
				timeOut(c, birth, time.Minute, nil)
			},
			phase:   v1alpha1.SandboxClaimPhaseCompleted,
			message: "Timeout reached after 1m0s, claimed 2/3 sandboxes",
			claimed: 2,
			conditions: []metav1.Condition{
				{Type: "TimedOut", Status: "True", Reason: "ClaimTimeoutReached", Message: "Timeout after 1m0s, claimed 2/3"},
				{Type: "Completed", Status: "True", Reason: "TimeoutReached", Message: "Timeout reached after 1m0s, claimed 2/3 sandboxes"},
				{Type: "Ready", Status: "False", Reason: "TimeoutReached", Message: "Timeout reached after 1m0s, claimed 2/3 sandboxes"},
			},
		},
		"refused": {
			claim: of3,
			change: func(c *v1alpha1.SandboxClaim) {
				report(c, two, nil)
				reject(c, birth, &RefusedError{Reason: "TooLarge", Message: "too large"})
			},
			phase:   v1alpha1.SandboxClaimPhaseCompleted,
			message: "too large",
			claimed: 2,
			conditions: []metav1.Condition{
				{Type: "Completed", Status: "True", Reason: "TooLarge", Message: "too large"},
				{Type: "Ready", Status: "False", Reason: "TooLarge", Message: "too large"},
			},
		},
		"deleted": {
			claim:   of3,
			change:  func(c *v1alpha1.SandboxClaim) { report(c, two, nil); *c = *Deleted(c, birth) },
			phase:   v1alpha1.SandboxClaimPhaseCompleted,
			message: "The claim was deleted",
			claimed: 2,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			claim := tt.claim.DeepCopy()
			begin(claim, birth)
			tt.change(claim)
			got := claim.Status
			if got.Phase != tt.phase || got.Message != tt.message || got.ClaimedReplicas != tt.claimed {
				t.Errorf("got %s, %q, %d claimed; want %s, %q, %d", got.Phase, got.Message, got.ClaimedReplicas, tt.phase, tt.message, tt.claimed)
			}
			ignore := cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime", "ObservedGeneration")
			if diff := cmp.Diff(tt.conditions, got.Conditions, ignore, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			for _, c := range got.Conditions {
				if c.ObservedGeneration != 0 || !c.LastTransitionTime.Time.Equal(birth) {
					t.Errorf("condition %s: generation %d at %s", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
			if (got.CompletionTime != nil) != (tt.phase == v1alpha1.SandboxClaimPhaseCompleted) {
				t.Errorf("completionTime is %v in phase %s", got.CompletionTime, tt.phase)
			}
			if !got.ClaimStartTime.Time.Equal(birth) || got.ObservedGeneration != 1 {
				t.Errorf("start %s, observed generation %d", got.ClaimStartTime, got.ObservedGeneration)
			}
		})
	}
}
