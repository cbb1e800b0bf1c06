// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

var reopenNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// boundForGood is a claim of agent-sandbox that has the sandbox "box".
func boundForGood(changes ...func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "claim", UID: "claim-uid", CreationTimestamp: metav1.NewTime(reopenNow.Add(-time.Hour)),
		Annotations: map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup, v1alpha1.AgentAnnotationSandboxName: "box"},
	}}
	claim.Status = v1alpha1.SandboxClaimStatus{
		Phase: v1alpha1.SandboxClaimPhaseCompleted, ClaimedReplicas: 1, ClaimStartTime: &claim.CreationTimestamp,
		Sandboxes: []v1alpha1.ClaimedSandbox{{Name: "box", UID: "box-uid"}},
	}
	for kind, status := range map[string]metav1.ConditionStatus{
		v1alpha1.ClaimConditionReady: metav1.ConditionTrue, v1alpha1.ClaimConditionCompleted: metav1.ConditionTrue,
		v1alpha1.ClaimConditionFinished: metav1.ConditionTrue,
	} {
		meta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Because",
			LastTransitionTime: metav1.NewTime(reopenNow.Add(-time.Minute))})
	}
	for _, change := range changes {
		change(claim)
	}
	return claim
}

func TestHeals(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		heals  bool
	}{
		"bound":          {func(*v1alpha1.SandboxClaim) {}, true},
		"of our own API": {func(c *v1alpha1.SandboxClaim) { delete(c.Annotations, v1alpha1.AnnotationAPI) }, false},
		"being claimed":  {func(c *v1alpha1.SandboxClaim) { c.Status.Phase = v1alpha1.SandboxClaimPhaseClaiming }, false},
		"being deleted":  {func(c *v1alpha1.SandboxClaim) { c.DeletionTimestamp = &metav1.Time{Time: reopenNow} }, false},
		"retained, has expired": {func(c *v1alpha1.SandboxClaim) {
			c.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{ShutdownPolicy: v1alpha1.ShutdownRetain}
			meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ClaimConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonClaimExpired})
		}, false},
		"its time is up, and nothing says so yet": {func(c *v1alpha1.SandboxClaim) {
			c.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{ShutdownTime: &metav1.Time{Time: reopenNow}}
		}, false},
		"a moment after Finished": {func(c *v1alpha1.SandboxClaim) {
			c.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{TTLSecondsAfterFinished: new(int32(0))}
		}, false},
		"its time is to come": {func(c *v1alpha1.SandboxClaim) {
			c.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{ShutdownTime: &metav1.Time{Time: reopenNow.Add(time.Second)}}
		}, true},
	} {
		if heals := CanRebind(boundForGood(test.change), reopenNow); heals != test.heals {
			t.Errorf("%s: it heals: %v", name, heals)
		}
	}
}

func TestHasLost(t *testing.T) {
	box := func(change func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
		sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
			Name: "box", UID: "box-uid", Labels: map[string]string{v1alpha1.LabelClaimName: "claim"},
			Annotations: map[string]string{v1alpha1.AnnotationOwner: "claim-uid"},
		}}
		change(sb)
		return sb
	}
	for name, test := range map[string]struct {
		sb   *v1alpha1.Sandbox
		lost bool
	}{
		"well":          {box(func(*v1alpha1.Sandbox) {}), false},
		"failed":        {box(func(sb *v1alpha1.Sandbox) { sb.Status.Phase = v1alpha1.SandboxFailed }), false},
		"ended":         {box(func(sb *v1alpha1.Sandbox) { sb.Status.Phase = v1alpha1.SandboxSucceeded }), false},
		"gone":          {nil, true},
		"being deleted": {box(func(sb *v1alpha1.Sandbox) { sb.DeletionTimestamp = &metav1.Time{Time: reopenNow} }), true},
		"another's":     {box(func(sb *v1alpha1.Sandbox) { sb.Annotations[v1alpha1.AnnotationOwner] = "another" }), true},
		"made again":    {box(func(sb *v1alpha1.Sandbox) { sb.UID = "another" }), true},
	} {
		if lost := HasLostSandbox(boundForGood(), test.sb); lost != test.lost {
			t.Errorf("%s: it is lost: %v", name, lost)
		}
	}
}

func TestReopensAt(t *testing.T) {
	for name, test := range map[string]struct {
		age, rest time.Duration // how old the claim was when it was opened last, and how long it rests
	}{
		"never opened again": {0, 0},
		"early":              {5 * time.Second, shortestRest},
		"for a while":        {time.Minute, 30 * time.Second},
		"for long":           {time.Hour, longestRest},
	} {
		claim := boundForGood(func(c *v1alpha1.SandboxClaim) {
			c.Status.ClaimStartTime = &metav1.Time{Time: c.CreationTimestamp.Add(test.age)}
		})
		want := time.Time{}
		if test.rest > 0 {
			want = claim.Status.ClaimStartTime.Add(test.rest)
		}
		if at := ReopenTime(claim); !at.Equal(want) {
			t.Errorf("%s: at %s, not at %s", name, at, want)
		}
	}
}

func TestReopened(t *testing.T) {
	claim := boundForGood()
	next := Reopen(claim, reopenNow)
	if !claims.Unfinished(next) || next.Status.ClaimedReplicas != 0 || len(next.Status.Sandboxes) != 0 || claims.AgentSandbox(next) != "" {
		t.Errorf("it is %+v with %v", next.Status, next.Annotations)
	}
	if !claims.SaysMissing(next) || len(next.Status.Conditions) != 1 {
		t.Errorf("it says %v", next.Status.Conditions)
	}
	if claims.AgentSandbox(claim) != "box" || len(claim.Status.Conditions) != 3 {
		t.Errorf("what was given has changed: %+v", claim)
	}
}
