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

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// manyContainers is a pod template of two cores whose node makes of a resize, and of
// another image, what these say; "" is what is asked for.
func manyContainers(resize, image string) string {
	notes := []string{}
	for key, value := range map[string]string{controlplane.AnnotationResize: resize, controlplane.AnnotationImage: image} {
		if value != "" {
			notes = append(notes, fmt.Sprintf("%q:%q", key, value))
		}
	}
	return fmt.Sprintf(`{"metadata":{"annotations":{%s}},"spec":{
		"containers":[
			{"name":"main","image":"busybox:1","workingDir":"/srv","env":[{"name":"A","value":"b"}],"resources":%s},
			{"name":"other","image":"busybox:1","resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1","memory":"1Gi"}}}],
		"initContainers":[
			{"name":"once","image":"busybox:1","resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1","memory":"1Gi"}}},
			{"name":"side","image":"busybox:1","restartPolicy":"Always","command":["sleep"],"resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1","memory":"1Gi"}}}]}}`,
		strings.Join(notes, ","), twoCores)
}

// inPlace is a claim of one sandbox of a set that asks for an image, and so much cpu.
func inPlace(name, image, requests, limits string) *v1alpha1.SandboxClaim {
	claim := builders.Claim(name, 1)
	claim.Spec.TemplateName = name
	claim.Spec.ClaimTimeout = &metav1.Duration{Duration: expect.Patience}
	claim.Spec.WaitReadyTimeout = &metav1.Duration{Duration: expect.Patience}
	claim.Spec.InplaceUpdate = &v1alpha1.SandboxClaimInplaceUpdateOptions{Image: image}
	if requests != "" {
		claim.Spec.InplaceUpdate.Resources = &v1alpha1.SandboxClaimInplaceUpdateResources{
			Requests: corev1.ResourceList{corev1.ResourceCPU: quantity(requests)},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: quantity(limits)},
		}
	}
	return claim
}

// makeInPlace makes a set of that name, whose pool is full.
func (c *clients) makeInPlace(t testing.TB, ns, name, template string, replicas int32) {
	t.Helper()
	c.makeTemplate(t, ns, name, of(template))
	c.makeReferring(t, ns, name, name, "", replicas)
}

// message is that of a condition of a sandbox.
func message(sandbox *v1alpha1.Sandbox, kind string) string {
	if c := meta.FindStatusCondition(sandbox.Status.Conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

// TestInplaceUpdate claims sandboxes with another image and another cpu. What the
// kubelet does is played by kwok, see stages.yaml.
func TestInplaceUpdate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		resize          string // what the node makes of it
		image           string
		requests, limit string
		status          metav1.ConditionStatus
		message         string
		spec, given     string // cores in the end
	}{
		"granted":   {image: "busybox:2", requests: "1", limit: "1", status: metav1.ConditionTrue, spec: "1", given: "1"},
		"an-image":  {image: "busybox:2", status: metav1.ConditionTrue, spec: "2", given: "2"},
		"more-cpu":  {requests: "4", limit: "4", status: metav1.ConditionTrue, spec: "4", given: "4"},
		"no-room":   {resize: corev1.PodReasonInfeasible, image: "busybox:2", requests: "4", limit: "4", message: "in-place resource resize failed: pod resize is infeasible", spec: "2", given: "2"},
		"deferred":  {resize: corev1.PodReasonDeferred, image: "busybox:2", requests: "4", limit: "4", message: "in-place resource resize failed: pod resize is infeasible for now, it is deferred", spec: "2", given: "2"},
		"qos":       {image: "busybox:2", requests: "1", limit: "2", message: "resource resize would change QoS class from Guaranteed to Burstable, resize rejected", spec: "2", given: "2"},
		"qos-alone": {requests: "1", limit: "2", message: "resource resize would change QoS class from Guaranteed to Burstable, resize rejected", spec: "2", given: "2"},
	}
	c, ns := admin(t), namespace(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.makeInPlace(t, ns, name, manyContainers(test.resize, ""), 1)
			before := c.pod(t, ns, c.unusedOf(t, ns, name)[0])
			c.drain(t, ns, name)
			done := c.claimAll(t, ns, inPlace(name, test.image, test.requests, test.limit))
			said := "True Succeeded: Updated 1 sandboxes in place"
			if test.status != metav1.ConditionTrue {
				said = "False Failed: 1 of 1 sandboxes could not be updated in place: " + before.Name + ": " + test.message
			}
			if got := updated(done); !strings.HasPrefix(got, said) {
				t.Errorf("the claim says %q, want %q", got, said)
			}
			sandbox := c.awaitSandbox(t, ns, before.Name, isReady)
			if got := message(sandbox, v1alpha1.SandboxConditionInplaceUpdate); !strings.HasPrefix(got, test.message) {
				t.Errorf("the sandbox says %q", got)
			}
			if got := meta.IsStatusConditionTrue(sandbox.Status.Conditions, v1alpha1.SandboxConditionImageUpdated); got != (test.image != "") {
				t.Errorf("the sandbox says of its image: %v, %+v", got, sandbox.Status.Conditions)
			}
			c.awaitFirstCores(t, ns, before.Name, test.spec, test.given)
			after := c.pod(t, ns, before.Name)
			if after.UID != before.UID {
				t.Error("the pod is another one")
			}
			wantImage, run := "busybox:1", true
			if test.image != "" {
				wantImage, run = test.image, false
			}
			if got := after.Spec.Containers[0].Image; got != wantImage {
				t.Errorf("the pod runs %s, want %s", got, wantImage)
			}
			if same := after.Status.ContainerStatuses[0].ContainerID == before.Status.ContainerStatuses[0].ContainerID; same != run {
				t.Errorf("the container is the same run: %v", same)
			}
			if _, noted := after.Annotations[v1alpha1.AnnotationInplaceUpdateState]; noted == run {
				t.Errorf("annotations %v", after.Annotations)
			}
			// Nothing else changes.
			wanted, first := before.Spec.DeepCopy(), &after.Spec.Containers[0]
			wanted.Containers[0].Image, wanted.Containers[0].Resources = first.Image, first.Resources
			if diff := cmp.Diff(wanted, &after.Spec); diff != "" {
				t.Errorf("spec of the pod (-before +after):\n%s", diff)
			}
			if got := first.Resources.Limits.Memory().String(); got != "8Gi" {
				t.Errorf("the pod has %s of memory", got)
			}
		})
	}
}

// awaitFirstCores is awaitCores of the first of several containers.
func (c *clients) awaitFirstCores(t testing.TB, namespace, name, wantSpec, wantGiven string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		pod, err := c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		spec, given := pod.Spec.Containers[0].Resources.Limits.Cpu().String(), pod.Status.ContainerStatuses[0].Resources.Limits.Cpu().String()
		if spec != wantSpec || given != wantGiven {
			return fmt.Errorf("pod %s has %s cores by its spec and %s by its node, not %s and %s", name, spec, given, wantSpec, wantGiven)
		}
		return nil
	})
}

// unusedOf are the names of the sandboxes in a pool.
func (c *clients) unusedOf(t testing.TB, ns, set string) (names []string) {
	t.Helper()
	selector := v1alpha1.LabelSandboxPool + "=" + set + "," + v1alpha1.LabelSandboxClaimed + "=" + v1alpha1.ClaimedFalse
	list, err := c.Sandboxes(ns).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("the pool has %d sandboxes, %v", len(list.Items), err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// ended waits until a claim is Completed.
func (c *clients) ended(t testing.TB, claim *v1alpha1.SandboxClaim, ns string) *v1alpha1.SandboxClaim {
	t.Helper()
	if _, err := c.SandboxClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatalf("claiming: %v", err)
	}
	var done *v1alpha1.SandboxClaim
	expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) {
		if done, err = c.SandboxClaims(ns).Get(ctx, claim.Name, metav1.GetOptions{}); err == nil && done.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
			err = fmt.Errorf("claim %s: %+v", claim.Name, done.Status)
		}
		return err
	})
	return done
}

// TestImageThatCannotBePulled claims sandboxes with an image that their nodes do not get:
// they do not count, and the claim ends with what it has.
func TestImageThatCannotBePulled(t *testing.T) {
	t.Parallel()
	const waits = "Back-off pulling image busybox:2"
	c, ns := admin(t), namespace(t)
	for name, test := range map[string]struct {
		image    string
		reserved bool
		says     string
	}{
		"removed":  {image: "ImagePullBackOff", says: waits},
		"reserved": {image: "InvalidImageName", reserved: true, says: waits},
		"never":    {image: controlplane.ImageNever},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.makeInPlace(t, ns, name, manyContainers("", test.image), 1)
			first := c.unusedOf(t, ns, name)[0]
			c.drain(t, ns, name)
			claim := inPlace(name, "busybox:2", "", "")
			claim.Spec.ReserveFailedSandbox = test.reserved
			claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 15 * time.Second}
			if test.image == controlplane.ImageNever {
				claim.Spec.WaitReadyTimeout = &metav1.Duration{Duration: 2 * time.Second}
			}
			done := c.ended(t, claim, ns)
			if done.Status.ClaimedReplicas != 0 || !meta.IsStatusConditionTrue(done.Status.Conditions, v1alpha1.ClaimConditionTimedOut) {
				t.Errorf("the claim ends with %+v", done.Status)
			}
			if got := updated(done); test.says != "" && got != "False Failed: 1 of 1 sandboxes could not be updated in place: "+first+": "+test.says {
				t.Errorf("the claim says %q", got)
			}
			if !test.reserved {
				c.awaitNoPod(t, ns, first)
				expect.Eventually(t.Context(), t, func(ctx context.Context) error {
					if _, err := c.Sandboxes(ns).Get(ctx, first, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
						return fmt.Errorf("the sandbox is still there: %w", err)
					}
					return nil
				})
				return
			}
			kept := c.awaitSandbox(t, ns, first, func(s *v1alpha1.Sandbox) error {
				return errors.Join(resizeEnded(metav1.ConditionFalse, v1alpha1.ReasonFailed)(s),
					hasCondition(v1alpha1.SandboxConditionImageUpdated, metav1.ConditionFalse, v1alpha1.ReasonFailed)(s),
					hasCondition(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStartContainerFailed)(s))
			})
			if kept.Labels[v1alpha1.LabelReservedFailedSandbox] != "true" || kept.Spec.ShutdownTime != nil || message(kept, v1alpha1.SandboxConditionInplaceUpdate) != test.says {
				t.Errorf("it is kept as %+v", kept)
			}
			if pod := c.pod(t, ns, first); pod.Status.ContainerStatuses[0].State.Waiting == nil || pod.Spec.Containers[0].Image != "busybox:2" {
				t.Errorf("its pod is %+v", pod.Status)
			}
			c.awaitEvent(t, kept, corev1.EventTypeWarning, "InplaceUpdateFailed")
		})
	}
}

// TestOneBadImageTakesOneSandbox claims one sandbox of a full pool with an image that no node
// can pull: the claim ends when its time is up, and has taken no other sandbox.
func TestOneBadImageTakesOneSandbox(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeInPlace(t, ns, "pool", manyContainers("", "ErrImagePull"), 4)
	claim := inPlace("pool", "busybox:2", "", "")
	claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 15 * time.Second}
	claim.Spec.WaitReadyTimeout = &metav1.Duration{Duration: 2 * time.Second}
	done := c.ended(t, claim, ns)
	if done.Status.FailedReplicas != 1 || !meta.IsStatusConditionTrue(done.Status.Conditions, v1alpha1.ClaimConditionTimedOut) {
		t.Errorf("the claim ends with %+v", done.Status)
	}
}

// TestImageFailsOnOneNode claims two sandboxes at once, one of which cannot have the image:
// another one of the pool takes its place.
func TestImageFailsOnOneNode(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeInPlace(t, ns, "pool", manyContainers("", ""), 2)
	bad := c.unusedOf(t, ns, "pool")[0]
	note := fmt.Sprintf(`{"metadata":{"annotations":{%q:"InvalidImageName"}}}`, controlplane.AnnotationImage)
	if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), bad, types.MergePatchType, []byte(note), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := inPlace("pool", "busybox:2", "", "")
	claim.Spec.Replicas, claim.Spec.Allocation = new(int32(2)), v1alpha1.AllocationAllOrNothing
	done := c.claimAll(t, ns, claim)
	for _, claimed := range done.Status.Sandboxes {
		if claimed.Name == bad {
			t.Error("the one that failed counts")
		}
		if got := c.pod(t, ns, claimed.Name).Spec.Containers[0].Image; got != "busybox:2" {
			t.Errorf("sandbox %s has %s", claimed.Name, got)
		}
	}
	if got := updated(done); got != "True Succeeded: Updated 2 sandboxes in place" {
		t.Errorf("the claim says %q", got)
	}
	c.awaitNoPod(t, ns, bad)
}

// TestMadeWithImage claims without a pool: the sandbox is made with what is asked for, from
// a template.
func TestMadeWithImage(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeTemplate(t, ns, "python", of(manyContainers("", "")))
	claim := inPlace("python", "busybox:2", "4", "4")
	claim.Spec.CreateOnNoStock = new(true)
	done := c.claimAll(t, ns, claim)
	pod := c.pod(t, ns, done.Status.Sandboxes[0].Name)
	if got := pod.Spec.Containers[0]; got.Image != "busybox:2" || got.Resources.Requests.Cpu().String() != "4" || pod.Generation != 1 && updated(done) != "" {
		t.Errorf("made with %+v, and %q", got, updated(done))
	}
	above := inPlace("above", "", "8", "9")
	above.Spec.TemplateName, above.Spec.CreateOnNoStock = "python", new(true)
	above.Spec.InplaceUpdate.Resources.Limits = nil
	if _, err := c.SandboxClaims(ns).Create(t.Context(), above, metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "spec.inplaceUpdate.resources.requests[cpu]") {
		t.Errorf("a request above the limit is answered %v", err)
	}
}
