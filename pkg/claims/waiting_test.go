// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestWaitMessage(t *testing.T) {
	const begin, end = "Claiming sandboxes: 0/2 claimed", "; no fresh sandboxes can be made: no template"
	for name, tc := range map[string]struct {
		need  int
		line  *Line
		cause string
		want  string
	}{
		"nothing is known": {need: 2},
		"the line":         {2, &Line{1, 3}, "", "; waits for 2 sandboxes of SandboxSet gpu (1 available, 3 claims before it)"},
		"the first":        {1, &Line{}, "", "; waits for 1 sandbox of SandboxSet gpu (0 available, no claims before it)"},
		"far behind": {
			1, &Line{11, 11}, "",
			"; waits for 1 sandbox of SandboxSet gpu (more than 10 available, more than 10 claims before it)",
		},
		"a cause": {
			1, &Line{0, 1}, "2 sandboxes of SandboxSet gpu cannot start: Unschedulable",
			"; waits for 1 sandbox of SandboxSet gpu (0 available, 1 claim before it): 2 sandboxes of SandboxSet gpu cannot start: Unschedulable",
		},
		"a cause alone": {1, nil, "away", "; waits for 1 sandbox of SandboxSet gpu: away"},
	} {
		got := WaitMessage(tc.need, "SandboxSet gpu", tc.line, tc.cause)
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		if without := WithoutWait(begin + got + end); without != begin+end {
			t.Errorf("%s: without it %q", name, without)
		}
		if without := WithoutWait(begin + got + StartMessage(1, "Unschedulable") + end); without != begin+end {
			t.Errorf("%q without both is %q", got, without)
		}
		if without := WithoutWait(begin + got); without != begin {
			t.Errorf("%s: without it %q", name, without)
		}
		if TellsCause(begin+got+end) != (tc.cause != "") {
			t.Errorf("%s: tells a cause: %t", name, tc.cause == "")
		}
		if WaitsForPool(begin+got) != (got != "") || !WaitsForPool(begin+end) {
			t.Errorf("%s: is not known to wait", name)
		}
	}
	if got := begin + StartMessage(2, "Unschedulable"); got != begin+"; 2 sandboxes are being started: Unschedulable" || !TellsCause(got) || WaitsForPool(got) {
		t.Errorf("of fresh ones it says %q", got)
	}
}

func TestCannotStart(t *testing.T) {
	says := func(status metav1.ConditionStatus, reason, message string) *v1alpha1.SandboxSet {
		set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
		set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SetConditionAvailable, Status: status, Reason: reason, Message: message}}
		return set
	}
	const message = "3 sandboxes of SandboxSet gpu cannot start: Unschedulable: 0/4 nodes; none fits"
	long := "3 sandboxes of SandboxSet gpu cannot start: " + strings.Repeat("é", maxCannotStart)
	for name, tc := range map[string]struct {
		sets []*v1alpha1.SandboxSet
		want string
	}{
		"no sets":       {},
		"none says it":  {sets: []*v1alpha1.SandboxSet{{}}},
		"available":     {sets: []*v1alpha1.SandboxSet{says("True", v1alpha1.ReasonSandboxesAvailable, message)}},
		"starting":      {sets: []*v1alpha1.SandboxSet{says("False", v1alpha1.ReasonSandboxesStarting, message)}},
		"the second":    {[]*v1alpha1.SandboxSet{{}, says("False", v1alpha1.ReasonSandboxesCannotStart, message)}, strings.ReplaceAll(message, "; ", ", ")},
		"no name in it": {[]*v1alpha1.SandboxSet{says("False", v1alpha1.ReasonSandboxesCannotStart, "quota")}, "sandboxes of SandboxSet gpu cannot start: quota"},
	} {
		if got := CannotStart(tc.sets); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := CannotStart([]*v1alpha1.SandboxSet{says("False", v1alpha1.ReasonSandboxesCannotStart, long)}); len(got) > maxCannotStart || !strings.HasSuffix(got, "...") {
		t.Errorf("a long one has %d bytes", len(got))
	}
}

func TestStartProblem(t *testing.T) {
	for name, tc := range map[string]struct{ reason, message, want string }{
		"none":             {},
		"it starts":        {v1alpha1.ReasonPodReady, "ContainersNotReady: containers with unready status: [main]", ""},
		"no node":          {v1alpha1.ReasonPodReady, "Unschedulable: 0/4 nodes are available", "Unschedulable: 0/4 nodes are available"},
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
