// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// restart stops a server and starts another on the same etcd.
func restart(t *testing.T, s *testutil.Server) *testutil.Server {
	t.Helper()
	s.Stop()
	return testutil.Start(t, testutil.WithEtcd(s.EtcdServers), withSyncWindow(time.Millisecond))
}

func TestUnfinishedClaimsGoOnAfterARestart(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(time.Millisecond))
	create(t, s, testutil.Claim(set, "waits", 3, both(waits, timeout(expect.Patience))))
	create(t, s, testutil.Claim(set, "cold", 1, timeout(expect.Patience)))
	create(t, s, testutil.Claim(set, "dies", 5, both(waits, allOrNothing, timeout(2*time.Second))))
	fresh := freshOf(t, s, 1)[0]

	s = restart(t, s)
	setStatus(t, s, &fresh, testutil.ReadyStatus(50, time.Now()))
	if cold := s.AwaitClaim(t, namespace, "cold", testutil.Completed); cold.Status.ClaimedReplicas != 1 {
		t.Errorf("the cold start ends with %q", cold.Status.Message)
	}
	s.Stock(t, set, 10, 2)
	if waited := s.AwaitClaim(t, namespace, "waits", testutil.Completed); waited.Status.ClaimedReplicas != 3 {
		t.Errorf("the claim that waited ends with %q", waited.Status.Message)
	}
	if died := s.AwaitClaim(t, namespace, "dies", testutil.Completed); died.Status.ClaimedReplicas != 0 || !isTrue(died, v1alpha1.ClaimConditionTimedOut) {
		t.Errorf("the claim whose time was up ends with %q", died.Status.Message)
	}
	checkInvariants(t, s)
}

// TestClaimsOnATemplateGoOnAfterARestart: they stand in the lines of all its sets
// again, and in the same order.
func TestClaimsOnATemplateGoOnAfterARestart(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	template := s.Template(t, namespace, "python")
	a, b := s.SetOf(t, template, "a", "", 1), s.SetOf(t, template, "b", spotPatch, 1)
	s.Stock(t, a, 0, 1)
	first := create(t, s, ofTemplate("first", "python", 2, waits, timeout(expect.Patience)))
	create(t, s, ofTemplate("second", "python", 1, waits, timeout(expect.Patience)))
	if got := pools(s.AwaitClaim(t, namespace, "first", func(c *v1alpha1.SandboxClaim) string {
		if c.Status.ClaimedReplicas != 1 {
			return "does not have what there is"
		}
		return ""
	})); got["a"] != 1 {
		t.Errorf("before the restart it has %v", got)
	}
	// Straight from the template: nothing else of it is stored but the sandbox.
	create(t, s, ofTemplate("cold", "python", 1, fromPool(v1alpha1.WarmPoolNone), timeout(expect.Patience)))
	fresh := freshOf(t, s, 1)[0]

	s = restart(t, s)
	// In which order a new server takes up what others left is not promised.
	s.Stock(t, b, 1, 1)
	s.Stock(t, a, 2, 1)
	claim := s.AwaitClaim(t, namespace, "first", testutil.Completed)
	if got := pools(claim); got["a"] < 1 || got["a"]+got["b"] != 2 || claim.UID != first.UID {
		t.Errorf("the first ends with %+v", claim.Status)
	}
	if claim := s.AwaitClaim(t, namespace, "second", testutil.Completed); claim.Status.ClaimedReplicas != 1 {
		t.Errorf("the second ends with %+v", claim.Status)
	}
	setStatus(t, s, &fresh, testutil.ReadyStatus(50, time.Now()))
	if claim := s.AwaitClaim(t, namespace, "cold", testutil.Completed); claim.Status.ClaimedReplicas != 1 {
		t.Errorf("the cold one ends with %+v", claim.Status)
	}
	checkInvariants(t, s)
}

func TestAnotherServerFinishesWhatOneLeft(t *testing.T) {
	one, set := stocked(t, 0, withSyncWindow(time.Millisecond))
	two := testutil.Start(t, testutil.WithEtcd(one.EtcdServers), withSyncWindow(time.Millisecond))
	create(t, one, testutil.Claim(set, "left", 2, both(waits, timeout(expect.Patience))))
	one.Stop()
	two.Stock(t, set, 0, 2)
	if claim := two.AwaitClaim(t, namespace, "left", testutil.Completed); claim.Status.ClaimedReplicas != 2 {
		t.Errorf("ends with %q", claim.Status.Message)
	}
	checkInvariants(t, two)
}

func TestRewrittenStatusHeals(t *testing.T) {
	tests := map[string]func(*v1alpha1.SandboxClaimStatus){
		"phase reset":   func(s *v1alpha1.SandboxClaimStatus) { s.Phase = v1alpha1.SandboxClaimPhaseClaiming },
		"count lowered": func(s *v1alpha1.SandboxClaimStatus) { s.Phase = "Claiming"; s.ClaimedReplicas = 0; s.Sandboxes = nil },
		"all wiped":     func(s *v1alpha1.SandboxClaimStatus) { *s = v1alpha1.SandboxClaimStatus{} },
		"only the list wiped": func(s *v1alpha1.SandboxClaimStatus) {
			s.Phase = "Claiming"
			s.Sandboxes = nil
		},
	}
	s, set := stocked(t, 50, withSyncWindow(time.Millisecond))
	for name, rewrite := range tests {
		claim := create(t, s, testutil.Claim(set, "", 3, func(c *v1alpha1.SandboxClaim) { c.GenerateName = "c-" }))
		rewrite(&claim.Status)
		if _, err := claims(s).UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		healed := s.AwaitClaim(t, namespace, claim.Name, testutil.Completed)
		if healed.Status.ClaimedReplicas != 3 || len(healed.Status.Sandboxes) != 3 {
			t.Errorf("%s: heals to %+v", name, healed.Status)
		}
		if its := owned(t, s, claim); len(its) != 3 {
			t.Errorf("%s: holds %d sandboxes, want the 3 it had", name, len(its))
		}
	}
	checkInvariants(t, s)
}

func TestDeletedSandboxIsNotReplaced(t *testing.T) {
	s, set := stocked(t, 3, withSyncWindow(time.Millisecond))
	claim := create(t, s, testutil.Claim(set, "one", 2, nil))
	if err := sandboxes(s).Delete(t.Context(), claim.Status.Sandboxes[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s = restart(t, s)
	after, err := claims(s).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.ResourceVersion != claim.ResourceVersion {
		t.Errorf("the claim was written again: %+v", after.Status)
	}
	create(t, s, testutil.Claim(set, "rest", 1, fails)) // the third is still there
}

func TestUsersMayChangeAClaimThatWaits(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond))
	claim := create(t, s, testutil.Claim(set, "waits", 1, both(waits, timeout(expect.Patience))))
	claim.Labels = map[string]string{"mine": "yes"}
	if _, err := claims(s).Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Stock(t, set, 0, 1)
	ended := s.AwaitClaim(t, namespace, "waits", testutil.Completed)
	if ended.Labels["mine"] != "yes" || ended.Status.ClaimedReplicas != 1 {
		t.Errorf("ends with labels %v, %q", ended.Labels, ended.Status.Message)
	}
	checkInvariants(t, s)
}

func TestClaimTimeoutMayBeShortened(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond))
	claim := create(t, s, testutil.Claim(set, "waits", 1, both(waits, timeout(time.Hour))))
	timeout(time.Second)(claim)
	if _, err := claims(s).Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	ended := s.AwaitClaim(t, namespace, "waits", testutil.Completed)
	if !isTrue(ended, v1alpha1.ClaimConditionTimedOut) || ended.Status.ObservedGeneration != 2 {
		t.Errorf("ends with %+v", ended.Status)
	}
}
