// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// withImage asks for an image, and for so much cpu if that is not empty.
func withImage(image, cpu string) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) {
		c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: expect.Patience}
		c.Spec.InplaceUpdate = &v1alpha1.SandboxClaimInplaceUpdateOptions{Image: image}
		if cpu != "" {
			c.Spec.InplaceUpdate.Resources = &v1alpha1.SandboxClaimInplaceUpdateResources{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}
		}
	}
}

// imageFailed plays the controller of sandboxes: the pod cannot have the image.
func imageFailed(t *testing.T, s *testutil.Server, sb *v1alpha1.Sandbox) {
	t.Helper()
	status := *sb.Status.DeepCopy()
	for kind, reason := range map[string]string{
		v1alpha1.SandboxConditionInplaceUpdate: v1alpha1.ReasonFailed, v1alpha1.SandboxConditionImageUpdated: v1alpha1.ReasonFailed,
		v1alpha1.SandboxConditionReady: v1alpha1.ReasonStartContainerFailed,
	} {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: "no such image"})
	}
	status.ObservedGeneration = sb.Generation
	setStatus(t, s, sb, status)
}

// TestImageThatFailsIsReplaced: once a sandbox counts with the image of its claim, one
// without it is released, another of the pool takes its place, and the claim ends with
// that.
func TestImageThatFailsIsReplaced(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	pools4and2(t, s, 3, 0)
	claim := create(t, s, ofTemplate("mine", "python", 2, waits, timeout(expect.Patience), withImage("two", "1")))
	if got, want := inplaceUpdate(claim), "False InplaceUpdating: Updating 1 sandboxes in place"; got != want || claim.Status.ClaimedReplicas != 0 {
		t.Errorf("the claim says %q, want %q: %+v", got, want, claim.Status)
	}
	tried := resizingOf(t, s, claim, 1)[0]
	if raw := string(tried.Spec.Template.Raw); !strings.Contains(raw, `"image":"two"`) || !strings.Contains(raw, `"cpu":"1"`) {
		t.Errorf("it is bound as %s", raw)
	}
	resized(t, s, &tried, "")
	first := resizingOf(t, s, claim, 1)[0]
	imageFailed(t, s, &first)
	s.AwaitClaim(t, namespace, "mine", func(*v1alpha1.SandboxClaim) string {
		sb, err := sandboxes(s).Get(t.Context(), first.Name, metav1.GetOptions{})
		if err != nil || sb.Spec.ShutdownTime == nil || sb.Annotations[v1alpha1.AnnotationOwner] != "" {
			return fmt.Sprintf("still holds %s: %v", first.Name, err)
		}
		return ""
	})
	next := resizingOf(t, s, claim, 1)[0]
	if next.Name == first.Name {
		t.Fatalf("holds %s again", next.Name)
	}
	resized(t, s, &next, "in-place resource resize failed: pod resize is infeasible")
	ended := s.AwaitClaim(t, namespace, "mine", testutil.Completed)
	want := "False Failed: 1 of 2 sandboxes could not be updated in place: " + next.Name + ": in-place resource resize failed: pod resize is infeasible"
	names := sets.New[string]()
	for _, sb := range ended.Status.Sandboxes {
		names.Insert(sb.Name)
	}
	if got := inplaceUpdate(ended); !names.Equal(sets.New(tried.Name, next.Name)) || got != want {
		t.Errorf("says %q, want %q: %+v", got, want, ended.Status)
	}
	checkInvariants(t, s)
}

// TestImageThatFailsEndsTheClaim: where nothing takes its place the claim ends when its
// time is up, with none, says why, and keeps the evidence if it was asked to.
func TestImageThatFailsEndsTheClaim(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	pools4and2(t, s, 1, 0)
	claim := create(t, s, ofTemplate("mine", "python", 1, waits, timeout(3*time.Second), withImage("two", ""), func(c *v1alpha1.SandboxClaim) {
		c.Spec.ReserveFailedSandbox = true
	}))
	failed := resizingOf(t, s, claim, 1)[0]
	imageFailed(t, s, &failed)
	ended := s.AwaitClaim(t, namespace, "mine", testutil.Completed)
	want := "False Failed: 1 of 1 sandboxes could not be updated in place: " + failed.Name + ": no such image"
	if got := inplaceUpdate(ended); got != want || ended.Status.ClaimedReplicas != 0 || !isTrue(ended, v1alpha1.ClaimConditionTimedOut) {
		t.Errorf("says %q, want %q: %+v", got, want, ended.Status)
	}
	kept, err := sandboxes(s).Get(t.Context(), failed.Name, metav1.GetOptions{})
	if err != nil || kept.Labels[v1alpha1.LabelReservedFailedSandbox] != "true" || kept.Spec.ShutdownTime != nil ||
		!meta.IsStatusConditionFalse(kept.Status.Conditions, v1alpha1.SandboxConditionImageUpdated) {
		t.Errorf("kept as %+v, %v", kept, err)
	}
	checkInvariants(t, s)
}

// TestEditOfInplaceUpdate: an edit is for what the claim gets from then on, and its image
// is tried whatever became of the one before.
func TestEditOfInplaceUpdate(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	small, _ := pools4and2(t, s, 1, 0)
	claim := create(t, s, ofTemplate("mine", "python", 2, waits, timeout(expect.Patience), withImage("two", "")))
	before := resizingOf(t, s, claim, 1)[0]
	edited, err := s.Client.AgentsV1alpha1().SandboxClaims(namespace).Patch(t.Context(), "mine", "application/merge-patch+json",
		[]byte(`{"spec":{"inplaceUpdate":{"image":"three"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Stock(t, small, 1, 1)
	resized(t, s, &before, "")
	after := resizingOf(t, s, edited, 1)[0]
	for _, tc := range []struct {
		sb   v1alpha1.Sandbox
		want string
	}{{before, `"image":"two"`}, {after, `"image":"three"`}} {
		if !strings.Contains(string(tc.sb.Spec.Template.Raw), tc.want) {
			t.Errorf("%s is bound as %s, want %s", tc.sb.Name, tc.sb.Spec.Template.Raw, tc.want)
		}
	}
	resized(t, s, &after, "")
	s.AwaitClaim(t, namespace, "mine", testutil.Completed)
	checkInvariants(t, s)
}

// TestBadInplaceUpdate is refused by its field, also where only the template tells.
func TestBadInplaceUpdate(t *testing.T) {
	s := start(t)
	pools4and2(t, s, 1, 0)
	for name, tc := range map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		field  string
	}{
		"empty":  {func(c *v1alpha1.SandboxClaim) { c.Spec.InplaceUpdate = &v1alpha1.SandboxClaimInplaceUpdateOptions{} }, "spec.inplaceUpdate"},
		"spaces": {withImage(" two", ""), "spec.inplaceUpdate.image"},
		"no-cpu": {withImage("", "0"), "spec.inplaceUpdate.resources.requests[cpu]"},
	} {
		claim := ofTemplate(name, "python", 1, waits, tc.change)
		_, err := s.Client.AgentsV1alpha1().SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.field+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	checkInvariants(t, s)
}
