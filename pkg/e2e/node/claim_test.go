// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestClaim: a pool fills with containers that run, a claim gets one of them, and a user runs
// commands there, reads its log and has the variables of the claim. A release ends the container.
func TestClaim(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.fill(2, shellPod("sh", "-c", "echo I have begun; exec sleep infinity"))
	name := s.claim(variable)
	pod := s.pod(name)
	if state := pod.Status.ContainerStatuses[0].State; pod.Status.Phase != corev1.PodRunning || state.Running == nil {
		t.Errorf("the pod is %s, its container %+v", pod.Status.Phase, state)
	}
	if got := s.kubectl("exec", name, "--", "hostname"); got != name+"\n" {
		t.Errorf("a command in the sandbox says %q", got)
	}
	if got := s.kubectl("sandlot", "exec", "sbc/"+claimName, "--", "hostname"); got != name+"\n" {
		t.Errorf("a command of the plugin in the sandbox says %q", got)
	}
	if got := s.kubectl("logs", name); !strings.Contains(got, "I have begun\n") {
		t.Errorf("the log of the sandbox is %q", got)
	}
	s.expectVariable()
	if err := s.SandboxClaims(s.namespace).Delete(t.Context(), claimName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitNoPod(pod)
	expect.FullPool(t, s, s.namespace, "pool", 2)
}

// TestRemovedAfterCommand: the plugin claims a sandbox for one command, whose output and exit code
// are its own.
func TestRemovedAfterCommand(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.fill(1, shellPod("sleep", "infinity"))
	if got := s.kubectl("sandlot", "claim", "pool", "--rm", "--exec", "--", "sh", "-c", "echo $((6 * 7))"); got != "42\n" {
		t.Errorf("the command says %q", got)
	}
	if claims := s.kubectl("get", "sandboxclaims", "-o", "name"); claims != "" {
		t.Errorf("%s is still there", claims)
	}
	_, err := s.tryKubectl(t.Context(), "sandlot", "claim", "pool", "--rm", "--exec", "--", "sh", "-c", "exit 7")
	if err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("a command that ends with 7: %v", err)
	}
}

// TestContainerRestarts: after its container restarts, a claimed sandbox is not ready for a while. When it is
// ready again, it has its variables, and /init with another token is refused.
func TestContainerRestarts(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.fill(1, shellPod("sh", "-c", "trap 'exit 1' TERM; while :; do sleep 0.1; done"))
	name := s.claim(variable)
	before := s.sandbox(name, isReady)
	changes := s.watch(metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: before.ResourceVersion})
	s.kubectl("exec", name, "--", "kill", "1")
	seen := false
	for sandbox := range changes {
		seen = seen || isReady(sandbox) != nil
		if isReadyAgain(sandbox) == nil {
			break
		}
	}
	if !seen {
		t.Error("the sandbox was ready all the time")
	}
	s.expectVariable()
	url := "http://" + s.pod(name).Status.PodIP + ":49983/init"
	code, answer, err := call(t.Context(), http.MethodPost, url, "", `{"accessToken":"of-a-stranger"}`)
	if err != nil || code != http.StatusUnauthorized {
		t.Errorf("a stranger's /init is answered with %d %s: %v", code, answer, err)
	}
}

// TestPause: a paused sandbox has no container, and a resumed one has a new one with the variables
// of the claim.
func TestPause(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.fill(1, shellPod("sleep", "infinity"))
	name := s.claim(variable)
	pod := s.pod(name)
	s.setPaused(name, true)
	s.awaitNoPod(pod)
	s.sandbox(name, func(sandbox *v1alpha1.Sandbox) error {
		if !meta.IsStatusConditionTrue(sandbox.Status.Conditions, string(v1alpha1.SandboxConditionPaused)) {
			return fmt.Errorf("it is not paused: %+v", sandbox.Status.Conditions)
		}
		return nil
	})
	s.setPaused(name, false)
	s.sandbox(name, isReady)
	if again := s.pod(name); again.UID == pod.UID {
		t.Error("the resumed sandbox has the pod that it had")
	}
	if got := s.kubectl("exec", name, "--", "hostname"); got != name+"\n" {
		t.Errorf("after the resume a command says %q", got)
	}
	s.expectVariable()
}

// TestRecycle: while a sandbox is recycled its pool makes none in its place, and it is in the pool again
// with another container.
func TestRecycle(t *testing.T) {
	t.Parallel()
	s := begin(t)
	// A process that takes its time, so that the pool has some to make another one.
	spec := shellPod("sh", "-c", "trap 'until [ -e /opt/sandlot/end ]; do sleep 0.1; done; sleep 3; exit 0' TERM; while :; do sleep 0.1; done")
	s.fill(2, spec)
	name := s.claim("", func(claim *v1alpha1.SandboxClaim) {
		claim.Spec.Annotations = map[string]string{v1alpha1.AnnotationCleanupEnabled: v1alpha1.CleanupTrue}
	})
	expect.FullPool(t, s, s.namespace, "pool", 2)
	pod := s.pod(name)
	s.kubectl("annotate", "sandbox.agents.kruise.io", name, v1alpha1.AnnotationCleanup+"="+v1alpha1.CleanupTrue)
	s.sandbox(name, func(sandbox *v1alpha1.Sandbox) error {
		if phase := sandbox.Status.Phase; phase != v1alpha1.SandboxRecycling {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
	taken := builders.Claim("another", 1)
	if _, err := s.SandboxClaims(s.namespace).Create(t.Context(), taken, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.kubectl("exec", name, "--", "touch", "/opt/sandlot/end")
	s.awaitNoPod(pod)
	expect.FullPool(t, s, s.namespace, "pool", 2)
	if sandbox := s.sandbox(name, isReady); sandbox.Status.RecycledCount != 1 || !v1alpha1.IsInPool(sandbox) {
		t.Errorf("it was recycled %d times, and has the owners %+v", sandbox.Status.RecycledCount, sandbox.OwnerReferences)
	}
}

func (s *story) setPaused(name string, paused bool) {
	s.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"paused":%t}}`, paused)
	if _, err := s.Sandboxes(s.namespace).Patch(s.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// TestStubbornProcess: the sandbox and the pod of a process that ignores SIGTERM are deleted.
func TestStubbornProcess(t *testing.T) {
	t.Parallel()
	s := begin(t)
	spec := shellPod()
	spec.InitContainers, spec.Volumes, spec.Containers[0].VolumeMounts = nil, nil, nil
	spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}
	spec.TerminationGracePeriodSeconds = new(int64(2))
	s.fill(1, spec)
	name := s.claim("")
	pod := s.pod(name)
	if err := s.SandboxClaims(s.namespace).Delete(t.Context(), claimName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually(func(ctx context.Context) error {
		out, err := s.tryKubectl(ctx, "get", "sandboxes", "-o", "name")
		if err == nil && strings.Contains(out, name) {
			err = fmt.Errorf("there is %s", out)
		}
		return err
	})
	s.awaitNoPod(pod)
}

func isReady(sandbox *v1alpha1.Sandbox) error {
	if !meta.IsStatusConditionTrue(sandbox.Status.Conditions, string(v1alpha1.SandboxConditionReady)) {
		return fmt.Errorf("it is not ready: %+v", sandbox.Status.Conditions)
	}
	return nil
}
