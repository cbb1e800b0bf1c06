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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

// TestSandboxIsAPod follows one sandbox with a volume from its birth to its end.
func TestSandboxIsAPod(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	const template = `{"metadata":{"labels":{"app":"x"},"annotations":{"note":"n"}},
		"spec":{"runtimeClassName":"","preemptionPolicy":"","hostnameOverride":"","securityContext":{"fsGroupChangePolicy":""},
			"containers":[{"name":"main","image":"busybox:1","securityContext":{"procMount":""},
				"volumeMounts":[{"name":"data","mountPath":"/data","mountPropagation":"","recursiveReadOnly":""}]}]}}` // as charts render it
	sandbox := c.makeSandbox(t, ns, "box", template, func(s *v1alpha1.Sandbox) {
		s.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(
			`{"metadata":{"name":"data"},"spec":{"storageClassName":"","volumeMode":"","resources":{"requests":{"storage":"1Gi"}}}}`)}}
	})

	// No volume fits yet: the sandbox says so.
	waiting := c.awaitSandbox(t, ns, "box", func(s *v1alpha1.Sandbox) error {
		for _, condition := range s.Status.Conditions {
			if condition.Type == v1alpha1.SandboxConditionReady && condition.Reason == v1alpha1.ReasonUnschedulable {
				return nil
			}
		}
		return errors.New("does not tell that it is unschedulable")
	})
	if s := waiting.Status; s.Phase != v1alpha1.SandboxPending || s.ObservedGeneration != 1 || s.UpdateRevision == "" || s.SandboxIP != "" || s.NodeName != "" {
		t.Errorf("status of a sandbox whose pod waits: %+v", s)
	}
	c.volume(t, ns, "data-box")
	ready := c.awaitSandbox(t, ns, "box", isReady)

	pod := c.pod(t, ns, "box")
	if !metav1.IsControlledBy(pod, sandbox) {
		t.Errorf("owners of the pod: %+v", pod.OwnerReferences)
	}
	wantLabels := map[string]string{
		"app": "x", "pod-template-hash": ready.Status.UpdateRevision,
		"agents.kruise.io/created-by": "sandbox", "agents.kruise.io/sandbox-name": "box",
		"agents.x-k8s.io/created-by": "unknown", "agents.x-k8s.io/sandbox-name-hash": v1alpha1.NameHash("box"),
	}
	if diff := cmp.Diff(wantLabels, pod.Labels); diff != "" {
		t.Errorf("labels of the pod (-want +got):\n%s", diff)
	}
	if pod.Annotations["note"] != "n" || pod.Annotations[v1alpha1.AnnotationCreatedBy] != "sandbox" {
		t.Errorf("annotations of the pod: %v", pod.Annotations)
	}
	want := v1alpha1.PodInfo{NodeName: pod.Spec.NodeName, PodIP: pod.Status.PodIP, PodUID: pod.UID, RestartCount: new(int32(0))}
	if diff := cmp.Diff(want, ready.Status.PodInfo); diff != "" {
		t.Errorf("podInfo (-want +got):\n%s", diff)
	}
	if s := ready.Status; s.NodeName != pod.Spec.NodeName || s.SandboxIP != pod.Status.PodIP || s.SandboxIP == "" || s.Message != "" {
		t.Errorf("status: %+v", s)
	}
	if token := pod.Spec.AutomountServiceAccountToken; token == nil || *token {
		t.Errorf("automountServiceAccountToken: %v", token)
	}
	// A token is a volume too.
	if len(pod.Spec.Volumes) != 1 || pod.Spec.Volumes[0].Name != "data" || pod.Spec.Volumes[0].PersistentVolumeClaim == nil ||
		pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-box" {
		t.Errorf("volumes of the pod: %+v", pod.Spec.Volumes)
	}
	claim, err := c.kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data-box", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !metav1.IsControlledBy(claim, sandbox) || len(claim.Spec.AccessModes) != 1 || claim.Spec.AccessModes[0] != corev1.ReadWriteOnce {
		t.Errorf("claim: %+v, %+v", claim.OwnerReferences, claim.Spec)
	}
	checkClaimBeforePod(t, ns)
	c.awaitEvent(t, sandbox, corev1.EventTypeNormal, "SandboxPending")
	if event := c.awaitEvent(t, sandbox, corev1.EventTypeNormal, "SandboxRunning"); event.Note != "Sandbox started" {
		t.Errorf("event: %s", event.Note)
	}

	// Both go with the sandbox.
	if err := c.Sandboxes(ns).Delete(t.Context(), "box", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitNoPod(t, ns, "box")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "data-box", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the volume claim: %w", errors.Join(errors.New("still there"), err))
	})
}

// checkClaimBeforePod looks at what kube-apiserver noted: one volume claim, and
// only then one pod.
func checkClaimBeforePod(t *testing.T, ns string) {
	t.Helper()
	_, events := writesIn(t, ns, plane.AuditLog())
	var order []string
	for _, event := range events {
		if r := event.ObjectRef.Resource; event.Verb == "create" && event.ObjectRef.Subresource == "" && (r == "pods" || r == "persistentvolumeclaims") {
			order = append(order, r)
		}
	}
	if diff := cmp.Diff([]string{"persistentvolumeclaims", "pods"}, order); diff != "" {
		t.Errorf("creates (-want +got):\n%s", diff)
	}
}

// A template that asks for the token of a service account gets it.
func TestSandboxWithToken(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeSandbox(t, ns, "box", `{"spec":{"automountServiceAccountToken":true,"containers":[{"name":"main","image":"busybox:1"}]}}`)
	c.awaitSandbox(t, ns, "box", isReady)
	pod := c.pod(t, ns, "box")
	if len(pod.Spec.Volumes) != 1 || pod.Spec.Volumes[0].Projected == nil {
		t.Errorf("volumes of the pod: %+v", pod.Spec.Volumes)
	}
}

// What a claim puts on its sandbox reaches the pod, what is taken from the
// template leaves it, and what others put there stays.
func TestSandboxMetadataReachesThePod(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 1)
	claim := builders.Claim("claim", 1)
	claim.Spec.Labels = map[string]string{"example.com/team": "red"}
	claim.Spec.Annotations = map[string]string{"example.com/job": "7", "agents.kruise.io/cleanup-enabled": "true"}
	claim = c.claim(t, ns, claim)
	name := claim.Status.Sandboxes[0].Name

	var pod *corev1.Pod
	labelled := func(check func() bool) {
		t.Helper()
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			var err error
			if pod, err = c.kube.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
				return err
			}
			if !check() {
				return fmt.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
			}
			return nil
		})
	}
	labelled(func() bool { return pod.Labels["example.com/team"] == "red" })
	if pod.Labels[v1alpha1.LabelOwner] != string(claim.UID) || pod.Annotations["example.com/job"] != "7" ||
		pod.Annotations[v1alpha1.AnnotationCleanupEnabled] != "" {
		t.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
	sandbox := c.awaitSandbox(t, ns, name, isReady)
	if pod.Labels[v1alpha1.LabelPodTemplateHash] != sandbox.Status.UpdateRevision {
		t.Errorf("revision %s, pod-template-hash %s", sandbox.Status.UpdateRevision, pod.Labels[v1alpha1.LabelPodTemplateHash])
	}

	if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), name, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"theirs":"stays"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// A change of its times is observed by the API server; that of the template after it, by
	// the controller.
	for _, after := range []time.Duration{time.Hour, 2 * time.Hour} {
		c.patchSandbox(t, ns, name, fmt.Sprintf(`{"spec":{"shutdownTime":%q}}`, time.Now().Add(after).UTC().Format(time.RFC3339)))
	}
	c.patchSandbox(t, ns, name, `{"spec":{"template":{"metadata":{"labels":{"example.com/team":null,"new":"label"}}}}}`)
	labelled(func() bool {
		return pod.Labels["new"] == "label" && pod.Labels["example.com/team"] == "" && pod.Labels["theirs"] == "stays"
	})
	after := c.awaitSandbox(t, ns, name, isReady)
	if after.Status.PodInfo.PodUID != sandbox.Status.PodInfo.PodUID || after.Status.UpdateRevision == sandbox.Status.UpdateRevision {
		t.Errorf("status before %+v and after %+v", sandbox.Status, after.Status)
	}

	// A pod that loses the label by which it is found is found all the same.
	if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), name, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"agents.kruise.io/created-by":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	labelled(func() bool { return pod.Labels[v1alpha1.LabelCreatedBy] == v1alpha1.CreatedBySandbox })
	c.awaitSandbox(t, ns, name, isReady)

	// Pending, Running, and the change of the template above: the claim and the times cost none.
	if got := writesOf(t, ns, name, ownLogs())[write{"patch", "sandboxes/status"}]; got != 3 {
		t.Errorf("%d writes of the status", got)
	}
	// Of those to the pod, two are the test's.
	if got := writesOf(t, ns, name, []string{plane.AuditLog()})[write{"patch", "pods"}]; got != 5 {
		t.Errorf("%d patches of the pod", got)
	}
}

// More than the metadata of a template cannot change, and the answer says so.
func TestSandboxTemplateIsImmutable(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeSandbox(t, ns, "box", smallTemplate)
	_, err := c.Sandboxes(ns).Patch(t.Context(), "box", "application/merge-patch+json",
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.template: Forbidden") {
		t.Errorf("got %v", err)
	}
}
