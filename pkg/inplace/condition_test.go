// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestConditionsOfABinding(t *testing.T) {
	now := time.Unix(5, 0)
	cond := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(now),
		}
	}
	tests := map[string]struct {
		mark       func(*v1alpha1.Sandbox)
		inProgress bool
		want       []metav1.Condition
	}{
		"begins": {
			mark: func(sb *v1alpha1.Sandbox) { Begin(sb, Goal{}, now) }, inProgress: true,
			want: []metav1.Condition{
				cond("InplaceUpdate", "InplaceUpdating", "inplace update is incompleted"),
				cond("Ready", "InplaceUpdating", "inplace update is incompleted"),
			},
		},
		"fails": {
			mark: func(sb *v1alpha1.Sandbox) { Fail(sb, now, errors.New("no template")) },
			want: []metav1.Condition{cond("InplaceUpdate", "Failed", "in-place resource resize failed: no template")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			test.mark(sb)
			if got := InProgress(sb); got != test.inProgress {
				t.Errorf("in progress: %v", got)
			}
			if diff := cmp.Diff(test.want, sb.Status.Conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCondition(t *testing.T) {
	const updating = v1alpha1.InplaceUpdatingMessage
	for want, p := range map[metav1.Condition]Progress{
		{Status: "False", Reason: "InplaceUpdating", Message: updating}:   {Step: StepPatch},
		{Status: "False", Reason: "InplaceUpdating", Message: "cgroups"}:  {Step: StepWait, Message: "cgroups"},
		{Status: "True", Reason: "Succeeded"}:                             {Step: StepDone},
		{Status: "False", Reason: "Failed", Message: "no room"}:           {Step: StepFailed, Message: "no room"},
		{Status: "False", Reason: "InplaceReverting", Message: "no room"}: {Step: StepRevert, Message: "no room"},
	} {
		want.Type = "InplaceUpdate"
		if diff := cmp.Diff(want, p.Condition()); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", p, diff)
		}
	}
}

func TestAborted(t *testing.T) {
	for phase, want := range map[v1alpha1.SandboxPhase]string{
		v1alpha1.SandboxPending: "", v1alpha1.SandboxRunning: "", v1alpha1.SandboxPaused: "", v1alpha1.SandboxResuming: "",
		v1alpha1.SandboxFailed: "in-place resource resize failed: the sandbox is failed",
	} {
		sb := &v1alpha1.Sandbox{Status: v1alpha1.SandboxStatus{Phase: phase}}
		if _, aborted := Aborted(&sb.Status, Goal{}); aborted {
			t.Errorf("%s: a sandbox that is not being resized", phase)
		}
		Begin(sb, Goal{}, time.Unix(1, 0))
		if got, aborted := Aborted(&sb.Status, Goal{}); aborted != (want != "") || got.Message != want {
			t.Errorf("%s: %t, %q", phase, aborted, got.Message)
		}
	}
}

func TestIsForbidden(t *testing.T) {
	p, changes := changesClass("A", "B")
	if !changes || !IsForbidden(p.Message) || IsForbidden(Failed("x").Message) {
		t.Error("does not know its own messages")
	}
}
