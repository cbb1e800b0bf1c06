// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
)

var (
	then = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now  = then.Add(time.Hour)
)

// box is a sandbox of the claim c, ready at an address; changes make it another.
func box(name string, changes ...func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name),
		Labels:      map[string]string{v1alpha1.LabelClaimName: "c"},
		Annotations: map[string]string{v1alpha1.AnnotationOwner: "c-uid"},
	}}
	sb.Status.Phase, sb.Status.PodInfo.PodIP = v1alpha1.SandboxRunning, "ip-"+name
	says(metav1.ConditionTrue, v1alpha1.ReasonPodReady, "")(sb)
	for _, change := range changes {
		change(sb)
	}
	return sb
}

func says(status metav1.ConditionStatus, reason, message string) func(*v1alpha1.Sandbox) {
	return func(sb *v1alpha1.Sandbox) {
		meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
			Type: v1alpha1.SandboxConditionReady, Status: status, Reason: reason, Message: message,
		})
	}
}

// ended is a pod that ended, as the controller of pods writes it.
func ended(phase v1alpha1.SandboxPhase, message string) func(*v1alpha1.Sandbox) {
	return func(sb *v1alpha1.Sandbox) {
		sb.Status.Phase = phase
		says(metav1.ConditionFalse, v1alpha1.ReasonPodReady, message)(sb)
	}
}

func pausedBox(sb *v1alpha1.Sandbox) {
	sb.Spec.Paused, sb.Status.Phase, sb.Status.PodInfo.PodIP = true, v1alpha1.SandboxPaused, ""
	says(metav1.ConditionFalse, v1alpha1.ReasonPodReady, "The sandbox is paused")(sb)
}

func deleting(sb *v1alpha1.Sandbox) { sb.DeletionTimestamp = &metav1.Time{Time: now} }

func annotated(key string) func(*v1alpha1.Sandbox) {
	return func(sb *v1alpha1.Sandbox) { sb.Annotations[key] = "true" }
}

// claimOf is a claim that was completed with these sandboxes, as the allocator writes it.
func claimOf(names ...string) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "c-uid", ResourceVersion: "7"},
		Spec:       v1alpha1.SandboxClaimSpec{Replicas: new(int32(len(names)))},
	}
	claim.Status.Phase, claim.Status.ClaimedReplicas = v1alpha1.SandboxClaimPhaseCompleted, int32(len(names))
	for _, name := range names {
		claim.Status.Sandboxes = append(claim.Status.Sandboxes,
			v1alpha1.ClaimedSandbox{Name: name, UID: types.UID("uid-" + name), PodIPs: []string{"ip-" + name}})
	}
	condition(claim, v1alpha1.ClaimConditionCompleted, metav1.ConditionTrue, v1alpha1.ReasonAllReplicasClaimed, "all")
	condition(claim, v1alpha1.ClaimConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllReplicasClaimed, "Every sandbox was ready when it was counted")
	return claim
}

func condition(claim *v1alpha1.SandboxClaim, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(then),
	})
}

func short(claim *v1alpha1.SandboxClaim) {
	claim.Spec.Replicas = new(int32(3))
	condition(claim, v1alpha1.ClaimConditionCompleted, metav1.ConditionTrue, v1alpha1.ReasonTimeoutReached, "short")
	condition(claim, v1alpha1.ClaimConditionReady, metav1.ConditionFalse, v1alpha1.ReasonTimeoutReached, "short")
}

func TestConditions(t *testing.T) {
	type claims = func(*v1alpha1.SandboxClaim)
	tests := map[string]struct {
		names           []string
		change          claims
		bound           []*v1alpha1.Sandbox
		ready, finished string // "" is none
	}{
		"well":        {names: []string{"a", "b"}, bound: []*v1alpha1.Sandbox{box("a"), box("b")}, ready: "True AllReplicasClaimed: Every sandbox was ready when it was counted"},
		"none listed": {ready: "True AllReplicasClaimed: Every sandbox was ready when it was counted"},
		"gone":        {names: []string{"a"}, ready: "False SandboxMissing: Sandbox does not exist"},
		"gone, of the E2B API": {
			names: []string{"a"}, change: func(c *v1alpha1.SandboxClaim) {
				c.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: v1alpha1.E2BUser(c.Namespace)}
			},
			ready: "False SandboxMissing: Sandbox does not exist", finished: "True SandboxMissing: Sandbox does not exist",
		},
		"some gone": {
			names: []string{"a", "b", "c"}, bound: []*v1alpha1.Sandbox{box("b")},
			ready: "False SandboxMissing: Sandbox does not exist: a (2 of 3)",
		},
		"listed without its UID": {
			names: []string{"a"}, change: func(c *v1alpha1.SandboxClaim) { c.Status.Sandboxes[0].UID = "" },
			bound: []*v1alpha1.Sandbox{box("a")}, ready: "True AllReplicasClaimed: Every sandbox was ready when it was counted",
		},
		"failed": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a", ended(v1alpha1.SandboxFailed, "Evicted: no memory"))},
			ready: "False PodFailed: sandbox a: Pod failed: Evicted: no memory", finished: "True PodFailed: Pod failed",
		},
		"evicted": {
			names: []string{"a", "b"}, bound: []*v1alpha1.Sandbox{
				box("a", ended(v1alpha1.SandboxFailed, ""), says(metav1.ConditionFalse, v1alpha1.ReasonEvicted, "no memory")), box("b"),
			},
			ready: "False PodFailed: sandbox a (1 of 2): Evicted: no memory",
		},
		"lost without a word": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{
				box("a", ended(v1alpha1.SandboxFailed, ""), says(metav1.ConditionFalse, v1alpha1.ReasonPodDeleted, "")),
			},
			ready: "False PodFailed: sandbox a: PodDeleted", finished: "True PodFailed: Pod failed",
		},
		"cannot be scheduled": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a", says(metav1.ConditionFalse, v1alpha1.ReasonUnschedulable, "0/4 nodes"))},
			ready: "False Unschedulable: a: Sandbox is not ready: 0/4 nodes",
		},
		"succeeded": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a", ended(v1alpha1.SandboxSucceeded, ""))},
			ready: "False PodSucceeded: a: Pod completed successfully", finished: "True PodSucceeded: Pod completed successfully",
		},
		"one of several ended": {
			names: []string{"a", "b"}, bound: []*v1alpha1.Sandbox{box("a"), box("b", ended(v1alpha1.SandboxFailed, ""))},
			ready: "False PodFailed: sandbox b (1 of 2): Pod failed",
		},
		"all that are left ended": {
			names: []string{"a", "b", "c"}, bound: []*v1alpha1.Sandbox{box("a", ended(v1alpha1.SandboxSucceeded, "")), box("b", ended(v1alpha1.SandboxFailed, ""))},
			ready: "False SandboxMissing: Sandbox does not exist: c (1 of 3)", finished: "True PodFailed: 2 of 3 sandboxes ended, 1 of them failed",
		},
		"paused": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a", pausedBox)}, ready: "False SandboxPaused: a: Sandbox is paused",
		},
		"about to be paused": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a", func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true })},
			ready: "False SandboxPaused: a: Sandbox is paused",
		},
		"being resumed": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a", pausedBox, func(sb *v1alpha1.Sandbox) { sb.Spec.Paused, sb.Status.Phase = false, v1alpha1.SandboxResuming })},
			ready: "False SandboxPaused: a: Sandbox is being resumed",
		},
		"being deleted": {names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a", deleting)}, ready: "False SandboxNotReady: a: Sandbox is being deleted"},
		"not ready":     {names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a", says(metav1.ConditionFalse, v1alpha1.ReasonPodReady, "ContainersNotReady"))}, ready: "False SandboxNotReady: a: Sandbox is not ready: ContainersNotReady"},
		"not ready, with a reason": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a", says(metav1.ConditionFalse, v1alpha1.ReasonStartContainerFailed, "CrashLoopBackOff"))},
			ready: "False StartContainerFailed: a: Sandbox is not ready: CrashLoopBackOff",
		},
		"says nothing": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a", func(sb *v1alpha1.Sandbox) { sb.Status.Conditions = nil })},
			ready: "False SandboxNotReady: a: Sandbox is not ready",
		},
		"the worst is told": {
			names: []string{"a", "b", "c", "d"},
			bound: []*v1alpha1.Sandbox{box("a"), box("b", pausedBox), box("c", says(metav1.ConditionFalse, "X", "")), box("d", ended(v1alpha1.SandboxFailed, ""))},
			ready: "False PodFailed: sandbox d (1 of 4): Pod failed",
		},
		"recovered": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a")},
			change: func(c *v1alpha1.SandboxClaim) {
				condition(c, v1alpha1.ClaimConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSandboxPaused, "was paused")
			},
			ready: "True AllReplicasClaimed: Every sandbox is ready",
		},
		"finished before": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a")},
			change: func(c *v1alpha1.SandboxClaim) {
				condition(c, v1alpha1.ClaimConditionFinished, metav1.ConditionTrue, v1alpha1.ReasonPodFailed, "long ago")
			},
			ready: "True AllReplicasClaimed: Every sandbox was ready when it was counted", finished: "True PodFailed: long ago",
		},
		"ended short":               {names: []string{"a"}, change: short, bound: []*v1alpha1.Sandbox{box("a")}, ready: "False TimeoutReached: short"},
		"ended short, and finished": {names: []string{"a"}, change: short, bound: []*v1alpha1.Sandbox{box("a", ended(v1alpha1.SandboxFailed, ""))}, ready: "False TimeoutReached: short", finished: "True PodFailed: Pod failed"},
		"a client calls it ready": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a")},
			change: func(c *v1alpha1.SandboxClaim) {
				short(c)
				condition(c, v1alpha1.ClaimConditionReady, metav1.ConditionTrue, "Fine", "")
			},
			ready: "False TimeoutReached: short",
		},
		"a client took all conditions": {
			names: []string{"a"}, change: func(c *v1alpha1.SandboxClaim) { c.Status.Conditions = nil }, bound: []*v1alpha1.Sandbox{box("a")},
			ready: "True AllReplicasClaimed: Every sandbox is ready",
		},
		"a client took all conditions of one that ended short": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a")},
			change: func(c *v1alpha1.SandboxClaim) { short(c); c.Status.Conditions = nil },
			ready:  "False TimeoutReached: Claimed 1/3 sandboxes",
		},
		"expired": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a", ended(v1alpha1.SandboxFailed, ""))},
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{}
				condition(c, v1alpha1.ClaimConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClaimExpired, "over")
			},
			ready: "False ClaimExpired: over",
		},
		"expired, says a client": {
			names: []string{"a"}, bound: []*v1alpha1.Sandbox{box("a")},
			change: func(c *v1alpha1.SandboxClaim) {
				condition(c, v1alpha1.ClaimConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClaimExpired, "over")
			},
			ready: "True AllReplicasClaimed: Every sandbox is ready",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := claimOf(tc.names...)
			if tc.change != nil {
				tc.change(claim)
			}
			before := claim.DeepCopy()
			got := conditionsOf(claim, members(claim, tc.bound), now)
			for kind, want := range map[string]string{v1alpha1.ClaimConditionReady: tc.ready, v1alpha1.ClaimConditionFinished: tc.finished} {
				text := ""
				if c := meta.FindStatusCondition(got, kind); c != nil {
					text = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
					was := meta.FindStatusCondition(before.Status.Conditions, kind)
					if moved := was == nil || was.Status != c.Status; c.LastTransitionTime.Time.Equal(now) != moved {
						t.Errorf("%s changed: %t, its time is %s", kind, moved, c.LastTransitionTime)
					}
				}
				if text != want {
					t.Errorf("%s is %q, want %q", kind, text, want)
				}
			}
			if diff := cmp.Diff(before, claim); diff != "" {
				t.Errorf("the claim was changed:\n%s", diff)
			}
		})
	}
}

// A sandbox that has ended has no address to the claim, whatever its status says.
func TestEndedHaveNoAddress(t *testing.T) {
	for _, phase := range []v1alpha1.SandboxPhase{v1alpha1.SandboxFailed, v1alpha1.SandboxSucceeded} {
		all := members(claimOf("a", "b"), []*v1alpha1.Sandbox{box("a", ended(phase, "")), box("b")})
		if len(all[0].entry.PodIPs) > 0 || len(all[1].entry.PodIPs) != 1 {
			t.Errorf("%s: %+v", phase, all)
		}
	}
}

// However much a sandbox says, a claim says little.
func TestMessageIsBounded(t *testing.T) {
	loud := box("a", ended(v1alpha1.SandboxFailed, ""), says(metav1.ConditionFalse, "Evicted", strings.Repeat("x", 30000)))
	tally := count(members(claimOf("a"), []*v1alpha1.Sandbox{loud}))
	if message := tally.message(); len(message) > report.MaxNote {
		t.Errorf("%d bytes", len(message))
	}
}
