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

// waitingClaim is one that waits for warm sandboxes of the set "pool".
func waitingClaim(name string, replicas int32, change ...func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
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

func TestWaiting(t *testing.T) {
	w := newWaiting()
	now := epoch
	want := func(what string, n int, again time.Duration) {
		t.Helper()
		got := 0
		waits, after := w.on("ns", now, "pool")
		for _, of := range waits {
			got += of.replicas
		}
		if got != n || after != again {
			t.Fatalf("%s: claims wait for %d, which is true for %s, want %d, %s", what, got, after, n, again)
		}
	}
	saw := func(claim *v1alpha1.SandboxClaim, matters bool) {
		t.Helper()
		if got := w.saw(claim); got != matters {
			t.Fatalf("claim %s: matters %t, want %t", claim.Name, got, matters)
		}
	}
	completed := func(c *v1alpha1.SandboxClaim) { c.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted }

	saw(waitingClaim("served at once", 9, completed), false)
	want("never waited", 0, 0)
	saw(waitingClaim("a", 3), true)
	saw(waitingClaim("b", 2), true)
	saw(waitingClaim("elsewhere", 2, func(c *v1alpha1.SandboxClaim) { c.Namespace = "other" }), true)
	saw(waitingClaim("other set", 2, func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "other" }), true)
	want("two wait", 5, 0)

	w.took("a-uid", "12", epoch)
	want("one was taken, the claim does not show it", 4, takenTTL)
	saw(waitingClaim("a", 3, has(0, "11")), true)
	want("the claim changed otherwise before", 4, takenTTL)
	saw(waitingClaim("a", 3, has(1, "12")), true)
	want("the claim shows it", 4, 0)
	w.took("a-uid", "12", epoch)
	want("the claim was shown first", 4, 0)
	w.took("nobody", "13", epoch)
	want("taken for a claim that did not wait", 4, 0)

	w.took("a-uid", "13", epoch) // and the cache has missed that it was at 12
	w.took("a-uid", "13", epoch.Add(time.Second))
	now = epoch.Add(takenTTL - 1)
	want("it may have been taken after", 2, 1)
	now = epoch.Add(takenTTL)
	want("the claim would show it by now", 3, time.Second)
	now = epoch.Add(takenTTL + time.Second)
	want("as well", 4, 0)
	now = epoch

	saw(waitingClaim("a", 3, has(3, "14"), completed), true)
	want("one is served", 2, 0)
	saw(waitingClaim("a", 3, has(3, "15"), completed), false)
	again := waitingClaim("b", 7)
	again.UID = "again"
	w.took("b-uid", "20", epoch)
	saw(again, true) // deleted and made again between two looks of the cache
	want("another of that name", 7, 0)
	if !w.gone(types.NamespacedName{Namespace: "ns", Name: "b"}) || w.gone(types.NamespacedName{Namespace: "ns", Name: "b"}) {
		t.Error("a claim that waited is gone once")
	}
	want("all gone", 0, 0)
	for _, name := range []string{"elsewhere", "other set"} {
		w.gone(types.NamespacedName{Namespace: "ns", Name: name})
	}
	w.gone(types.NamespacedName{Namespace: "other", Name: "elsewhere"})
	if n := fmt.Sprint(len(w.claims), len(w.asking), len(w.uids)); n != "0 0 0" {
		t.Errorf("%s are left of claims that are gone", n)
	}
}

func TestAheads(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "pool"}
	a := newAheads()
	look := func(after time.Duration, generation int64, wanted, spared int, over time.Duration) {
		t.Helper()
		got := a.look(key, generation, wanted, epoch.Add(after))
		if want := (ahead{wanted, spared, over}); got != want {
			t.Fatalf("after %s: %+v, want %+v", after, got, want)
		}
	}
	look(0, 1, 0, 0, 0)
	look(0, 1, 5, 5, 0)
	look(1*time.Second, 1, 8, 8, 0)
	a.took(key, epoch.Add(2*time.Second))
	look(60*time.Second, 1, 3, 8, 5*time.Second) // five gave up
	a.took(key, epoch.Add(61*time.Second))
	look(62*time.Second, 1, 2, 8, 4*time.Second) // claims do not pause
	look(66*time.Second, 1, 2, 2, 0)
	look(67*time.Second, 1, 0, 2, 5*time.Second)
	look(68*time.Second, 1, 2, 2, 0) // others came
	look(69*time.Second, 1, 1, 2, 5*time.Second)
	look(69*time.Second, 2, 0, 0, 0) // the user has changed the set
	look(69*time.Second, 2, 1, 1, 0)
	look(70*time.Second, 2, 0, 1, 5*time.Second)
	look(75*time.Second, 2, 0, 0, 0)
	if len(a.sets) != 0 {
		t.Errorf("remembers %v of a set without a burst", a.sets)
	}
}
