// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestWaitingMessage(t *testing.T) {
	const stuck = "2 sandboxes of SandboxSet gpu cannot start: Unschedulable"
	for name, tc := range map[string]struct {
		waiting          v1alpha1.ClaimWaiting
		want             string
		problem, forPool bool
	}{
		"nothing": {},
		"one":     {waiting: v1alpha1.ClaimWaiting{Replicas: 1}, want: "; waits for 1 sandbox of SandboxSet gpu", forPool: true},
		"its pool cannot start": {
			waiting: v1alpha1.ClaimWaiting{Replicas: 2, PoolProblem: stuck}, want: "; waits for 2 sandboxes of SandboxSet gpu: " + stuck, problem: true, forPool: true,
		},
		"what it has starts":       {waiting: v1alpha1.ClaimWaiting{Starting: 2}},
		"what it has cannot start": {waiting: v1alpha1.ClaimWaiting{Starting: 2, StartProblem: "no image"}, want: "; 2 sandboxes are being started: no image", problem: true},
		"both": {
			waiting: v1alpha1.ClaimWaiting{Replicas: 2, Starting: 1, StartProblem: "no image"},
			want:    "; 1 sandbox is being started: no image; waits for 2 sandboxes of SandboxSet gpu", problem: true, forPool: true,
		},
		"none can be made": {waiting: v1alpha1.ClaimWaiting{CreateProblem: "no template"}, forPool: true},
	} {
		if got := WaitingMessage(&tc.waiting, "SandboxSet gpu"); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		claim := &v1alpha1.SandboxClaim{Status: v1alpha1.SandboxClaimStatus{Waiting: &tc.waiting}}
		if HasStartProblem(claim) != tc.problem || NeedsPool(claim) != tc.forPool || HasCreateProblem(claim) != (tc.waiting.CreateProblem != "") {
			t.Errorf("%s: has a problem: %t, needs a pool: %t", name, HasStartProblem(claim), NeedsPool(claim))
		}
	}
	if none := (&v1alpha1.SandboxClaim{}); HasStartProblem(none) || NeedsPool(none) || HasCreateProblem(none) {
		t.Error("a claim that does not wait has a problem")
	}
}

func TestCannotStart(t *testing.T) {
	says := func(status metav1.ConditionStatus, reason, message string) *v1alpha1.SandboxSet {
		set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
		set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SetConditionAvailable, Status: status, Reason: reason, Message: message}}
		return set
	}
	const message = "3 sandboxes of SandboxSet gpu cannot start: Unschedulable: 0/4 nodes; none fits"
	long := "3 sandboxes of SandboxSet gpu cannot start: " + strings.Repeat("é", maxCause)
	for name, tc := range map[string]struct {
		sets []*v1alpha1.SandboxSet
		want string
	}{
		"no sets":       {},
		"none says it":  {sets: []*v1alpha1.SandboxSet{{}}},
		"available":     {sets: []*v1alpha1.SandboxSet{says("True", v1alpha1.ReasonSandboxesAvailable, message)}},
		"starting":      {sets: []*v1alpha1.SandboxSet{says("False", v1alpha1.ReasonSandboxesStarting, message)}},
		"the second":    {[]*v1alpha1.SandboxSet{{}, says("False", v1alpha1.ReasonSandboxesCannotStart, message)}, strings.ReplaceAll(message, "; ", ", ")},
		"no name in it": {[]*v1alpha1.SandboxSet{says("False", v1alpha1.ReasonSandboxesCannotStart, "quota")}, "quota"},
		"no message":    {[]*v1alpha1.SandboxSet{says("False", v1alpha1.ReasonSandboxesCannotStart, "")}, "sandboxes of SandboxSet gpu cannot start"},
	} {
		if got := CannotStart(tc.sets); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := CannotStart([]*v1alpha1.SandboxSet{says("False", v1alpha1.ReasonSandboxesCannotStart, long)}); len(got) > maxCause || !strings.HasSuffix(got, "...") {
		t.Errorf("a long one has %d bytes", len(got))
	}
}

func TestStartProblem(t *testing.T) {
	for name, tc := range map[string]struct{ reason, message, want string }{
		"none":             {},
		"it starts":        {v1alpha1.ReasonPodReady, "ContainersNotReady: containers with unready status: [main]", ""},
		"no node":          {v1alpha1.ReasonUnschedulable, "0/4 nodes are available", "Unschedulable: 0/4 nodes are available"},
		"no image":         {v1alpha1.ReasonStartContainerFailed, "Back-off pulling image; x", "StartContainerFailed: Back-off pulling image, x"},
		"being changed":    {v1alpha1.ReasonInplaceUpdating, v1alpha1.InplaceUpdatingMessage, ""},
		"a quota":          {v1alpha1.ReasonPodCreateFailed, "exceeded quota", "PodCreateFailed: exceeded quota"},
		"without a reason": {"", "x", ""},
	} {
		sb := &v1alpha1.Sandbox{}
		sb.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse, Reason: tc.reason, Message: tc.message}}
		if got := StartProblem(sb); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
