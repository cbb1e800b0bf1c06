// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// freshOf waits until the claim "cold" has n sandboxes of its own making.
func freshOf(t *testing.T, s *testutil.Server, n int) []v1alpha1.Sandbox {
	t.Helper()
	var list *v1alpha1.SandboxList
	expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) {
		list, err = sandboxes(s).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelClaimName + "=cold"})
		if err == nil && len(list.Items) != n {
			err = fmt.Errorf("claim cold has %d sandboxes, want %d", len(list.Items), n)
		}
		return err
	})
	return list.Items
}

// set a sandbox's status, as a controller does.
func setStatus(t *testing.T, s *testutil.Server, sb *v1alpha1.Sandbox, status v1alpha1.SandboxStatus) {
	t.Helper()
	sb = sb.DeepCopy()
	sb.Status = status
	if sb.Status.PodInfo.PodUID == "" {
		sb.Status.PodInfo.PodUID = sb.UID // it has no Pod, as simulated sandboxes
	}
	if _, err := sandboxes(s).UpdateStatus(t.Context(), sb, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestMakesWhatThePoolLacks(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(time.Millisecond))
	claim := create(t, s, testutil.Claim(set, "cold", 3, timeout(expect.Patience)))
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming {
		t.Fatalf("answered %+v", claim.Status)
	}
	all := freshOf(t, s, 3)
	made := 0
	for i := range all {
		sb := &all[i]
		if sb.Annotations[v1alpha1.AnnotationOwner] != string(claim.UID) || sb.Annotations[v1alpha1.AnnotationLock] == "" {
			t.Errorf("sandbox %s is not the claim's: %v", sb.Name, sb.Annotations)
		}
		if sb.Annotations[v1alpha1.AnnotationSandboxPriority] == "" {
			continue // the one from the pool
		}
		made++
		if sb.Status.Phase != v1alpha1.SandboxPending || sb.Generation != 1 || !metav1.IsControlledBy(sb, claim) ||
			sb.Labels[v1alpha1.LabelTemplateHash] != "" || sb.UID == "" || sb.Spec.Template == nil {
			t.Errorf("a fresh sandbox is born as %+v", sb)
		}
		setStatus(t, s, sb, testutil.ReadyStatus(100+i, time.Now()))
	}
	if made != 2 {
		t.Errorf("%d were made, want 2", made)
	}
	ended := s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	if ended.Status.ClaimedReplicas != 3 || isTrue(ended, v1alpha1.ClaimConditionTimedOut) {
		t.Errorf("ends with %q", ended.Status.Message)
	}
	for _, sb := range owned(t, s, claim) {
		if len(sb.OwnerReferences) != 0 || sb.Annotations[v1alpha1.AnnotationStarting] != "" {
			t.Errorf("sandbox %s counts, but goes with the claim: %v, %v", sb.Name, sb.OwnerReferences, sb.Annotations)
		}
	}
	for _, entry := range ended.Status.Sandboxes {
		if len(entry.PodIPs) != 1 {
			t.Errorf("sandbox %s is listed without an address", entry.Name)
		}
	}
	checkInvariants(t, s)
}

func TestColdStartFinishesInTheCall(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(expect.Patience/4))
	readied := make(chan struct{})
	go func() {
		defer close(readied)
		sb := freshOf(t, s, 1)[0]
		setStatus(t, s, &sb, testutil.ReadyStatus(1, time.Now()))
	}()
	claim := create(t, s, testutil.Claim(set, "cold", 1, timeout(expect.Patience)))
	<-readied
	if testutil.Completed(claim) != "" || claim.Status.ClaimedReplicas != 1 {
		t.Errorf("answered %+v", claim.Status)
	}
	checkInvariants(t, s)
}

func TestFailedFreshSandboxIsLetGoAndReplaced(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond))
	create(t, s, testutil.Claim(set, "cold", 1, timeout(expect.Patience)))
	failed := freshOf(t, s, 1)[0]
	setStatus(t, s, &failed, v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxFailed})
	s.AwaitClaim(t, namespace, "cold", func(*v1alpha1.SandboxClaim) string {
		sb, err := sandboxes(s).Get(t.Context(), failed.Name, metav1.GetOptions{})
		if err != nil || sb.Spec.ShutdownTime == nil || sb.Annotations[v1alpha1.AnnotationOwner] != "" {
			return fmt.Sprintf("the failed sandbox is still held: %v", err)
		}
		return ""
	})
	next := freshOf(t, s, 1)[0]
	setStatus(t, s, &next, testutil.ReadyStatus(1, time.Now()))
	ended := s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	if len(ended.Status.Sandboxes) != 1 || ended.Status.Sandboxes[0].Name != next.Name {
		t.Errorf("ends with %+v", ended.Status)
	}
	checkInvariants(t, s)
}

func TestFailedFreshSandboxIsReserved(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond))
	create(t, s, testutil.Claim(set, "cold", 1, both(timeout(3*time.Second), func(c *v1alpha1.SandboxClaim) {
		c.Spec.ReserveFailedSandbox = true
		c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: time.Second}
	})))
	ended := s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	if ended.Status.ClaimedReplicas != 0 || !isTrue(ended, v1alpha1.ClaimConditionTimedOut) {
		t.Errorf("ends with %+v", ended.Status)
	}
	its := owned(t, s, ended)
	if len(its) == 0 {
		t.Error("no failed sandbox was kept")
	}
	for _, sb := range its {
		if sb.Labels[v1alpha1.LabelReservedFailedSandbox] != "true" || sb.Spec.ShutdownTime != nil {
			t.Errorf("sandbox %s is kept with labels %v, shutdownTime %v", sb.Name, sb.Labels, sb.Spec.ShutdownTime)
		}
	}
	checkInvariants(t, s)
}

func TestFreshSandboxThatIsNeverReadyIsLetGoAtTheEnd(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(time.Millisecond))
	claim := create(t, s, testutil.Claim(set, "cold", 2, timeout(time.Second)))
	ended := s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	if ended.Status.ClaimedReplicas != 1 || !isTrue(ended, v1alpha1.ClaimConditionTimedOut) {
		t.Errorf("ends with %+v", ended.Status)
	}
	if its := owned(t, s, claim); len(its) != 1 {
		t.Errorf("%d sandboxes name the claim, want the one from the pool", len(its))
	}
	checkInvariants(t, s)
}

func TestAllOrNothingWithFreshOnesEndsWithNoneIfOneFails(t *testing.T) {
	s, set := stocked(t, 2, withSyncWindow(time.Millisecond))
	claim := create(t, s, testutil.Claim(set, "cold", 3, both(allOrNothing, timeout(time.Second))))
	ended := s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	if ended.Status.ClaimedReplicas != 0 || len(ended.Status.Sandboxes) != 0 {
		t.Errorf("ends with a part: %+v", ended.Status)
	}
	if its := owned(t, s, claim); len(its) != 0 {
		t.Errorf("%d sandboxes still name the claim", len(its))
	}
	checkInvariants(t, s)
}

func TestDeletedFreshSandboxIsReplaced(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond))
	create(t, s, testutil.Claim(set, "cold", 1, timeout(expect.Patience)))
	first := freshOf(t, s, 1)[0]
	if err := sandboxes(s).Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.AwaitClaim(t, namespace, "cold", func(*v1alpha1.SandboxClaim) string {
		if all := freshOf(t, s, 1); all[0].Name == first.Name {
			return "the deleted one is still there"
		}
		return ""
	})
}

func TestClaimDeletedDuringAColdStartLetsGo(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond))
	claim := create(t, s, testutil.Claim(set, "cold", 2, timeout(expect.Patience)))
	all := freshOf(t, s, 2)
	if err := claims(s).Delete(t.Context(), "cold", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if n := len(owned(t, s, claim)); n > 0 {
			return fmt.Errorf("%d sandboxes of a deleted claim are still held", n)
		}
		return nil
	})
	for _, sb := range all {
		now, err := sandboxes(s).Get(t.Context(), sb.Name, metav1.GetOptions{})
		if err != nil || now.Spec.ShutdownTime == nil {
			t.Errorf("sandbox %s is not due to be shut down: %v", sb.Name, err)
		}
	}
}
