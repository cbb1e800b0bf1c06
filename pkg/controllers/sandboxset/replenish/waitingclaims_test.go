// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// makeClaim makes one that waits for warm sandboxes of the set "pool".
func makeClaim(name string, replicas int32, change ...func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name + "-uid"), ResourceVersion: "10",
	}}
	claim.Spec.TemplateName = "pool"
	claim.Spec.Replicas = &replicas
	claim.Spec.CreateOnNoStock = new(false)
	claim.Status.Phase = v1alpha1.SandboxClaimPhaseClaiming
	for _, f := range change {
		f(claim)
	}
	return claim
}

func has(n int32, version string) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) { c.Status.ClaimedReplicas, c.ResourceVersion = n, version }
}

func TestWaitingClaims(t *testing.T) {
	w := newWaitingClaims()
	now := epoch
	want := func(what string, n int, again time.Duration) {
		t.Helper()
		got := 0
		waits, after, more := w.askingFor("ns", []string{"pool"}, func(*v1alpha1.SandboxClaim) bool { return true }, 100, now)
		if more {
			t.Fatalf("%s: not all were looked at", what)
		}
		for _, of := range waits {
			got += of.replicas
		}
		if got != n || after != again {
			t.Fatalf("%s: claims wait for %d, which is true for %s, want %d, %s", what, got, after, n, again)
		}
	}
	saw := func(claim *v1alpha1.SandboxClaim, matters bool) {
		t.Helper()
		if got := w.update(claim); got != matters {
			t.Fatalf("claim %s: matters %t, want %t", claim.Name, got, matters)
		}
	}
	completed := func(c *v1alpha1.SandboxClaim) { c.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted }

	saw(makeClaim("served at once", 9, completed), false)
	want("never waited", 0, 0)
	saw(makeClaim("a", 3), true)
	saw(makeClaim("b", 2), true)
	saw(makeClaim("elsewhere", 2, func(c *v1alpha1.SandboxClaim) { c.Namespace = "other" }), true)
	saw(makeClaim("other set", 2, func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "other" }), true)
	want("two wait", 5, 0)

	w.recordClaimed("a-uid", "12", epoch)
	want("one was taken, the claim does not show it", 4, claimedTTL)
	saw(makeClaim("a", 3, has(0, "11")), true)
	want("the claim changed otherwise before", 4, claimedTTL)
	saw(makeClaim("a", 3, has(1, "12")), true)
	want("the claim shows it", 4, 0)
	w.recordClaimed("a-uid", "12", epoch)
	want("the claim was shown first", 4, 0)
	w.recordClaimed("stranger", "13", epoch)
	want("taken for a claim that did not wait", 4, 0)

	w.recordClaimed("a-uid", "13", epoch) // and the cache has missed that it was at 12
	w.recordClaimed("a-uid", "13", epoch.Add(time.Second))
	now = epoch.Add(claimedTTL - 1)
	want("it may have been taken after", 2, 1)
	now = epoch.Add(claimedTTL)
	want("the claim would show it by now", 3, time.Second)
	now = epoch.Add(claimedTTL + time.Second)
	want("as well", 4, 0)
	now = epoch

	saw(makeClaim("a", 3, has(3, "14"), completed), true)
	want("one is served", 2, 0)
	saw(makeClaim("a", 3, has(3, "15"), completed), false)
	again := makeClaim("b", 7)
	again.UID = "again"
	w.recordClaimed("b-uid", "20", epoch)
	saw(again, true) // deleted and made again between two looks of the cache
	want("another of that name", 7, 0)
	if !w.remove(types.NamespacedName{Namespace: "ns", Name: "b"}) || w.remove(types.NamespacedName{Namespace: "ns", Name: "b"}) {
		t.Error("a claim that waited is gone once")
	}
	want("all gone", 0, 0)
	for _, name := range []string{"elsewhere", "other set"} {
		w.remove(types.NamespacedName{Namespace: "ns", Name: name})
	}
	w.remove(types.NamespacedName{Namespace: "other", Name: "elsewhere"})
	if n := fmt.Sprint(len(w.byUID), len(w.byAsked), len(w.uids)); n != "0 0 0" {
		t.Errorf("%s are left of claims that are gone", n)
	}
}

// TestAskingForLooksAtFew checks that no more claims are looked at, under the lock, than
// it takes to know that enough wait.
func TestAskingForLooksAtFew(t *testing.T) {
	w := newWaitingClaims()
	for i := range 1000 {
		w.update(makeClaim(fmt.Sprint("claim-", i), 2))
	}
	looks := 0
	served := func(*v1alpha1.SandboxClaim) bool {
		looks++
		return true
	}
	if all, _, more := w.askingFor("ns", []string{"pool"}, served, 10, epoch); len(all) != 5 || looks != 5 || !more {
		t.Errorf("looks at %d claims and returns %d; there are more: %t", looks, len(all), more)
	}
}
