// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/realnode"
)

// TestResize: a claim gets a container with the cpu that it asks for, without a restart.
func TestResize(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.fill(1, requesting(shellPod("sleep", "infinity"), "10m"))
	name := s.claim(variable, withCPU("20m"))
	s.sandbox(name, isResized(metav1.ConditionTrue))
	status := s.pod(name).Status.ContainerStatuses[0]
	if got := status.Resources.Requests.Cpu().String(); got != "20m" || status.RestartCount != 0 {
		t.Errorf("the container has %s and was restarted %d times", got, status.RestartCount)
	}
	s.expectVariable()
}

// TestDeferredResize: what a node has no room for is taken back, so that the pool is refilled, and the
// sandbox is ready again after a pause.
func TestDeferredResize(t *testing.T) {
	t.Parallel()
	s := begin(t)
	node, err := s.kube.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.fill(2, requesting(shellPod("sleep", "infinity"), "10m"))
	// Beside the other sandbox there is no room for that.
	name := s.claim(variable, withCPU(node.Status.Allocatable.Cpu().String()))
	sandbox := s.sandbox(name, isResized(metav1.ConditionFalse))
	if got := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate).Message; !strings.Contains(got, "it is deferred") {
		t.Errorf("the sandbox says %q", got)
	}
	expectSmall := func() {
		t.Helper()
		s.eventually(func(context.Context) error { // the node reports a moment later that it has nothing to do
			pod := s.pod(name)
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodResizePending {
					return fmt.Errorf("the pod has %+v", condition)
				}
			}
			if got := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "10m" {
				return fmt.Errorf("the pod asks for %s", got)
			}
			return nil
		})
		sandbox := s.sandbox(name, isReady)
		if got := string(sandbox.Spec.Template.Raw); !strings.Contains(got, `"requests":{"cpu":"10m"}`) {
			t.Errorf("the sandbox has the template %s", got)
		}
	}
	expectSmall()
	expect.FullPool(t, s, s.namespace, "pool", 2)
	pod := s.pod(name)
	s.setPaused(name, true)
	s.awaitNoPod(pod)
	s.setPaused(name, false)
	s.sandbox(name, isReady)
	expectSmall()
	s.expectVariable()
}

// TestImageOfStubbornProcess: the image of a container is changed whose process ignores SIGTERM, although
// that takes longer than a sandbox may take to be ready. Meanwhile the sandbox says why.
func TestImageOfStubbornProcess(t *testing.T) {
	t.Parallel()
	s := begin(t)
	spec := shellPod()
	spec.InitContainers, spec.Volumes, spec.Containers[0].VolumeMounts = nil, nil, nil
	spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}
	spec.TerminationGracePeriodSeconds = new(int64(40))
	s.fill(1, spec)
	changes := s.watch(metav1.ListOptions{})
	name := s.claim("", func(claim *v1alpha1.SandboxClaim) {
		claim.Spec.InplaceUpdate = &v1alpha1.SandboxClaimInplaceUpdateOptions{Image: realnode.OtherShellImage}
		claim.Spec.WaitReadyTimeout, claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 30 * time.Second}, &metav1.Duration{Duration: expect.Patience}
	})
	s.sandbox(name, isResized(metav1.ConditionTrue))
	if got := s.kubectl("exec", name, "--", "cat", "/etc/version"); got != "2\n" {
		t.Errorf("it runs version %q", got)
	}
	for sandbox := range changes {
		update := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
		switch {
		case sandbox.Name != name || update == nil:
		case update.Status == metav1.ConditionTrue:
			t.Fatal("it has never said why that takes long")
		case strings.Contains(update.Message, "if it ignores SIGTERM, it is killed after 40s"):
			return
		}
	}
}

// requesting is a template whose container requests cpu.
func requesting(spec corev1.PodSpec, cpu string) corev1.PodSpec {
	spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return spec
}

// withCPU is a claim that asks for cpu.
func withCPU(cpu string) func(*v1alpha1.SandboxClaim) {
	return func(claim *v1alpha1.SandboxClaim) {
		claim.Spec.InplaceUpdate = &v1alpha1.SandboxClaimInplaceUpdateOptions{Resources: &v1alpha1.SandboxClaimInplaceUpdateResources{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}
	}
}

// isResized is a check that the update of a sandbox in place has ended in a way.
func isResized(status metav1.ConditionStatus) func(*v1alpha1.Sandbox) error {
	return func(sandbox *v1alpha1.Sandbox) error {
		if !meta.IsStatusConditionPresentAndEqual(sandbox.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate, status) {
			return fmt.Errorf("it was not updated in place: %+v", sandbox.Status.Conditions)
		}
		return nil
	}
}
