// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// stocked is a sandbox that is available in a pool.
func stocked(name string) *v1alpha1.Sandbox {
	sb := pooled.DeepCopy()
	sb.Name, sb.UID = name, types.UID(name)
	sb.CreationTimestamp = metav1.NewTime(birth.Add(-time.Hour))
	becomeReady(sb)
	return sb
}

func becomeReady(sb *v1alpha1.Sandbox) {
	sb.Status.Phase, sb.Status.PodInfo.PodIP, sb.Status.ObservedGeneration = v1alpha1.SandboxRunning, "10.0.0.1", sb.Generation
	setReady(sb, metav1.ConditionTrue)
}

func setReady(sb *v1alpha1.Sandbox, status metav1.ConditionStatus) {
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionReady, Status: status, Reason: v1alpha1.ReasonPodReady, LastTransitionTime: metav1.NewTime(birth),
	})
}

// setResized sets how the resize of a sandbox went; "" is well.
func setResized(sb *v1alpha1.Sandbox, failure string) {
	c := metav1.Condition{
		Type: v1alpha1.SandboxConditionInplaceUpdate, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSucceeded,
		LastTransitionTime: metav1.NewTime(birth),
	}
	if failure != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonFailed, failure
	}
	meta.SetStatusCondition(&sb.Status.Conditions, c)
}

// setImageFailed says of a sandbox that it could not be given its image.
func setImageFailed(sb *v1alpha1.Sandbox) {
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionImageUpdated, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFailed, LastTransitionTime: metav1.NewTime(birth),
	})
}

// setOf is a set of 2 that may serve the claims of these tests.
func setOf(burst int32) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool"}}
	set.Spec.Replicas, set.Spec.ScaleStrategy.Burst = new(int32(2)), &burst
	return set
}

// served is where sandboxes come from when there is a set.
func served() claims.Eligible {
	set := setOf(0)
	return claims.Eligible{Pools: []*v1alpha1.SandboxSet{set}, Found: true, MakeFrom: set, Name: set.Name}
}

// change changes a claim, and held a sandbox that a claim holds.
type (
	change = func(*v1alpha1.SandboxClaim)
	held   = func(*v1alpha1.Sandbox)
)

func of(replicas int32) change {
	return func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas, c.Spec.CreateOnNoStock = &replicas, new(false) }
}

func atOnce(c *v1alpha1.SandboxClaim) { c.Spec.Allocation = v1alpha1.AllocationAllOrNothing }

func orMade(c *v1alpha1.SandboxClaim) { c.Spec.CreateOnNoStock = nil }

func orFails(c *v1alpha1.SandboxClaim) { c.Spec.OnShortage = v1alpha1.ShortageFail }

func withEnv(c *v1alpha1.SandboxClaim) {
	c.Spec.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: "b"}}
}

// lists is a claim whose status says that these count, and how many more.
func lists(unlisted int32, names ...string) change {
	return func(c *v1alpha1.SandboxClaim) {
		for _, name := range names {
			c.Status.Sandboxes = append(c.Status.Sandboxes, v1alpha1.ClaimedSandbox{Name: name, PodIPs: []string{"10.0.0.1"}})
		}
		c.Status.ClaimedReplicas = int32(len(names)) + unlisted
	}
}

const (
	// passed is how long the claims of these tests that are not new have been waiting.
	passed = 20 * time.Second
	// boundFor is how long they have held what they hold.
	boundFor = 10 * time.Second
)

// stateOf is what is known of a claim that is stored, and that holds nothing.
func stateOf(changes ...change) State {
	claim := claimOf(func(c *v1alpha1.SandboxClaim) {
		begin(c, birth)
		c.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Minute}
		c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: 30 * time.Second}
		for _, change := range changes {
			change(c)
		}
	})
	return State{Claim: claim, Start: birth, Now: birth.Add(passed), Room: 127, Making: Making{Allowed: true}, Eligible: served()}
}

// holds adds a sandbox that is starting.
func (s *State) holds(t *testing.T, name string, changes ...held) {
	t.Helper()
	sb, _, err := bindWith(marksOf(t, s.Claim), &Candidate{Sandbox: stocked(name), Template: pooled.Spec.Template, Lock: "lock"}, s.Now.Add(-boundFor))
	if err != nil {
		t.Fatal(err)
	}
	setCounted(sb, s.Claim, false)
	for _, change := range changes {
		change(sb)
	}
	s.Held = append(s.Held, sb)
}

func expire(s *State) { s.Now = birth.Add(time.Minute) }

// What may be true of a sandbox that is held.
func isReady(*v1alpha1.Sandbox) {}

func isPending(sb *v1alpha1.Sandbox) {
	sb.Status = v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxPending}
}

func hasNoAddress(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodIP = "" }

func isNotReady(sb *v1alpha1.Sandbox) { setReady(sb, metav1.ConditionFalse) }

func isResizing(sb *v1alpha1.Sandbox) {
	sb.Status.Conditions = append(sb.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionInplaceUpdate, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInplaceUpdating,
	})
}

func isResized(sb *v1alpha1.Sandbox) { setResized(sb, "") }

func couldNotBeResized(sb *v1alpha1.Sandbox) { setResized(sb, "no room") }

func hasEnded(phase v1alpha1.SandboxPhase) held {
	return func(sb *v1alpha1.Sandbox) { sb.Status.Phase = phase }
}

func isDeleted(sb *v1alpha1.Sandbox) { sb.DeletionTimestamp = &metav1.Time{Time: birth} }

func isReserved(sb *v1alpha1.Sandbox) { sb.Labels[v1alpha1.LabelReservedFailedSandbox] = "true" }

func isTooLate(sb *v1alpha1.Sandbox) {
	isPending(sb)
	sb.Annotations[v1alpha1.AnnotationClaimTimestamp] = birth.Add(passed - 31*time.Second).Format(time.RFC3339)
}

func isNearlyTooLate(sb *v1alpha1.Sandbox) {
	isPending(sb)
	sb.Annotations[v1alpha1.AnnotationClaimTimestamp] = birth.Add(passed - 30*time.Second).Format(time.RFC3339)
}

func counts(sb *v1alpha1.Sandbox) { delete(sb.Annotations, v1alpha1.AnnotationStarting) }

func all(changes ...held) held {
	return func(sb *v1alpha1.Sandbox) {
		for _, change := range changes {
			change(sb)
		}
	}
}

func nameOf(sb *v1alpha1.Sandbox) string { return sb.Name }

func namesOf(all []*v1alpha1.Sandbox) (names string) {
	for _, sb := range all {
		names += nameOf(sb)
	}
	return names
}
