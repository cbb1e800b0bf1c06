// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ttl

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// Where both have come, the end of the lifecycle is first: the claim is not deleted before
// its sandboxes.
func TestLifecycleFirst(t *testing.T) {
	server := testutil.Start(t)
	api := server.RuntimeClient(t)
	set := server.Set(t, "default", "pool", 1)
	server.Stock(t, set, 0, 1)
	claim := testutil.Claim(set, "both", 1, func(c *v1alpha1.SandboxClaim) {
		c.Spec.TTLAfterCompleted = &metav1.Duration{Duration: time.Minute}
		c.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{ShutdownTime: &metav1.Time{Time: time.Now().Add(time.Hour)}}
	})
	if err := api.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakePassiveClock(claim.Status.CompletionTime.Add(2 * time.Hour))
	c := New(api, clock, 1, false)
	step := func(want bool) time.Duration {
		t.Helper()
		result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		if err != nil {
			t.Fatal(err)
		}
		err = api.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
		if client.IgnoreNotFound(err) != nil || apierrors.IsNotFound(err) == want {
			t.Fatalf("the claim is there: %v, want %t", err, want)
		}
		return result.RequeueAfter
	}
	step(true)
	meta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ClaimConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonClaimExpired,
	})
	if err := api.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if again := step(true); again <= 0 {
		t.Error("the claim is not looked at again")
	}
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim.Status.Sandboxes[0].Name}}
	if err := api.Delete(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	step(false)
}

// A lifecycle that is still ahead keeps no claim whose own time is over.
func TestTTLBeforeLifecycle(t *testing.T) {
	claim := &v1alpha1.SandboxClaim{}
	now := time.Now()
	claim.Status.Phase, claim.Status.CompletionTime = v1alpha1.SandboxClaimPhaseCompleted, &metav1.Time{Time: now}
	claim.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{ShutdownTime: &metav1.Time{Time: now.Add(time.Hour)}}
	if at, ok := expiryOf(claim, now); ok {
		t.Errorf("a claim with a lifecycle is deleted at %s by default", at)
	}
	claim.Spec.TTLAfterCompleted = &metav1.Duration{Duration: time.Minute}
	if at, ok := expiryOf(claim, now); !ok || !at.Equal(now.Add(time.Minute)) {
		t.Errorf("it is deleted at %s, %t", at, ok)
	}
}

// A claim that has expired and goes by its shutdownPolicy is left to that: it may have to
// wait for its sandboxes.
func TestLeftToTheLifecycle(t *testing.T) {
	now := time.Now()
	for policy, want := range map[v1alpha1.ShutdownPolicy]bool{
		v1alpha1.ShutdownRetain: true, v1alpha1.ShutdownDelete: false, v1alpha1.ShutdownDeleteForeground: false,
	} {
		claim := &v1alpha1.SandboxClaim{}
		claim.Status.Phase, claim.Status.CompletionTime = v1alpha1.SandboxClaimPhaseCompleted, &metav1.Time{Time: now.Add(-time.Hour)}
		claim.Spec.TTLAfterCompleted = &metav1.Duration{Duration: time.Minute}
		claim.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{ShutdownTime: &metav1.Time{Time: now.Add(-time.Minute)}, ShutdownPolicy: policy}
		meta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ClaimConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonClaimExpired,
		})
		if _, ok := expiryOf(claim, now); ok != want {
			t.Errorf("%s: is deleted because of its ttlAfterCompleted: %t, want %t", policy, ok, want)
		}
	}
}
