// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func withSyncWindow(d time.Duration) testutil.Option {
	return testutil.WithConfig(func(c *apiserver.Config) { c.ExtraConfig.SyncWindow = d })
}

func timeout(d time.Duration) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) { c.Spec.ClaimTimeout = &metav1.Duration{Duration: d} }
}

func allOrNothing(c *v1alpha1.SandboxClaim) { c.Spec.Allocation = v1alpha1.AllocationAllOrNothing }

func TestShortageFails(t *testing.T) {
	s, set := stocked(t, 2)
	for name, change := range map[string]func(*v1alpha1.SandboxClaim){
		"best effort":    fails,
		"all or nothing": both(fails, allOrNothing),
	} {
		_, err := claims(s).Create(t.Context(), testutil.Claim(set, "short", 3, change), metav1.CreateOptions{})
		if !apierrors.IsTooManyRequests(err) {
			t.Fatalf("%s: %v, want 429", name, err)
		}
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			t.Errorf("%s: Retry-After is %d, by which kubectl repeats the create ten times", name, seconds)
		}
		var status apierrors.APIStatus
		errors.As(err, &status)
		var found bool
		for _, cause := range status.Status().Details.Causes {
			found = found || cause.Type == v1alpha1.CauseShortage && cause.Field == "spec.replicas"
		}
		if !found || !strings.Contains(err.Error(), "SandboxSet pool has 2 of 3 sandboxes available") {
			t.Errorf("%s: the refusal does not say why: %v, %+v", name, err, status.Status().Details)
		}
		if _, err := claims(s).Get(t.Context(), "short", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: the refused claim is stored: %v", name, err)
		}
	}
	create(t, s, testutil.Claim(set, "fits", 2, fails)) // nothing was taken
	checkInvariants(t, s)
}

// TestRetryByName: who did not hear the answer and asks again, when the stock is
// gone, must not get an answer that nothing was bound.
func TestRetryByName(t *testing.T) {
	s, set := stocked(t, 1)
	create(t, s, testutil.Claim(set, "mine", 1, fails))
	if _, err := claims(s).Create(t.Context(), testutil.Claim(set, "mine", 1, fails), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the second create by the same name: %v, want AlreadyExists", err)
	}
	if _, err := claims(s).Create(t.Context(), testutil.Claim(set, "other", 1, fails), metav1.CreateOptions{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a create by another name: %v, want 429", err)
	}
}

func TestFailsSeesStockMadeAMomentAgo(t *testing.T) {
	s, set := stocked(t, 0)
	for i := range 20 {
		s.Stock(t, set, i, 1)
		create(t, s, testutil.Claim(set, fmt.Sprintf("c-%d", i), 1, fails))
	}
	checkInvariants(t, s)
}

func TestUnknownSet(t *testing.T) {
	s, _ := stocked(t, 0)
	unknown := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nowhere"}}
	_, err := claims(s).Create(t.Context(), testutil.Claim(unknown, "fail", 1, fails), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.templateName") {
		t.Errorf("with Fail: %v, want 422 that names spec.templateName", err)
	}
	claim := create(t, s, testutil.Claim(unknown, "wait", 1, nil))
	if claim.Status.Message != "SandboxSet nowhere not found in namespace default" || claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming {
		t.Errorf("with Wait: %s, %q", claim.Status.Phase, claim.Status.Message)
	}
}

func TestUnknownSetEndsAtTheTimeout(t *testing.T) {
	s, _ := stocked(t, 0)
	unknown := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nowhere"}}
	create(t, s, testutil.Claim(unknown, "wait", 1, timeout(time.Second)))
	claim := s.AwaitClaim(t, namespace, "wait", testutil.Completed)
	if claim.Status.Message != "SandboxSet nowhere not found in namespace default" || !isTrue(claim, v1alpha1.ClaimConditionTimedOut) {
		t.Errorf("ends with %q, %v", claim.Status.Message, claim.Status.Conditions)
	}
	for _, c := range claim.Status.Conditions {
		if c.Type == v1alpha1.ClaimConditionCompleted && c.Reason != v1alpha1.ReasonSandboxSetNotFound {
			t.Errorf("Completed has reason %s", c.Reason)
		}
	}
}

func TestSetThatAppearsStillServes(t *testing.T) {
	s, _ := stocked(t, 0)
	later := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "later"}}
	create(t, s, testutil.Claim(later, "early", 1, both(waits, timeout(expect.Patience))))
	create(t, s, testutil.Claim(later, "early-cold", 1, timeout(expect.Patience)))
	set := s.Set(t, namespace, "later", 1)
	s.Stock(t, set, 0, 1)
	s.AwaitClaim(t, namespace, "early", testutil.Completed)
	s.AwaitClaim(t, namespace, "early-cold", func(*v1alpha1.SandboxClaim) string { // makes its own, which never become ready here
		if list, err := sandboxes(s).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelClaimName + "=early-cold"}); err != nil || len(list.Items) != 1 {
			return fmt.Sprintf("has no sandbox yet: %v", err)
		}
		return ""
	})
}

func TestWaitsInTheCall(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(expect.Patience/4))
	answered := make(chan *v1alpha1.SandboxClaim, 1)
	var calls sync.WaitGroup
	calls.Go(func() {
		claim, err := claims(s).Create(t.Context(), testutil.Claim(set, "patient", 3, both(waits, timeout(expect.Patience))), metav1.CreateOptions{})
		if err != nil {
			t.Errorf("creating: %v", err)
		}
		answered <- claim
	})
	// It is stored with what there is, and seen by others, while the call continues.
	// The feed may bring the one in stock a moment after the claim came.
	waiting := s.AwaitClaim(t, namespace, "patient", func(claim *v1alpha1.SandboxClaim) string {
		if claim.Status.ClaimedReplicas != 1 {
			return fmt.Sprintf("holds %d, want 1", claim.Status.ClaimedReplicas)
		}
		return ""
	})
	if waiting.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming || !strings.HasPrefix(waiting.Status.Message, "Claiming sandboxes: 1/3 claimed") {
		t.Errorf("while it waits it says %s, %q", waiting.Status.Phase, waiting.Status.Message)
	}
	s.Stock(t, set, 10, 2)
	calls.Wait()
	claim := <-answered
	if claim == nil || testutil.Completed(claim) != "" || claim.Status.ClaimedReplicas != 3 {
		t.Fatalf("the call is answered %+v", claim)
	}
	checkInvariants(t, s)
}

func TestAnswersClaimingAfterTheSyncWindow(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(10*time.Millisecond))
	claim := create(t, s, testutil.Claim(set, "patient", 1, both(waits, timeout(expect.Patience))))
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming {
		t.Fatalf("answered %s without stock", claim.Status.Phase)
	}
	s.Stock(t, set, 0, 1)
	s.AwaitClaim(t, namespace, "patient", testutil.Completed)
	checkInvariants(t, s)
}

func TestDoesNotWaitBeyondTheRequest(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(expect.Patience))
	err := s.Client.AgentsV1alpha1().RESTClient().Post().Namespace(namespace).Resource("sandboxclaims").
		Param("timeout", "2s").Body(testutil.Claim(set, "patient", 1, both(waits, timeout(expect.Patience)))).
		Do(t.Context()).Error()
	if err != nil {
		t.Fatalf("the call ends with %v, want the claim as it stands", err)
	}
}

func TestServedInOrder(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond))
	const n = 10
	for i := range n {
		create(t, s, testutil.Claim(set, fmt.Sprintf("c-%d", i), 1, both(waits, timeout(expect.Patience))))
	}
	for i := range n {
		s.Stock(t, set, i, 1)
		s.AwaitClaim(t, namespace, fmt.Sprintf("c-%d", i), testutil.Completed)
	}
	checkInvariants(t, s)
}

func TestTimesOutWithAPart(t *testing.T) {
	s, set := stocked(t, 2, withSyncWindow(expect.Patience/4))
	claim := create(t, s, testutil.Claim(set, "short", 3, both(waits, timeout(time.Second))))
	if testutil.Completed(claim) != "" || claim.Status.ClaimedReplicas != 2 || !isTrue(claim, v1alpha1.ClaimConditionTimedOut) ||
		!strings.Contains(claim.Status.Message, "claimed 2/3 sandboxes") {
		t.Errorf("ends with %+v", claim.Status)
	}
	checkInvariants(t, s)
}

func TestAllOrNothingTimesOutWithNothing(t *testing.T) {
	s, set := stocked(t, 2, withSyncWindow(expect.Patience/4))
	claim := create(t, s, testutil.Claim(set, "short", 3, both(waits, allOrNothing, timeout(time.Second))))
	if testutil.Completed(claim) != "" || claim.Status.ClaimedReplicas != 0 || !strings.Contains(claim.Status.Message, "claimed 0/3") {
		t.Errorf("ends with %+v", claim.Status)
	}
	create(t, s, testutil.Claim(set, "fits", 2, both(fails, allOrNothing)))
	checkInvariants(t, s)
}

func TestAllOrNothingWaitsForAll(t *testing.T) {
	s, set := stocked(t, 2, withSyncWindow(time.Millisecond))
	set.Spec.Replicas = ptr.To[int32](5)
	if _, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, s, testutil.Claim(set, "three", 3, both(waits, allOrNothing, timeout(expect.Patience))))
	if its := owned(t, s, s.AwaitClaim(t, namespace, "three", func(*v1alpha1.SandboxClaim) string { return "" })); len(its) != 0 {
		t.Errorf("holds %d before it can have all", len(its))
	}
	s.Stock(t, set, 10, 1)
	claim := s.AwaitClaim(t, namespace, "three", testutil.Completed)
	if claim.Status.ClaimedReplicas != 3 {
		t.Errorf("ends with %q", claim.Status.Message)
	}
	checkInvariants(t, s)
}

func TestGoneCallerCostsNothing(t *testing.T) {
	s, set := stocked(t, 1)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := claims(s).Create(gone, testutil.Claim(set, "gone", 1, nil), metav1.CreateOptions{}); err == nil {
		t.Fatal("a cancelled call succeeded")
	}
	create(t, s, testutil.Claim(set, "here", 1, fails))
	checkInvariants(t, s)
}

func TestDeletedWhileItWaits(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond))
	create(t, s, testutil.Claim(set, "gone", 1, both(waits, timeout(expect.Patience))))
	if err := claims(s).Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, s, testutil.Claim(set, "next", 1, both(waits, timeout(expect.Patience))))
	s.Stock(t, set, 0, 1)
	s.AwaitClaim(t, namespace, "next", testutil.Completed)
	checkInvariants(t, s)
}
