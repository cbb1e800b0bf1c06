// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// sized is a pod template whose container has so much.
func sized(resources string) string {
	return fmt.Sprintf(`{"spec":{"containers":[{"name":"main","image":"busybox:1","resources":%s}]}}`, resources)
}

// annotated is the same, of pods whose node makes of a resize what it says; see
// controlplane.AnnotationResize.
func annotated(resources, nodeSays string) string {
	return strings.Replace(sized(resources), "{", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},`, controlplane.AnnotationResize, nodeSays), 1)
}

const (
	twoCores   = `{"requests":{"cpu":"2","memory":"8Gi"},"limits":{"cpu":"2","memory":"8Gi"}}`
	fourCores  = `{"requests":{"cpu":"4","memory":"8Gi"},"limits":{"cpu":"4","memory":"8Gi"}}`
	burstCores = `{"requests":{"cpu":"2","memory":"8Gi"},"limits":{"cpu":"4","memory":"8Gi"}}`
)

// makeSmall makes a sandbox of four cores whose pod has two, and whose node makes
// of more what it says; see controlplane.AnnotationResize.
func (c *clients) makeSmall(t testing.TB, namespace, name, nodeSays string) *v1alpha1.Sandbox {
	t.Helper()
	c.makeSandbox(t, namespace, name, sized(fourCores))
	made := c.awaitSandbox(t, namespace, name, isReady)
	smaller := fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":%s}]}}`, twoCores)
	pods := c.kube.CoreV1().Pods(namespace)
	if _, err := pods.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(smaller), metav1.PatchOptions{}, "resize"); err != nil {
		t.Fatalf("making a pod smaller: %v", err)
	}
	c.awaitCores(t, namespace, name, "2", "2")
	if nodeSays != "" {
		note := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, controlplane.AnnotationResize, nodeSays)
		if _, err := pods.Patch(t.Context(), name, types.MergePatchType, []byte(note), metav1.PatchOptions{}); err != nil {
			t.Fatalf("annotating a pod: %v", err)
		}
	}
	return made
}

// leaveToResize leaves a sandbox as the transaction of a claim leaves one that is to
// be resized.
func (c *clients) leaveToResize(t testing.TB, namespace, name string) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		sandbox, err := c.Sandboxes(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, kind := range []string{v1alpha1.SandboxConditionReady, v1alpha1.SandboxConditionInplaceUpdate} {
			meta.SetStatusCondition(&sandbox.Status.Conditions, metav1.Condition{
				Type: kind, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInplaceUpdating, Message: v1alpha1.InplaceUpdatingMessage,
			})
		}
		_, err = c.Sandboxes(namespace).UpdateStatus(t.Context(), sandbox, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatalf("leaving a sandbox to be resized: %v", err)
	}
}

// resizeEnded is a check that the resize of a sandbox has ended in a way.
func resizeEnded(status metav1.ConditionStatus, reason string) func(*v1alpha1.Sandbox) error {
	return func(s *v1alpha1.Sandbox) error {
		return hasCondition(v1alpha1.SandboxConditionInplaceUpdate, status, reason)(s)
	}
}

// cores are the cpu limits of the container of a pod, as the spec has them and as
// the node gives them.
func cores(pod *corev1.Pod) (spec, given string) {
	spec = pod.Spec.Containers[0].Resources.Limits.Cpu().String()
	for i := range pod.Status.ContainerStatuses {
		if r := pod.Status.ContainerStatuses[i].Resources; r != nil {
			given = r.Limits.Cpu().String()
		}
	}
	return spec, given
}

// awaitCores waits until a pod has so many cores, by its spec and by its node.
func (c *clients) awaitCores(t testing.TB, namespace, name, wantSpec, wantGiven string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		pod, err := c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if spec, given := cores(pod); spec != wantSpec || given != wantGiven {
			return fmt.Errorf("pod %s has %s cores by its spec and %s by its node, not %s and %s", name, spec, given, wantSpec, wantGiven)
		}
		return nil
	})
}

// TestResize follows sandboxes that are left to be resized, as claims leave them.
// What the kubelet does is played by kwok, see stages.yaml.
func TestResize(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		nodeSays        string
		status          metav1.ConditionStatus
		reason, message string // message is how it begins
		event           string
		cores           string // in the end
	}{
		"granted": {status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded, cores: "4"},
		"infeasible": {
			nodeSays: corev1.PodReasonInfeasible, status: metav1.ConditionFalse, reason: v1alpha1.ReasonFailed,
			message: "in-place resource resize failed: pod resize is infeasible: Node didn't have enough capacity",
			event:   "InplaceUpdateFailed", cores: "2",
		},
		"deferred": {
			nodeSays: corev1.PodReasonDeferred, status: metav1.ConditionFalse, reason: v1alpha1.ReasonFailed,
			message: "in-place resource resize failed: pod resize is infeasible for now, it is deferred: Node",
			event:   "InplaceUpdateFailed", cores: "2",
		},
	}
	c, ns := admin(t), namespace(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := c.makeSmall(t, ns, name, test.nodeSays)
			before := c.pod(t, ns, name)
			c.leaveToResize(t, ns, name)
			after := c.awaitSandbox(t, ns, name, resizeEnded(test.status, test.reason))
			if err := isReady(after); err != nil {
				t.Errorf("after the resize: %v: %+v", err, after.Status)
			}
			message := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate).Message
			if !strings.HasPrefix(message, test.message) || test.message == "" && message != "" {
				t.Errorf("message is %q, want %q", message, test.message)
			}
			c.awaitCores(t, ns, name, test.cores, test.cores) // what the node does not give is taken back
			if c.pod(t, ns, name).UID != before.UID {
				t.Error("the pod is another one")
			}
			if test.event != "" {
				c.awaitEvent(t, made, corev1.EventTypeWarning, test.event)
			}
		})
	}
}

// TestResizeOfAnotherClass leaves a sandbox whose template became one of another
// QoS class. That needs one that refers to its template: a claim changes amounts of
// the same container, which can be of another class only beside other changes.
func TestResizeOfAnotherClass(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "sized"}}
	template.Spec.Template = &runtime.RawExtension{Raw: []byte(sized(twoCores))}
	if _, err := c.SandboxTemplates(ns).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refers := func(s *v1alpha1.Sandbox) {
		s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "sized"}
	}
	made := c.makeSandbox(t, ns, "box", "{}", refers)
	c.awaitSandbox(t, ns, "box", isReady)
	patch := fmt.Sprintf(`{"spec":{"template":%s}}`, sized(burstCores))
	if _, err := c.SandboxTemplates(ns).Patch(t.Context(), "sized", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// The controller has seen the change when pods are made by it.
	seen := 0
	expect.Eventually(t.Context(), t, func(context.Context) error {
		seen++
		name := fmt.Sprintf("probe-%d", seen)
		c.makeSandbox(t, ns, name, "{}", refers)
		c.awaitSandbox(t, ns, name, isReady)
		if spec, _ := cores(c.pod(t, ns, name)); spec != "4" {
			return errors.New("the controller has not seen the template yet")
		}
		return nil
	})
	c.leaveToResize(t, ns, "box")
	after := c.awaitSandbox(t, ns, "box", resizeEnded(metav1.ConditionFalse, v1alpha1.ReasonFailed))
	if err := isReady(after); err != nil {
		t.Errorf("after the resize: %v: %+v", err, after.Status)
	}
	const want = "resource resize would change QoS class from Guaranteed to Burstable, resize rejected"
	if got := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate).Message; got != want {
		t.Errorf("message is %q, want %q", got, want)
	}
	c.awaitEvent(t, made, corev1.EventTypeWarning, "InplaceUpdateForbidden")
	c.awaitCores(t, ns, "box", "2", "2")
}

// TestResizeRefusedByTheAPI asks for more than a quota allows.
func TestResizeRefusedByTheAPI(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	made := c.makeSmall(t, ns, "box", "")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: quantity("3")}
	if _, err := c.kube.CoreV1().ResourceQuotas(ns).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		got, err := c.kube.CoreV1().ResourceQuotas(ns).Get(ctx, "small", metav1.GetOptions{})
		if err == nil && got.Status.Used.Name(corev1.ResourceLimitsCPU, "").String() != "2" {
			return fmt.Errorf("the quota counts %v", got.Status.Used)
		}
		return err
	})
	c.leaveToResize(t, ns, "box")
	after := c.awaitSandbox(t, ns, "box", resizeEnded(metav1.ConditionFalse, v1alpha1.ReasonFailed))
	message := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate).Message
	if !strings.HasPrefix(message, "in-place resource resize failed: ") || !strings.Contains(message, "exceeded quota") {
		t.Errorf("message is %q", message)
	}
	if err := isReady(after); err != nil {
		t.Errorf("after the resize: %v: %+v", err, after.Status)
	}
	c.awaitEvent(t, made, corev1.EventTypeWarning, "InplaceUpdateFailed")
}

// TestResizeEndsWithThePod pauses a sandbox, and takes the pod of another one, while
// their resizes run. One that a resize is not wanted of is left as it is.
func TestResizeEndsWithThePod(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeSmall(t, ns, "alone", "")
	for _, name := range []string{"paused", "lost"} {
		c.makeSmall(t, ns, name, controlplane.ResizeNever)
		c.leaveToResize(t, ns, name)
		c.awaitCores(t, ns, name, "4", "2")
		running := c.awaitSandbox(t, ns, name, inPhase(v1alpha1.SandboxRunning))
		if err := errors.Join(hasCondition(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating)(running),
			resizeEnded(metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating)(running)); err != nil {
			t.Errorf("while it is resized: %v: %+v", err, running.Status)
		}
	}
	c.patchSandbox(t, ns, "paused", `{"spec":{"paused":true}}`)
	if err := ofCluster(t).CoreV1().Pods(ns).Delete(t.Context(), "lost", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitSandbox(t, ns, "paused", func(s *v1alpha1.Sandbox) error { // it ends when the sandbox is resumed
		return errors.Join(inPhase(v1alpha1.SandboxPaused)(s), resizeEnded(metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating)(s))
	})
	c.awaitSandbox(t, ns, "lost", func(s *v1alpha1.Sandbox) error {
		return errors.Join(inPhase(v1alpha1.SandboxFailed)(s), resizeEnded(metav1.ConditionFalse, v1alpha1.ReasonFailed)(s))
	})
	if spec, _ := cores(c.pod(t, ns, "alone")); spec != "2" {
		t.Errorf("a sandbox that no claim left to be resized has %s cores", spec)
	}
}

// TestResizeIsOfOnePod has the API refuse what was meant for another state of the
// pod, or another pod of its name: that is what the controller relies on.
func TestResizeIsOfOnePod(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeSmall(t, ns, "box", "")
	pod := c.pod(t, ns, "box")
	larger := `{"metadata":{"resourceVersion":%q},"spec":{"containers":[{"name":"main","resources":` + fourCores + `}]}}`
	ask := func(version string) error {
		_, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), "box", types.StrategicMergePatchType, fmt.Appendf(nil, larger, version), metav1.PatchOptions{}, "resize")
		return err
	}
	if err := ask("1"); !apierrors.IsConflict(err) {
		t.Errorf("a resize of another version is answered %v", err)
	}
	c.awaitCores(t, ns, "box", "2", "2")
	if err := ask(pod.ResourceVersion); err != nil {
		t.Errorf("a resize of this version is answered %v", err)
	}
}

// TestResizeSurvivesARestart kills the controller manager while the node is about a
// resize. It is not parallel.
func TestResizeSurvivesARestart(t *testing.T) {
	c, ns := admin(t), namespace(t)
	c.makeSmall(t, ns, "box", controlplane.ResizeNever)
	c.leaveToResize(t, ns, "box")
	c.awaitCores(t, ns, "box", "4", "2")
	if err := sandlot.Controllers().Kill(); err != nil {
		t.Fatal(err)
	}
	// The node gets it done while no controller looks.
	done := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, controlplane.AnnotationResize)
	if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), "box", types.MergePatchType, done, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if err := sandlot.Controllers().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.awaitSandbox(t, ns, "box", func(s *v1alpha1.Sandbox) error {
		return errors.Join(isReady(s), resizeEnded(metav1.ConditionTrue, v1alpha1.ReasonSucceeded)(s))
	})
	c.awaitCores(t, ns, "box", "4", "4")
}
