// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// of gives a SandboxTemplate a pod template.
func of(template string) func(*v1alpha1.SandboxTemplateSpec) {
	return func(spec *v1alpha1.SandboxTemplateSpec) { spec.Template = &runtime.RawExtension{Raw: []byte(template)} }
}

// drain lets a set make no more, so that what it has now is all that there will be.
func (c *clients) drain(t testing.TB, namespace, name string) {
	t.Helper()
	stop := []byte(`{"spec":{"scaleStrategy":{"maxUnavailable":0}}}`)
	if _, err := c.SandboxSets(namespace).Patch(t.Context(), name, types.MergePatchType, stop, metav1.PatchOptions{}); err != nil {
		t.Fatalf("stopping a set: %v", err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		set, err := c.SandboxSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && set.Status.ObservedGeneration != set.Generation {
			return errors.New("the set has not seen that it is to make no more")
		}
		return err
	})
}

// claimOf is a claim of so many sandboxes of a template that waits for warm ones.
func claimOf(name, template string, replicas int32) *v1alpha1.SandboxClaim {
	claim := builders.Claim(name, replicas)
	claim.Spec.TemplateName = ""
	claim.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: template}
	claim.Spec.ClaimTimeout = &metav1.Duration{Duration: expect.Patience}
	claim.Spec.WaitReadyTimeout = &metav1.Duration{Duration: expect.Patience}
	return claim
}

// claimAll creates a claim and waits until it is Completed with all it asks for.
func (c *clients) claimAll(t testing.TB, namespace string, claim *v1alpha1.SandboxClaim) *v1alpha1.SandboxClaim {
	t.Helper()
	if _, err := c.SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatalf("claiming: %v", err)
	}
	var done *v1alpha1.SandboxClaim
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		var err error
		if done, err = c.SandboxClaims(namespace).Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if done.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
			return fmt.Errorf("claim %s: %+v", claim.Name, done.Status)
		}
		return nil
	})
	expect.Claimed(t, done, int(*claim.Spec.Replicas))
	return done
}

// updated is the condition InplaceUpdate of a claim in short, "" for none.
func updated(claim *v1alpha1.SandboxClaim) string {
	c := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// pools counts the sandboxes of a claim by the set that they come from.
func (c *clients) pools(t testing.TB, claim *v1alpha1.SandboxClaim) map[string]int {
	t.Helper()
	from := map[string]int{}
	for _, claimed := range claim.Status.Sandboxes {
		sandbox, err := c.Sandboxes(claim.Namespace).Get(t.Context(), claimed.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		from[sandbox.Labels[v1alpha1.LabelSandboxPool]]++
	}
	return from
}

// half is the patch of a pool that is cheaper to keep.
const half = `{"spec":{"containers":[{"name":"main","resources":` + twoCores + `}]}}`

// TestStorySmallPoolFirst is story 1 of the proposal of SandboxTemplates: a small
// pool of full size serves first; when it is empty, sandboxes of a larger and
// cheaper pool are served and made as large as the template says.
func TestStorySmallPoolFirst(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeTemplate(t, ns, "python", of(sized(fourCores)))
	c.makeReferring(t, ns, "small", "python", "", 2)
	c.makeReferring(t, ns, "large", "python", half, 4)
	for _, set := range []string{"small", "large"} {
		c.drain(t, ns, set)
	}

	first := c.claimAll(t, ns, claimOf("first", "python", 1))
	if got := c.pools(t, first); got["small"] != 1 || updated(first) != "" {
		t.Errorf("the first claim is served from %v and says %q", got, updated(first))
	}
	claim := c.claimAll(t, ns, claimOf("second", "python", 4))
	if got := c.pools(t, claim); got["small"] != 1 || got["large"] != 3 {
		t.Errorf("the second claim is served from %v", got)
	}
	if got, want := updated(claim), "True Succeeded: Resized 3 sandboxes"; got != want {
		t.Errorf("the claim says %q, want %q", got, want)
	}
	for _, claimed := range claim.Status.Sandboxes {
		c.awaitCores(t, ns, claimed.Name, "4", "4")
		shown := strings.TrimSpace(kubectl(t, ns, "", "get", "pod", claimed.Name, "-o",
			"jsonpath={.spec.containers[0].resources.requests.cpu} {.status.containerStatuses[0].restartCount}"))
		if shown != "4 0" {
			t.Errorf("kubectl shows the cores and restarts %q of pod %s", shown, claimed.Name)
		}
		sandbox := c.awaitSandbox(t, ns, claimed.Name, isReady)
		if resized := resizeEnded(metav1.ConditionTrue, v1alpha1.ReasonSucceeded)(sandbox) == nil; resized != (sandbox.Labels[v1alpha1.LabelSandboxPool] == "large") {
			t.Errorf("sandbox %s of %s: conditions %+v", claimed.Name, sandbox.Labels[v1alpha1.LabelSandboxPool], sandbox.Status.Conditions)
		}
	}

	// Who asks for the set by its name gets what the set has.
	byName := builders.Claim("by-name", 1)
	byName.Spec.TemplateName = "large"
	asIs := c.claimAll(t, ns, byName)
	c.awaitCores(t, ns, asIs.Status.Sandboxes[0].Name, "2", "2")
	if updated(asIs) != "" {
		t.Errorf("the claim on the set says %q", updated(asIs))
	}
}

// TestResizeRefusedForAClaim claims sandboxes that cannot be resized: they count as
// they are, also by their templates, and the claim says why.
func TestResizeRefusedForAClaim(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	for name, test := range map[string]struct{ template, patch, want string }{
		// Requests alone are lowered, and so the pods are of another class.
		"qos": {
			sized(fourCores), `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}]}}`,
			"resource resize would change QoS class from Burstable to Guaranteed, resize rejected",
		},
		"no-room": {annotated(fourCores, corev1.PodReasonInfeasible), half, "in-place resource resize failed: pod resize is infeasible: Node didn't have enough capacity"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.makeTemplate(t, ns, name, of(test.template))
			c.makeReferring(t, ns, name+"-pool", name, test.patch, 1)
			claim := c.claimAll(t, ns, claimOf(name, name, 1))
			if got := updated(claim); !strings.HasPrefix(got, "False Failed: ") || !strings.Contains(got, test.want) {
				t.Errorf("the claim says %q, want %q in it", got, test.want)
			}
			sandbox := c.awaitSandbox(t, ns, claim.Status.Sandboxes[0].Name, isReady)
			if err := resizeEnded(metav1.ConditionFalse, v1alpha1.ReasonFailed)(sandbox); err != nil {
				t.Errorf("%v: %+v", err, sandbox.Status)
			}
			pod := c.pod(t, ns, sandbox.Name)
			if got := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "2" {
				t.Errorf("the pod asks for %s cores, want 2", got)
			}
			if got := string(sandbox.Spec.Template.Raw); !strings.Contains(got, `"requests":{"cpu":"2",`) {
				t.Errorf("the sandbox has the template %s", got)
			}
		})
	}
}

// TestResizeNeverDone claims a sandbox that does not get what it is to have in time.
// It is released, and another one takes its place: here, a fresh one of the
// template, for the pool has none left.
func TestResizeNeverDone(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeTemplate(t, ns, "python", of(annotated(fourCores, controlplane.ResizeNever)))
	c.makeReferring(t, ns, "pool", "python", half, 1)
	c.drain(t, ns, "pool")
	pooled := c.unused(t, ns)
	claim := claimOf("mine", "python", 1)
	claim.Spec.CreateOnNoStock = new(true)
	claim.Spec.WaitReadyTimeout = &metav1.Duration{Duration: 3 * time.Second}
	done := c.claimAll(t, ns, claim)
	if got := c.pools(t, done); got[""] != 1 {
		t.Errorf("the sandbox is of the pools %v", got)
	}
	c.awaitCores(t, ns, done.Status.Sandboxes[0].Name, "4", "4")
	for _, name := range pooled {
		c.awaitNoPod(t, ns, name)
	}
}

// TestManyResizes claims a whole pool that is smaller than its template: each pod is
// resized by one call.
func TestManyResizes(t *testing.T) {
	t.Parallel()
	const many = 60
	c, ns := admin(t), namespace(t)
	c.makeTemplate(t, ns, "python", of(sized(fourCores)))
	c.makeReferring(t, ns, "pool", "python", half, many)
	c.drain(t, ns, "pool")
	claim := c.claimAll(t, ns, claimOf("all", "python", many))
	if got, want := updated(claim), fmt.Sprintf("True Succeeded: Resized %d sandboxes", many); got != want {
		t.Errorf("the claim says %q, want %q", got, want)
	}
	counts, _ := writesIn(t, ns, plane.AuditLog())
	if got := counts[write{"patch", "pods/resize"}]; got != many {
		t.Errorf("%d resizes of %d pods were asked for", got, many)
	}
	for _, claimed := range claim.Status.Sandboxes {
		c.awaitCores(t, ns, claimed.Name, "4", "4")
	}
}

// TestClaimWithoutASet claims a template that no set has: sandboxes are made of it,
// and are the claim's from their first version on, which is that of the claim.
func TestClaimWithoutASet(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeTemplate(t, ns, "python", of(sized(twoCores)))
	sandboxes, err := c.Sandboxes(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sandboxes.Stop()
	claims, err := c.SandboxClaims(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer claims.Stop()

	fresh := claimOf("fresh", "python", 3)
	fresh.Spec.CreateOnNoStock = new(true)
	done := c.claimAll(t, ns, fresh)

	first, ok := next(t, claims).(*v1alpha1.SandboxClaim)
	if !ok || first.Name != "fresh" {
		t.Fatalf("the first event of claims is about %+v", first)
	}
	born := map[string]bool{}
	for len(born) < 3 {
		sandbox, ok := next(t, sandboxes).(*v1alpha1.Sandbox)
		if !ok || born[sandbox.Name] {
			continue
		}
		born[sandbox.Name] = true
		if sandbox.ResourceVersion != first.ResourceVersion || !metav1.IsControlledBy(sandbox, done) ||
			sandbox.Annotations[v1alpha1.AnnotationOwner] != string(done.UID) || sandbox.Labels[v1alpha1.LabelSandboxPool] != "" {
			t.Errorf("sandbox %s is born at %s, the claim at %s: %+v", sandbox.Name, sandbox.ResourceVersion, first.ResourceVersion, sandbox.ObjectMeta)
		}
	}
	for _, claimed := range done.Status.Sandboxes {
		if !born[claimed.Name] {
			t.Errorf("sandbox %s was not made with the claim", claimed.Name)
		}
		c.awaitCores(t, ns, claimed.Name, "2", "2")
	}
	if first.Status.ClaimedReplicas != 0 {
		t.Errorf("sandboxes that do not run yet count: %+v", first.Status)
	}
}

// TestFreshOfATemplateFail claims two sandboxes of a template that no set has, where
// the cluster lets one pod in. What does not run in time is deleted, or kept and
// marked where the claim asks for that, and the claim says what it got.
func TestFreshOfATemplateFail(t *testing.T) {
	t.Parallel()
	for name, reserve := range map[string]bool{"deleted": false, "reserved": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, ns := admin(t), namespace(t)
			quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
			quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: quantity("1")}
			if _, err := c.kube.CoreV1().ResourceQuotas(ns).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			expect.Eventually(t.Context(), t, func(ctx context.Context) error {
				got, err := c.kube.CoreV1().ResourceQuotas(ns).Get(ctx, "one", metav1.GetOptions{})
				if err == nil && len(got.Status.Hard) == 0 {
					return errors.New("the quota is not counted yet")
				}
				return err
			})
			c.makeTemplate(t, ns, "python", of(sized(twoCores)))
			claim := claimOf("mine", "python", 2)
			claim.Spec.CreateOnNoStock = new(true)
			claim.Spec.ReserveFailedSandbox = reserve
			claim.Spec.WaitReadyTimeout = &metav1.Duration{Duration: 5 * time.Second}
			claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 20 * time.Second}
			if _, err := c.SandboxClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			var done *v1alpha1.SandboxClaim
			expect.Eventually(t.Context(), t, func(ctx context.Context) error {
				var err error
				if done, err = c.SandboxClaims(ns).Get(ctx, "mine", metav1.GetOptions{}); err != nil {
					return err
				}
				if done.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
					return fmt.Errorf("the claim is not over: %+v", done.Status)
				}
				return nil
			})
			got := expect.Claimed(t, done, 1)
			if !meta.IsStatusConditionTrue(done.Status.Conditions, v1alpha1.ClaimConditionTimedOut) {
				t.Errorf("the claim does not say that its time was over: %+v", done.Status)
			}
			if !reserve {
				c.awaitOnly(t, ns, got...)
				return
			}
			list, err := c.Sandboxes(ns).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelReservedFailedSandbox + "=true"})
			if err != nil || len(list.Items) == 0 {
				t.Fatalf("%d failed sandboxes are kept: %v", len(list.Items), err)
			}
			for i := range list.Items {
				if list.Items[i].Name == got[0] {
					t.Errorf("sandbox %s is the claim's, and is kept as a failed one", got[0])
				}
				c.awaitSandbox(t, ns, list.Items[i].Name, hasCondition(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPodCreateFailed))
			}
		})
	}
}

// next returns the object of the next event of a watch.
func next(t testing.TB, events watch.Interface) runtime.Object {
	t.Helper()
	select {
	case event, ok := <-events.ResultChan():
		if !ok {
			t.Fatal("the watch has ended")
		}
		return event.Object
	case <-time.After(expect.Patience):
		t.Fatal("no event came")
	}
	return nil
}

// TestMoreThanThePoolHas claims more of a set that refers to a template than there
// is: what is missing is made as the set's sandboxes are, patch included.
func TestMoreThanThePoolHas(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeTemplate(t, ns, "python", of(sized(fourCores)))
	c.makeReferring(t, ns, "pool", "python", half, 1)
	c.drain(t, ns, "pool")
	claim := builders.Claim("more", 3)
	claim.Spec.CreateOnNoStock = new(true)
	claim.Spec.WaitReadyTimeout = &metav1.Duration{Duration: expect.Patience}
	done := c.claimAll(t, ns, claim)
	if got := c.pools(t, done); got["pool"] != 3 {
		t.Errorf("the sandboxes are of the pools %v", got)
	}
	for _, claimed := range done.Status.Sandboxes {
		c.awaitCores(t, ns, claimed.Name, "2", "2")
	}
}

// TestTemplateDeletedInUse deletes a template that a set refers to. The pool continues
// with the revision that it has, and claims are served; what asks for the size of
// the template gets what there is. When it is back, so is everything.
func TestTemplateDeletedInUse(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeTemplate(t, ns, "python", of(sized(fourCores)))
	c.makeReferring(t, ns, "pool", "python", half, 2)
	if err := c.SandboxTemplates(ns).Delete(t.Context(), "python", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitResolved(t, ns, "pool", metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)

	c.claim(t, ns, builders.Claim("by-set", 2))
	expect.FullPool(t, c, ns, "pool", 2) // it was filled up from its revision
	byTemplate := c.claimAll(t, ns, claimOf("by-template", "python", 1))
	if got := updated(byTemplate); !strings.HasPrefix(got, "False Failed: ") {
		t.Errorf("a claim on the template that is gone says %q", got)
	}
	c.awaitCores(t, ns, byTemplate.Status.Sandboxes[0].Name, "2", "2")

	c.makeTemplate(t, ns, "python", of(sized(fourCores)))
	c.awaitResolved(t, ns, "pool", metav1.ConditionTrue, v1alpha1.ReasonResolved)
	expect.FullPool(t, c, ns, "pool", 2)
	again := c.claimAll(t, ns, claimOf("again", "python", 1))
	if got, want := updated(again), "True Succeeded: Resized 1 sandboxes"; got != want {
		t.Errorf("a claim on the template that is back says %q, want %q", got, want)
	}
	c.awaitCores(t, ns, again.Status.Sandboxes[0].Name, "4", "4")
}

// awaitResolved waits until a set says how it gets on with its template.
func (c *clients) awaitResolved(t testing.TB, namespace, name string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		set, err := c.SandboxSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionTemplateResolved)
		if got == nil || got.Status != status || got.Reason != reason {
			return fmt.Errorf("set %s says %+v", name, set.Status.Conditions)
		}
		return nil
	})
}

// TestSetOfATemplateDeleted deletes a set of which a claim has sandboxes that were
// resized: they stay, and what was unused goes with the revisions.
func TestSetOfATemplateDeleted(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeTemplate(t, ns, "python", of(sized(fourCores)))
	c.makeReferring(t, ns, "pool", "python", half, 3)
	claim := c.claimAll(t, ns, claimOf("mine", "python", 2))
	if err := c.SandboxSets(ns).Delete(t.Context(), "pool", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitOnly(t, ns, expect.Claimed(t, claim, 2)...)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { return c.onlyTemplates(ctx, ns, 1) })
	for _, claimed := range claim.Status.Sandboxes {
		c.awaitCores(t, ns, claimed.Name, "4", "4")
		if got := c.pod(t, ns, claimed.Name).Status.Phase; got != corev1.PodRunning {
			t.Errorf("pod %s is %s", claimed.Name, got)
		}
	}
	// The template has no pool now: claims of it have sandboxes made.
	fresh := claimOf("fresh", "python", 1)
	fresh.Spec.CreateOnNoStock = new(true)
	if got := c.pools(t, c.claimAll(t, ns, fresh)); got[""] != 1 {
		t.Errorf("without a set, sandboxes are of the pools %v", got)
	}
}
