// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestProgramsOfNodeCrash: sandboxes outlive the kubelet and containerd.
func TestProgramsOfNodeCrash(t *testing.T) {
	s := begin(t)
	s.fill(1, shellPod("sleep", "infinity"))
	name := s.claim(variable)
	pod := s.pod(name)
	for _, program := range []string{"kubelet", "containerd"} {
		if err := node.KillProgram(program); err != nil {
			t.Fatal(err)
		}
		s.eventually(func(ctx context.Context) error {
			_, err := s.tryKubectl(ctx, "exec", name, "--", "true")
			return err
		})
		s.sandbox(name, isReady)
		if again := s.pod(name); again.UID != pod.UID || again.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("after a crash of the %s the pod is %s with %+v", program, again.UID, again.Status.ContainerStatuses)
		}
		s.expectVariable()
	}
}

// TestReboot: when a claimed sandbox is ready again after its node was killed and started, it has its
// variables.
func TestReboot(t *testing.T) {
	s := begin(t)
	s.fill(1, shellPod("sleep", "infinity"))
	name := s.claim(variable)
	node.Kill()
	if err := node.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.sandbox(name, isReadyAgain)
	s.expectVariable()
}

// TestNodeDeleted: when the object of a node is deleted, the sandboxes there are no longer available or
// ready, although their pods say so. When the node is back, so is the pool.
func TestNodeDeleted(t *testing.T) {
	s := begin(t)
	s.fill(1, shellPod("sleep", "infinity"))
	name := s.claim("")
	expect.FullPool(t, s, s.namespace, "pool", 1)
	if err := s.kube.CoreV1().Nodes().Delete(t.Context(), nodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.sandbox(name, func(sandbox *v1alpha1.Sandbox) error {
		ready := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
		if ready.Reason != v1alpha1.ReasonNodeLost || ready.Status != metav1.ConditionFalse {
			return fmt.Errorf("its condition is %+v", ready)
		}
		return nil
	})
	s.eventually(func(ctx context.Context) error {
		set, err := s.SandboxSets(s.namespace).Get(ctx, "pool", metav1.GetOptions{})
		if err == nil && set.Status.AvailableReplicas != 0 {
			err = fmt.Errorf("the set says %+v", set.Status)
		}
		return err
	})
	// A kubelet registers its node when it starts.
	if err := node.KillProgram("kubelet"); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, s, s.namespace, "pool", 1)
}

// isReadyAgain returns an error unless a sandbox is ready after its container has restarted.
func isReadyAgain(sandbox *v1alpha1.Sandbox) error {
	if count := sandbox.Status.PodInfo.RestartCount; count == nil || *count == 0 {
		return fmt.Errorf("it has not restarted: %+v", sandbox.Status.PodInfo)
	}
	return isReady(sandbox)
}

// TestOutOfMemory: if the container of a claimed sandbox restarts because a process took more memory than it
// may, the sandbox has its variables when it is ready again.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	s := begin(t)
	spec := shellPod("sh", "-c", "while [ ! -e /opt/sandlot/eat ]; do sleep 0.1; done; rm /opt/sandlot/eat; x=x; while :; do x=$x$x; done")
	spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	s.fill(1, spec)
	name := s.claim(variable)
	s.kubectl("exec", name, "--", "touch", "/opt/sandlot/eat")
	s.sandbox(name, isReadyAgain)
	s.expectVariable()
}

// TestEvicted: a sandbox that the kubelet evicts is Failed, even if its process exits with 0 on SIGTERM.
func TestEvicted(t *testing.T) {
	t.Parallel()
	s := begin(t)
	spec := shellPod("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
	limit := resource.MustParse("16Mi")
	spec.Volumes[0].EmptyDir.SizeLimit = &limit
	s.fill(1, spec)
	name := s.claim("")
	s.kubectl("exec", name, "--", "dd", "if=/dev/zero", "of=/opt/sandlot/large", "bs=1M", "count=32")
	sandbox := s.sandbox(name, func(sandbox *v1alpha1.Sandbox) error {
		if phase := sandbox.Status.Phase; phase != v1alpha1.SandboxFailed && phase != v1alpha1.SandboxSucceeded {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
	if sandbox.Status.Phase != v1alpha1.SandboxFailed {
		t.Errorf("it is %s with %q, %+v", sandbox.Status.Phase, sandbox.Status.Message, sandbox.Status.Conditions)
	}
}

// TestCrashLoop: a sandbox whose container ends again and again does not become available again, although
// its pod says that it is ready each time.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	s := begin(t)
	changes := s.watch(metav1.ListOptions{})
	// The kubelet looks at containers every second, and a sandbox is ready when one has run for ten.
	s.create(1, shellPod("sh", "-c", "sleep 2; exit 1"))
	for sandbox := range changes {
		restarts := ptr.Deref(sandbox.Status.PodInfo.RestartCount, 0)
		if restarts > 0 && isReady(sandbox) == nil {
			t.Fatalf("it is ready after %d restarts", restarts)
		}
		if restarts >= 3 {
			return
		}
	}
}

// TestCrashesOnce: a sandbox whose container has ended once, and runs since, becomes available.
func TestCrashesOnce(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.fill(1, shellPod("sh", "-c", "[ -e /opt/sandlot/once ] && exec sleep infinity; touch /opt/sandlot/once; exit 1"))
	name := s.claim(variable)
	s.sandbox(name, isReadyAgain)
	s.expectVariable()
}

// TestImageMissing: a pool whose image is not there says so.
func TestImageMissing(t *testing.T) {
	t.Parallel()
	s := begin(t)
	spec := shellPod("sleep", "infinity")
	spec.Containers[0].Image = "localhost/sandlot-test/absent:1"
	s.create(1, spec)
	s.eventually(func(ctx context.Context) error {
		set, err := s.SandboxSets(s.namespace).Get(ctx, "pool", metav1.GetOptions{})
		if err == nil && !strings.Contains(fmt.Sprint(set.Status.Conditions), "is not present with pull policy of Never") {
			err = fmt.Errorf("the set says %+v", set.Status.Conditions)
		}
		return err
	})
}
