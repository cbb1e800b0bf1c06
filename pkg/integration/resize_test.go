// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	fourCores = `{"spec":{"containers":[{"image":"busybox","name":"main","resources":{"requests":{"cpu":"4","memory":"8Gi"}}}]}}`
	// twoCores makes a large pool cheaper to keep.
	twoCores = `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}]}}`
)

// pools4and2 makes a small pool of a template and a large one that is patched to be
// smaller, with so many sandboxes each.
func pools4and2(t *testing.T, s *testutil.Server, small, large int) (smallSet, largeSet *v1alpha1.SandboxSet) {
	t.Helper()
	template, err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Create(t.Context(), &v1alpha1.SandboxTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "python"},
		Spec: v1alpha1.SandboxTemplateSpec{EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
			Template: &runtime.RawExtension{Raw: []byte(fourCores)},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	smallSet = s.SetOf(t, template, "small", "", int32(small))
	largeSet = s.SetOf(t, template, "large", twoCores, int32(large))
	s.Stock(t, smallSet, 0, small)
	s.Stock(t, largeSet, 0, large)
	known(t, s, int32(small+large))
	return smallSet, largeSet
}

// resizingOf waits until n sandboxes of a claim are being resized, and returns them.
func resizingOf(t *testing.T, s *testutil.Server, claim *v1alpha1.SandboxClaim, n int) []v1alpha1.Sandbox {
	t.Helper()
	var found []v1alpha1.Sandbox
	expect.Eventually(t.Context(), t, func(context.Context) error {
		found = slices.DeleteFunc(owned(t, s, claim), func(sb v1alpha1.Sandbox) bool { return !isResizing(&sb) })
		if len(found) != n {
			return fmt.Errorf("%d sandboxes of claim %s are being resized, want %d", len(found), claim.Name, n)
		}
		return nil
	})
	return found
}

func isResizing(sb *v1alpha1.Sandbox) bool {
	update := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
	return update != nil && update.Reason == v1alpha1.ReasonInplaceUpdating
}

// resized plays the controller of sandboxes: the pod was resized, or, with a
// message, could not be.
func resized(t *testing.T, s *testutil.Server, sb *v1alpha1.Sandbox, failure string) {
	t.Helper()
	status := *sb.Status.DeepCopy()
	update := metav1.Condition{
		Type: v1alpha1.SandboxConditionInplaceUpdate, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonSucceeded, ObservedGeneration: sb.Generation,
	}
	if failure != "" {
		update.Status, update.Reason, update.Message = metav1.ConditionFalse, v1alpha1.ReasonFailed, failure
	}
	meta.SetStatusCondition(&status.Conditions, update)
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonPodReady, ObservedGeneration: sb.Generation,
	})
	status.ObservedGeneration = sb.Generation
	setStatus(t, s, sb, status)
}

func inplaceUpdate(claim *v1alpha1.SandboxClaim) string {
	c := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// TestSmallerSandboxesAreResized: story 1 of the proposal of SandboxTemplates. The
// small pool serves first, and what comes from the cheaper one is resized.
func TestSmallerSandboxesAreResized(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	pools4and2(t, s, 2, 3)
	claim := create(t, s, ofTemplate("story", "python", 4, waits, timeout(expect.Patience), func(c *v1alpha1.SandboxClaim) {
		c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: expect.Patience}
	}))
	if got := pools(claim)["small"]; got != 2 || claim.Status.ClaimedReplicas != 2 || testutil.Completed(claim) == "" {
		t.Errorf("answers %+v", claim.Status)
	}
	if got, want := inplaceUpdate(claim), "False InplaceUpdating: Resizing 2 sandboxes"; got != want {
		t.Errorf("while resizing the claim says %q, want %q", got, want)
	}
	begun := resizingOf(t, s, claim, 2)
	for i := range begun {
		sb := &begun[i]
		if sb.ResourceVersion != claim.ResourceVersion {
			t.Errorf("%s is not bound by the transaction of the claim", sb.Name)
		}
		ready := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionReady)
		if ready.Status != metav1.ConditionFalse || ready.Reason != v1alpha1.ReasonInplaceUpdating || ready.Message != "inplace update is incompleted" {
			t.Errorf("%s: Ready is %+v", sb.Name, ready)
		}
		if sb.Generation != 2 || sb.Status.ObservedGeneration != 1 || sb.Annotations[v1alpha1.AnnotationStarting] != "true" ||
			!metav1.IsControlledBy(sb, claim) || sb.Spec.TemplateRef != nil {
			t.Errorf("%s is bound as %+v", sb.Name, sb)
		}
		want := fmt.Sprintf(`{"metadata":{"labels":{"agents.kruise.io/owner":%q}},`+
			`"spec":{"containers":[{"image":"busybox","name":"main","resources":{"requests":{"cpu":"4","memory":"8Gi"}}}]}}`, claim.UID)
		if diff := cmp.Diff(want, string(sb.Spec.Template.Raw)); diff != "" {
			t.Errorf("template of %s (-want +got):\n%s", sb.Name, diff)
		}
	}
	// One that is ready too early is not what it is to be, and does not count.
	early := begun[1].Status.DeepCopy()
	meta.SetStatusCondition(&early.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodReady,
	})
	setStatus(t, s, &begun[1], *early)
	resized(t, s, &begun[0], "")
	s.AwaitClaim(t, namespace, "story", func(c *v1alpha1.SandboxClaim) string {
		if inplaceUpdate(c) != "False InplaceUpdating: Resizing 1 sandboxes" || c.Status.ClaimedReplicas != 3 {
			return "does not count the one that is done"
		}
		return ""
	})
	last, err := sandboxes(s).Get(t.Context(), begun[1].Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	resized(t, s, last, "")
	ended := s.AwaitClaim(t, namespace, "story", testutil.Completed)
	if got, want := inplaceUpdate(ended), "True Succeeded: Resized 2 sandboxes"; got != want || !isTrue(ended, v1alpha1.ClaimConditionReady) {
		t.Errorf("the claim ends with %q, want %q; %+v", got, want, ended.Status)
	}
	if diff := cmp.Diff(map[string]int{"small": 2, "large": 2}, pools(ended)); diff != "" {
		t.Errorf("served from (-want +got):\n%s", diff)
	}
	for _, sb := range owned(t, s, ended) {
		if len(sb.OwnerReferences) != 0 || sb.Annotations[v1alpha1.AnnotationStarting] != "" {
			t.Errorf("%s counts, but has owners %v, annotations %v", sb.Name, sb.OwnerReferences, sb.Annotations)
		}
	}
	checkInvariants(t, s)
}

// TestResizeFinishesInTheCall: who waits within the sync window gets the end.
func TestResizeFinishesInTheCall(t *testing.T) {
	s := start(t, withSyncWindow(expect.Patience/4))
	_, large := pools4and2(t, s, 0, 1)
	claim, answered := ofTemplate("one", "python", 1, waits, timeout(expect.Patience)), make(chan error, 1)
	go func() {
		var err error
		claim, err = claims(s).Create(t.Context(), claim, metav1.CreateOptions{})
		answered <- err
	}()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		sb, err := sandboxes(s).Get(ctx, large.Name+"-000000", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !isResizing(sb) {
			return errors.New("the sandbox is not being resized")
		}
		resized(t, s, sb, "")
		return nil
	})
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if testutil.Completed(claim) != "" || inplaceUpdate(claim) != "True Succeeded: Resized 1 sandboxes" {
		t.Errorf("answers %+v", claim.Status)
	}
	checkInvariants(t, s)
}

// TestRefusedResizeCounts: the sandbox is the claim's, with what it has.
func TestRefusedResizeCounts(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	pools4and2(t, s, 0, 2)
	claim := create(t, s, ofTemplate("refused", "python", 2, waits, timeout(expect.Patience)))
	begun := resizingOf(t, s, claim, 2)
	const why = "resource resize would change QoS class from Burstable to Guaranteed, resize rejected"
	resized(t, s, &begun[0], why)
	resized(t, s, &begun[1], "")
	ended := s.AwaitClaim(t, namespace, "refused", testutil.Completed)
	want := "False Failed: 1 of 2 sandboxes could not be resized: " + begun[0].Name + ": " + why
	if got := inplaceUpdate(ended); got != want || ended.Status.ClaimedReplicas != 2 || !isTrue(ended, v1alpha1.ClaimConditionReady) {
		t.Errorf("the claim ends with %q, want %q; %+v", got, want, ended.Status)
	}
	checkInvariants(t, s)
}

// TestUnfinishedResizeIsLetGo: another sandbox takes the place of one that is not
// ready in time.
func TestUnfinishedResizeIsLetGo(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	_, large := pools4and2(t, s, 0, 1)
	claim := create(t, s, ofTemplate("slow", "python", 1, waits, timeout(expect.Patience), func(c *v1alpha1.SandboxClaim) {
		c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: 2 * time.Second}
	}))
	stuck := resizingOf(t, s, claim, 1)[0]
	s.AwaitClaim(t, namespace, "slow", func(c *v1alpha1.SandboxClaim) string {
		sb, err := sandboxes(s).Get(t.Context(), stuck.Name, metav1.GetOptions{})
		if err != nil || sb.Spec.ShutdownTime == nil || sb.Annotations[v1alpha1.AnnotationOwner] != "" || inplaceUpdate(c) != "" {
			return fmt.Sprintf("still holds %s: %v", stuck.Name, err)
		}
		return ""
	})
	s.Stock(t, large, 1, 1)
	next := resizingOf(t, s, claim, 1)[0]
	resized(t, s, &next, "")
	ended := s.AwaitClaim(t, namespace, "slow", testutil.Completed)
	if len(ended.Status.Sandboxes) != 1 || ended.Status.Sandboxes[0].Name != next.Name || inplaceUpdate(ended) != "True Succeeded: Resized 1 sandboxes" {
		t.Errorf("ends with %+v", ended.Status)
	}
	checkInvariants(t, s)
}

// TestAllOrNothingWaitsForResizes: nothing counts before everything does.
func TestAllOrNothingWaitsForResizes(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	pools4and2(t, s, 1, 2)
	claim := create(t, s, ofTemplate("all", "python", 3, waits, allOrNothing, timeout(expect.Patience)))
	if claim.Status.ClaimedReplicas != 0 || len(claim.Status.Sandboxes) != 0 {
		t.Errorf("answers %+v", claim.Status)
	}
	states, err := claims(s).Watch(t.Context(), metav1.ListOptions{ResourceVersion: claim.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer states.Stop()
	begun := resizingOf(t, s, claim, 2)
	resized(t, s, &begun[0], "")
	time.Sleep(time.Second) // progress is written twice a second
	resized(t, s, &begun[1], "")
	ended := s.AwaitClaim(t, namespace, "all", testutil.Completed)
	for event := range states.ResultChan() {
		seen, ok := event.Object.(*v1alpha1.SandboxClaim)
		if !ok {
			t.Fatalf("watches %+v", event.Object)
		}
		if seen.ResourceVersion == ended.ResourceVersion {
			break
		}
		if seen.Status.ClaimedReplicas != 0 || len(seen.Status.Sandboxes) != 0 {
			t.Errorf("counts a part: %+v", seen.Status)
		}
	}
	if ended.Status.ClaimedReplicas != 3 || inplaceUpdate(ended) != "True Succeeded: Resized 2 sandboxes" {
		t.Errorf("ends with %+v", ended.Status)
	}
	checkInvariants(t, s)
}

func TestResizeGoesOnAfterARestart(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	pools4and2(t, s, 1, 2)
	claim := create(t, s, ofTemplate("crash", "python", 3, waits, timeout(expect.Patience), func(c *v1alpha1.SandboxClaim) {
		c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: expect.Patience}
	}))
	begun := resizingOf(t, s, claim, 2)
	resized(t, s, &begun[0], "no")
	s.AwaitClaim(t, namespace, "crash", func(c *v1alpha1.SandboxClaim) string {
		if c.Status.ClaimedReplicas != 2 {
			return "does not count the first"
		}
		return ""
	})
	s = restart(t, s)
	resized(t, s, &begun[1], "")
	ended := s.AwaitClaim(t, namespace, "crash", testutil.Completed)
	want := "False Failed: 1 of 2 sandboxes could not be resized: " + begun[0].Name + ": no"
	if got := inplaceUpdate(ended); got != want || ended.Status.ClaimedReplicas != 3 {
		t.Errorf("ends with %q, want %q; %+v", got, want, ended.Status)
	}
	checkInvariants(t, s)
}

func TestClaimDeletedDuringAResizeLetsGo(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	pools4and2(t, s, 0, 1)
	claim := create(t, s, ofTemplate("gone", "python", 1, waits, timeout(expect.Patience)))
	begun := resizingOf(t, s, claim, 1)[0]
	if err := claims(s).Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		sb, err := sandboxes(s).Get(ctx, begun.Name, metav1.GetOptions{})
		if err == nil && (sb.Annotations[v1alpha1.AnnotationOwner] != "" || sb.Spec.ShutdownTime == nil) {
			err = fmt.Errorf("the sandbox of a deleted claim is still held: %v", sb.Annotations)
		}
		return err
	})
}

// TestWhoIsResized: a claim on the template is, also if it names the pool; one on
// the set asked for what the set says.
func TestWhoIsResized(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	small, large := pools4and2(t, s, 1, 4)
	asked := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "python"}}
	tests := []struct {
		claim  *v1alpha1.SandboxClaim
		resize bool
	}{
		{testutil.Claim(large, "by-set", 1, waits), false},
		{ofTemplate("by-ref-and-pool", "python", 1, waits, fromPool("large")), true},
		{testutil.Claim(small, "small", 1, waits), false},
		{testutil.Claim(asked, "by-name", 1, waits), true},
	}
	for _, tc := range tests {
		tc.claim.Spec.ClaimTimeout = &metav1.Duration{Duration: expect.Patience}
		claim := create(t, s, tc.claim)
		if !tc.resize {
			if testutil.Completed(claim) != "" || inplaceUpdate(claim) != "" {
				t.Errorf("%s: answers %+v", claim.Name, claim.Status)
			}
			sb := owned(t, s, claim)[0]
			if cpu := `"cpu":"2"`; strings.Contains(string(sb.Spec.Template.Raw), cpu) != (claim.Name == "by-set") || sb.Status.ObservedGeneration != sb.Generation {
				t.Errorf("%s: bound as %+v", claim.Name, sb)
			}
			continue
		}
		begun := resizingOf(t, s, claim, 1)[0]
		resized(t, s, &begun, "")
		if ended := s.AwaitClaim(t, namespace, claim.Name, testutil.Completed); inplaceUpdate(ended) != "True Succeeded: Resized 1 sandboxes" {
			t.Errorf("%s: ends with %+v", claim.Name, ended.Status)
		}
	}
	checkInvariants(t, s)
}

// TestDryRunShowsResizes: what it answers is what a create would answer at once.
func TestDryRunShowsResizes(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	pools4and2(t, s, 1, 1)
	tests := []struct {
		claim    *v1alpha1.SandboxClaim
		counted  int32
		resizing string
	}{
		{ofTemplate("one", "python", 1, waits), 1, ""},
		{ofTemplate("both", "python", 2, waits), 1, "False InplaceUpdating: Resizing 1 sandboxes"},
		{ofTemplate("at-once", "python", 2, waits, allOrNothing), 0, "False InplaceUpdating: Resizing 1 sandboxes"},
		{ofTemplate("never", "python", 3, waits, allOrNothing), 0, ""},
	}
	for _, tc := range tests {
		shown, err := claims(s).Create(t.Context(), tc.claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Fatal(err)
		}
		if shown.Status.ClaimedReplicas != tc.counted || int(tc.counted) != len(shown.Status.Sandboxes) || inplaceUpdate(shown) != tc.resizing ||
			(testutil.Completed(shown) == "") != (tc.counted == *tc.claim.Spec.Replicas) {
			t.Errorf("%s: shows %+v", tc.claim.Name, shown.Status)
		}
	}
	if claim := create(t, s, tests[1].claim); claim.Status.ClaimedReplicas != 1 || inplaceUpdate(claim) != tests[1].resizing {
		t.Errorf("answers %+v", claim.Status)
	}
}

// TestTemplateGone: without the template it is unknown how large its sandboxes are.
func TestTemplateGone(t *testing.T) {
	s := start(t)
	pools4and2(t, s, 0, 1)
	if err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Delete(t.Context(), "python", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Nothing is left to find it by, but the watch cache may know it for a moment.
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err == nil && slices.ContainsFunc(list.Items, func(tpl v1alpha1.SandboxTemplate) bool { return tpl.Name == "python" }) {
			err = errors.New("the template is there")
		}
		return err
	})
	claim := create(t, s, ofTemplate("gone", "python", 1, waits))
	sb := owned(t, s, claim)[0]
	want := "False Failed: 1 of 1 sandboxes could not be resized: " + sb.Name + ": in-place resource resize failed: "
	if got := inplaceUpdate(claim); testutil.Completed(claim) != "" || !strings.HasPrefix(got, want) || !strings.Contains(got, "SandboxTemplate python: not found") {
		t.Errorf("answers %+v, want %q", claim.Status, want)
	}
	if !strings.Contains(string(sb.Spec.Template.Raw), `"cpu":"2"`) || sb.Status.ObservedGeneration != sb.Generation || len(sb.OwnerReferences) != 0 {
		t.Errorf("bound as %+v", sb)
	}
	checkInvariants(t, s)
}

// TestResizeStorm: many claims at once, most of whose sandboxes are resized, and some
// of them cannot be.
func TestResizeStorm(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	const n, each = 40, 3
	pools4and2(t, s, n/2, n*each-n/2)
	ctx, cancel := context.WithCancel(t.Context())
	played := make(chan int, 1)
	go func() {
		ended := 0
		defer func() { played <- ended }()
		_ = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			list, err := sandboxes(s).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for i := range list.Items {
				sb := &list.Items[i]
				if !isResizing(sb) {
					continue
				}
				failure := ""
				if ended++; ended%4 == 0 {
					failure = "no room"
				}
				resized(t, s, sb, failure)
			}
			return false, nil
		})
	}()
	var g errgroup.Group
	for i := range n {
		g.Go(func() error {
			claim := ofTemplate(fmt.Sprintf("storm-%d", i), "python", each, waits, timeout(expect.Patience), func(c *v1alpha1.SandboxClaim) {
				c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: expect.Patience}
				if i%2 == 0 {
					c.Spec.Allocation = v1alpha1.AllocationAllOrNothing
				}
			})
			_, err := claims(s).Create(t.Context(), claim, metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	told := 0
	for i := range n {
		claim := s.AwaitClaim(t, namespace, fmt.Sprintf("storm-%d", i), testutil.Completed)
		if claim.Status.ClaimedReplicas != each {
			t.Errorf("%s ends with %+v", claim.Name, claim.Status)
		}
		its := owned(t, s, claim)
		inPlace := 0
		for j := range its {
			sb := &its[j]
			cpu := `"cpu":"4"`
			if meta.IsStatusConditionFalse(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate) {
				cpu = `"cpu":"2"` // it is taken back
			}
			if !strings.Contains(string(sb.Spec.Template.Raw), cpu) || len(sb.OwnerReferences) != 0 {
				t.Errorf("%s of %s: owners %v, template %s", sb.Name, claim.Name, sb.OwnerReferences, sb.Spec.Template.Raw)
			}
			if meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate) != nil {
				inPlace++
			}
		}
		told += inPlace
		if says := inplaceUpdate(claim); (says != "") != (inPlace > 0) ||
			strings.HasPrefix(says, "True") && says != fmt.Sprintf("True Succeeded: Resized %d sandboxes", inPlace) {
			t.Errorf("%s had %d resized and says %q", claim.Name, inPlace, says)
		}
	}
	cancel()
	if ended := <-played; ended != told || told != n*each-n/2 {
		t.Errorf("%d were resized, %d are claimed, want all %d of the large pool", ended, told, n*each-n/2)
	}
	checkInvariants(t, s)
}
