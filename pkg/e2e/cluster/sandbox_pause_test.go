// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestPauseAndResume pauses a claimed sandbox: its pod goes. It is resumed with
// another pod, and keeps its name and its claim.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 1)
	claim := c.claim(t, ns, builders.Claim("claim", 1))
	name := claim.Status.Sandboxes[0].Name
	before := c.awaitSandbox(t, ns, name, isReady)

	c.patchSandbox(t, ns, name, `{"spec":{"paused":true}}`)
	paused := c.awaitSandbox(t, ns, name, hasCondition(v1alpha1.SandboxConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonStopPauseSucceed))
	c.awaitNoPod(t, ns, name)
	if err := errors.Join(
		inPhase(v1alpha1.SandboxPaused)(paused),
		hasCondition(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPodReady)(paused),
	); err != nil {
		t.Errorf("%v: %+v", err, paused.Status)
	}
	if !slices.Contains(paused.Finalizers, v1alpha1.FinalizerSandbox) || paused.Status.SandboxIP != "" || paused.Status.PodInfo.PodIP != "" {
		t.Errorf("finalizers %q, status %+v", paused.Finalizers, paused.Status)
	}
	if state := v1alpha1.StateOf(paused, time.Now()); state != v1alpha1.StatePaused {
		t.Errorf("state %s", state)
	}

	c.patchSandbox(t, ns, name, `{"spec":{"paused":false}}`)
	after := c.awaitSandbox(t, ns, name, isReady)
	if err := hasCondition(v1alpha1.SandboxConditionResumed, metav1.ConditionTrue, v1alpha1.ReasonCreatePod)(after); err != nil {
		t.Error(err)
	}
	pod := c.pod(t, ns, name)
	if after.Status.PodInfo.PodUID != pod.UID || pod.UID == before.Status.PodInfo.PodUID || pod.Labels[v1alpha1.LabelOwner] != string(claim.UID) {
		t.Errorf("pod %s with labels %v; before %+v, after %+v", pod.UID, pod.Labels, before.Status.PodInfo, after.Status.PodInfo)
	}
	c.awaitSandbox(t, ns, name, func(s *v1alpha1.Sandbox) error {
		if len(s.Finalizers) > 0 {
			return fmt.Errorf("finalizers %q", s.Finalizers)
		}
		return nil
	})
	// No event says that it was started, in a pool: the one that it runs is of its return.
	for _, reason := range []string{"SandboxRunning", "SandboxPaused", "SandboxResuming"} {
		c.awaitEvent(t, after, corev1.EventTypeNormal, reason)
	}
}

// A sandbox can be paused and resumed in any order and at any speed.
func TestPauseAndResumeAtOnce(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeSandbox(t, ns, "box", smallTemplate)
	for i := range 20 {
		c.patchSandbox(t, ns, "box", fmt.Sprintf(`{"spec":{"paused":%v}}`, i%2 == 0))
	}
	ready := c.awaitSandbox(t, ns, "box", isReady)
	if pod := c.pod(t, ns, "box"); pod.UID != ready.Status.PodInfo.PodUID || pod.DeletionTimestamp != nil {
		t.Errorf("pod %s, deleted %v; status %+v", pod.UID, pod.DeletionTimestamp, ready.Status)
	}
}

// Who watches sees each phase, and that a pause was complete, however soon the sandbox is
// resumed, and a revision in every state.
func TestWatchersSeeEachPhase(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	made := c.makeSandbox(t, ns, "box", smallTemplate)
	if made.Status.Phase != v1alpha1.SandboxPending || made.Status.ObservedGeneration != 1 || made.Status.UpdateRevision == "" {
		t.Errorf("it is born with the status %+v", made.Status)
	}
	c.awaitSandbox(t, ns, "box", isReady)
	watcher, err := c.Sandboxes(ns).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=box", ResourceVersion: made.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	c.patchSandbox(t, ns, "box", `{"spec":{"paused":true}}`)
	c.awaitSandbox(t, ns, "box", inPhase(v1alpha1.SandboxPaused))
	c.patchSandbox(t, ns, "box", `{"spec":{"paused":false}}`) // while the pod is still going, as a rule

	want := []string{"Pending", "Running", "Paused", "Paused, complete", "Resuming", "Running"}
	var got []string
	for !slices.Equal(got, want) {
		select {
		case event := <-watcher.ResultChan():
			sandbox, ok := event.Object.(*v1alpha1.Sandbox)
			if !ok {
				t.Fatalf("the watch ended with %+v after %q", event, got)
			}
			is := string(sandbox.Status.Phase)
			if meta.IsStatusConditionTrue(sandbox.Status.Conditions, v1alpha1.SandboxConditionPaused) {
				is += ", complete"
			}
			if len(got) == 0 || got[len(got)-1] != is {
				got = append(got, is)
			}
			if sandbox.Status.UpdateRevision == "" {
				t.Errorf("no revision while %s", is)
			}
		case <-time.After(expect.Patience):
			t.Fatalf("a watcher sees %q, want %q", got, want)
		}
		if len(got) > len(want) {
			t.Fatalf("a watcher sees %q, want %q", got, want)
		}
	}
}

// A sandbox that is born paused has no pod.
func TestBornPaused(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeSandbox(t, ns, "box", smallTemplate, func(s *v1alpha1.Sandbox) { s.Spec.Paused = true })
	c.awaitSandbox(t, ns, "box", hasCondition(v1alpha1.SandboxConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonStopPauseSucceed))
	if counts, _ := writesIn(t, ns, plane.AuditLog()); counts[write{"create", "pods"}] != 0 {
		t.Errorf("writes %v", counts)
	}
	c.patchSandbox(t, ns, "box", `{"spec":{"paused":false}}`)
	c.awaitSandbox(t, ns, "box", isReady)
}

// A paused sandbox is deleted like any other, finalizer or not.
func TestDeletePaused(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	for name, policy := range map[string]metav1.DeletionPropagation{"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground} {
		sandbox := c.makeSandbox(t, ns, name, smallTemplate, func(s *v1alpha1.Sandbox) { s.Spec.Paused = true })
		c.awaitSandbox(t, ns, name, inPhase(v1alpha1.SandboxPaused))
		if err := c.Sandboxes(ns).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			left, err := c.Sandboxes(ns).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("finalizers %q", left.Finalizers)
			}
			return fmt.Errorf("deleted %s, still there: %w", name, err)
		})
		c.awaitEvent(t, sandbox, corev1.EventTypeNormal, "SandboxTerminating")
	}
}

// The pause time pauses, the shutdown time deletes; both at once, where the
// sandbox is to be kept, pause and keep.
func TestPauseTime(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	soon := metav1.NewTime(time.Now().Add(3 * time.Second).Truncate(time.Second))
	both := func(s *v1alpha1.Sandbox) { s.Spec.PauseTime, s.Spec.ShutdownTime = &soon, &soon }
	c.makeSandbox(t, ns, "paused", smallTemplate, func(s *v1alpha1.Sandbox) { s.Spec.PauseTime = &soon })
	c.makeSandbox(t, ns, "deleted", smallTemplate, both)
	c.makeSandbox(t, ns, "kept", smallTemplate, both, func(s *v1alpha1.Sandbox) {
		s.Annotations = map[string]string{v1alpha1.AnnotationReservePausedSandboxDuration: "24h"}
	})

	isPaused := hasCondition(v1alpha1.SandboxConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonStopPauseSucceed)
	paused := c.awaitSandbox(t, ns, "paused", isPaused)
	if time.Now().Before(soon.Time) {
		t.Errorf("paused before %s", soon)
	}
	if !paused.Spec.Paused || !paused.Spec.PauseTime.Equal(&soon) {
		t.Errorf("spec %+v", paused.Spec)
	}
	kept := c.awaitSandbox(t, ns, "kept", isPaused)
	if left := time.Until(kept.Spec.ShutdownTime.Time); left < 23*time.Hour || left > 24*time.Hour || !kept.Spec.PauseTime.Equal(kept.Spec.ShutdownTime) {
		t.Errorf("pause time %s, shutdown time %s", kept.Spec.PauseTime, kept.Spec.ShutdownTime)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.Sandboxes(ns).Get(ctx, "deleted", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("not deleted"), err)
	})
}

// The volumes of a sandbox outlive a pause, also where the quota has no room for
// another.
func TestVolumesOutliveAPause(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	_, err := c.kube.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "volumes"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: quantity("1")}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.volume(t, ns, "data-box")
	c.makeSandbox(t, ns, "box", smallTemplate, func(s *v1alpha1.Sandbox) {
		s.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(
			`{"metadata":{"name":"data"},"spec":{"storageClassName":"","resources":{"requests":{"storage":"1Gi"}}}}`)}}
	})
	c.awaitSandbox(t, ns, "box", isReady)
	before, err := c.kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data-box", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.patchSandbox(t, ns, "box", `{"spec":{"paused":true}}`)
	c.awaitSandbox(t, ns, "box", hasCondition(v1alpha1.SandboxConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonStopPauseSucceed))
	c.patchSandbox(t, ns, "box", `{"spec":{"paused":false}}`)
	c.awaitSandbox(t, ns, "box", isReady)
	after, err := c.kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data-box", metav1.GetOptions{})
	if err != nil || after.UID != before.UID {
		t.Errorf("claim %s, before %s, %v", after.UID, before.UID, err)
	}
}
