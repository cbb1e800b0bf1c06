// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

var createFailed = hasCondition(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPodCreateFailed)

// A quota leaves a sandbox Pending, and it says why. When the quota is raised, it
// starts.
func TestQuota(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	quota, err := c.kube.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: quantity("0")}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.makeSandbox(t, ns, "box", smallTemplate)
	sandbox := c.awaitSandbox(t, ns, "box", createFailed)
	if err := inPhase(v1alpha1.SandboxPending)(sandbox); err != nil {
		t.Error(err)
	}
	ready := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
	event := c.awaitEvent(t, sandbox, corev1.EventTypeWarning, "PodCreateFailed")
	for _, text := range []string{ready.Message, event.Note} {
		// Until the quota has been counted once, that is the complaint.
		if !strings.Contains(text, "quota") {
			t.Errorf("does not tell of the quota: %s", text)
		}
	}
	quota.Spec.Hard[corev1.ResourcePods] = quantity("1")
	if _, err := c.kube.CoreV1().ResourceQuotas(ns).Update(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
		patch := []byte(`{"spec":{"hard":{"pods":"1"}}}`) // its status was just counted
		if _, err := c.kube.CoreV1().ResourceQuotas(ns).Patch(t.Context(), "pods", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitSandbox(t, ns, "box", isReady)
}

// So does admission.
func TestAdmissionOfPods(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	enforce := func(level string) {
		t.Helper()
		patch := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":` + level + `}}}`)
		if _, err := c.kube.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	enforce(`"baseline"`)
	c.makeSandbox(t, ns, "box", `{"spec":{"hostNetwork":true,"containers":[{"name":"main","image":"busybox:1"}]}}`)
	sandbox := c.awaitSandbox(t, ns, "box", createFailed)
	if event := c.awaitEvent(t, sandbox, corev1.EventTypeWarning, "PodCreateFailed"); !strings.Contains(event.Note, "PodSecurity") {
		t.Errorf("event: %s", event.Note)
	}
	enforce("null")
	c.awaitSandbox(t, ns, "box", isReady)
}

// A sandbox whose pod is taken away has failed, and says how.
func TestPodsThatGo(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	pods, cluster := c.kube.CoreV1().Pods(ns), ofCluster(t).CoreV1().Pods(ns)
	tests := map[string]struct {
		take    func(name string) error
		phase   v1alpha1.SandboxPhase
		message string
		reason  string // of the condition Ready
		detail  string // likewise, if it is known
	}{
		"deleted": {
			take:  func(name string) error { return cluster.Delete(t.Context(), name, metav1.DeleteOptions{}) },
			phase: v1alpha1.SandboxFailed, message: "Pod Not Found", reason: v1alpha1.ReasonPodDeleted,
		},
		"killed": {
			take: func(name string) error {
				return cluster.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
			},
			phase: v1alpha1.SandboxFailed, message: "Pod Not Found", reason: v1alpha1.ReasonPodDeleted,
		},
		"evicted": {
			take: func(name string) error {
				return c.kube.PolicyV1().Evictions(ns).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
			},
			phase: v1alpha1.SandboxFailed, message: "Pod Not Found",
		},
		"evicted-by-node": {
			take: func(name string) error {
				_, err := pods.Patch(t.Context(), name, types.MergePatchType,
					[]byte(`{"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}}`),
					metav1.PatchOptions{}, "status")
				return err
			},
			phase: v1alpha1.SandboxFailed, message: "Pod status phase is Failed",
			reason: v1alpha1.ReasonEvicted, detail: "The node was low on resource: memory.",
		},
		"done": {
			take: func(name string) error {
				_, err := pods.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
				return err
			},
			phase: v1alpha1.SandboxSucceeded, message: "Pod status phase is Succeeded", reason: v1alpha1.ReasonPodSucceeded,
		},
	}
	for name, test := range tests {
		template := smallTemplate
		if test.phase == v1alpha1.SandboxSucceeded {
			template = strings.Replace(template, `{"spec":{`, `{"spec":{"restartPolicy":"OnFailure",`, 1)
		}
		c.makeSandbox(t, ns, name, template)
	}
	for name, test := range tests {
		c.awaitSandbox(t, ns, name, isReady)
		if err := test.take(name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, test := range tests {
		sandbox := c.awaitSandbox(t, ns, name, inPhase(test.phase))
		if sandbox.Status.Message != test.message {
			t.Errorf("%s: message %q", name, sandbox.Status.Message)
		}
		ready := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
		if ready.Status != metav1.ConditionFalse || test.reason != "" && ready.Reason != test.reason || test.detail != "" && ready.Message != test.detail {
			t.Errorf("%s: condition %+v", name, ready)
		}
		if sandbox.Status.SandboxIP != "" || sandbox.Status.PodInfo.PodIP != "" {
			t.Errorf("%s: it has the address of a pod that is gone: %+v", name, sandbox.Status)
		}
		kind := corev1.EventTypeNormal
		if test.phase == v1alpha1.SandboxFailed {
			kind = corev1.EventTypeWarning
		}
		c.awaitEvent(t, sandbox, kind, "Sandbox"+string(test.phase))
	}
}

// A set replaces what has failed.
func TestSetReplacesFailed(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 3)
	list, err := c.Sandboxes(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gone := list.Items[0].Name
	if err := ofCluster(t).CoreV1().Pods(ns).Delete(t.Context(), gone, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.Sandboxes(ns).Get(ctx, gone, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("sandbox %s is still there", gone)
		}
		return client.IgnoreNotFound(err)
	})
	expect.FullPool(t, c, ns, "pool", 3)
}

// A pod of a user is neither taken for the sandbox's own nor deleted.
func TestPodOwnerMismatch(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "box"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}},
	}
	theirs, err := c.kube.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.makeSandbox(t, ns, "box", smallTemplate)
	sandbox := c.awaitSandbox(t, ns, "box", createFailed)
	c.awaitEvent(t, sandbox, corev1.EventTypeWarning, "PodOwnerMismatch")
	if got := c.pod(t, ns, "box"); got.UID != theirs.UID || got.DeletionTimestamp != nil {
		t.Errorf("pod %s, deleted %v", got.UID, got.DeletionTimestamp)
	}
	if err := c.kube.CoreV1().Pods(ns).Delete(t.Context(), "box", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ready := c.awaitSandbox(t, ns, "box", isReady)
	if got := c.pod(t, ns, "box"); !metav1.IsControlledBy(got, ready) {
		t.Errorf("owners of the pod: %+v", got.OwnerReferences)
	}
}

// A volume claim of the right name is used if it has no owner, and not if it has
// one.
func TestVolumeClaimsThatAreThere(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	claims := c.kube.CoreV1().PersistentVolumeClaims(ns)
	claim := func(name string, owners ...metav1.OwnerReference) {
		t.Helper()
		_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				StorageClassName: new(""),
				Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	owner := c.makeSandbox(t, ns, "owner", smallTemplate)
	claim("data-taken", *metav1.NewControllerRef(owner, v1alpha1.SchemeGroupVersion.WithKind("Sandbox")))
	claim("data-free")
	c.volume(t, ns, "data-free")
	for _, name := range []string{"taken", "free"} {
		c.makeSandbox(t, ns, name, smallTemplate, func(s *v1alpha1.Sandbox) {
			s.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(
				`{"metadata":{"name":"data"},"spec":{"storageClassName":"","resources":{"requests":{"storage":"1Gi"}}}}`)}}
		})
	}
	c.awaitSandbox(t, ns, "free", isReady)
	taken := c.awaitSandbox(t, ns, "taken", createFailed)
	ready := meta.FindStatusCondition(taken.Status.Conditions, v1alpha1.SandboxConditionReady)
	if want := "PersistentVolumeClaim " + ns + "/data-taken cannot be used: its controller is Sandbox owner"; !strings.Contains(ready.Message, want) {
		t.Errorf("message %q, want %q", ready.Message, want)
	}
	if got, err := claims.Get(t.Context(), "data-free", metav1.GetOptions{}); err != nil || len(got.OwnerReferences) > 0 {
		t.Errorf("the free claim: %+v, %v", got.OwnerReferences, err)
	}
	if counts := writesOf(t, ns, "taken", []string{plane.AuditLog()}); counts[write{"create", "pods"}] != 0 {
		t.Errorf("writes %v", counts)
	}
}
