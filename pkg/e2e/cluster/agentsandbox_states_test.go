// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	agentRuns      = "True DependenciesReady: Pod is Ready; Service Exists"
	agentScheduled = "True PodScheduled: "
)

// agentIs is a check that conditions say what they should, and that others are not there.
func agentIs(want map[string]string) func(*unstructured.Unstructured) error {
	return func(sandbox *unstructured.Unstructured) error {
		for _, kind := range []string{"Ready", "Suspended", "PodScheduled", "Finished"} {
			says, wanted := want[kind]
			if !wanted {
				if is := agentCondition(sandbox, kind); is != nil {
					return fmt.Errorf("it has the condition %+v", is)
				}
				continue
			}
			if err := isAgentCondition(kind, says)(sandbox); err != nil {
				return err
			}
		}
		return nil
	}
}

// livesAt is a check that the status names a pod's place, or none, and the Service.
func livesAt(ns string, pod, service bool) func(*unstructured.Unstructured) error {
	return func(sandbox *unstructured.Unstructured) error {
		name := sandbox.GetName()
		ips, _, _ := unstructured.NestedStringSlice(sandbox.Object, "status", "podIPs")
		node, named := text(sandbox, "status", "nodeName"), sandbox.GetAnnotations()[v1alpha1.AgentAnnotationPodName]
		if pod != (len(ips) > 0) || pod != (node != "") || pod != (named == name) || !pod && named != "" {
			return fmt.Errorf("its pod %q is at %v on node %q", named, ips, node)
		}
		wantService, wantFQDN := "", ""
		if service {
			wantService, wantFQDN = name, name+"."+ns+".svc.cluster.local"
		}
		if is, fqdn := text(sandbox, "status", "service"), text(sandbox, "status", "serviceFQDN"); is != wantService || fqdn != wantFQDN {
			return fmt.Errorf("its Service is %q, %q", is, fqdn)
		}
		want := v1alpha1.AgentLabelNameHash + "=" + v1alpha1.NameHash(name)
		if ready := agentCondition(sandbox, "Ready"); ready != nil && ready.Reason == v1alpha1.ReasonSandboxExpired {
			want = ""
		}
		if got := text(sandbox, "status", "selector"); got != want {
			return fmt.Errorf("its selector is %q, want %q", got, want)
		}
		return nil
	}
}

// TestAgentSandboxStates follows a Sandbox of agent-sandbox with a Service and a volume as
// it runs, is suspended and resumed, ends and expires.
func TestAgentSandboxStates(t *testing.T) {
	t.Parallel()
	const running, down = "False NotSuspended: Sandbox is not suspended", "True PodTerminated: Pod has been terminated. Sandbox is suspended"
	c, ns := admin(t), namespace(t)
	c.volume(t, ns, "data-box")
	spec := func() map[string]any {
		return map[string]any{
			"service": true,
			"podTemplate": map[string]any{"spec": map[string]any{
				"restartPolicy": "OnFailure",
				"containers":    []any{map[string]any{"name": "main", "image": "busybox:1"}},
			}},
		}
	}
	withVolume := spec()
	withVolume["volumeClaimTemplates"] = []any{map[string]any{
		"metadata": map[string]any{"name": "data"},
		"spec": map[string]any{
			"accessModes": []any{"ReadWriteOnce"}, "storageClassName": "",
			"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
		},
	}}
	c.makeAgent(t, agentSandboxes, ns, newAgent(agentSandboxes, "Sandbox", "box", withVolume))
	c.makeAgent(t, agentSandboxes, ns, newAgent(agentSandboxes, "Sandbox", "brief", spec()))
	await := func(name string, checks ...func(*unstructured.Unstructured) error) *unstructured.Unstructured {
		t.Helper()
		return c.awaitAgent(t, agentSandboxes, ns, name, func(sandbox *unstructured.Unstructured) error {
			for _, check := range checks {
				if err := check(sandbox); err != nil {
					return err
				}
			}
			return nil
		})
	}
	change := func(name, patch string) {
		t.Helper()
		c.patchAgent(t, agentSandboxes, ns, name, `{"spec": `+patch+`}`)
	}
	isRunning := agentIs(map[string]string{"Ready": agentRuns, "PodScheduled": agentScheduled, "Suspended": running})
	box := await("box", isRunning, livesAt(ns, true, true))
	c.ownedInAgents(t, ns, box)

	// Suspending waits for the pod, and keeps the Service and the volume.
	finalizers := func(value string) {
		t.Helper()
		if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), "box", types.MergePatchType,
			[]byte(`{"metadata": {"finalizers": `+value+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["example.com/last-words"]`)
	nextSecond() // times of conditions are whole seconds
	change("box", `{"operatingMode": "Suspended"}`)
	await("box", isAgentCondition("Ready", "False SandboxSuspended: Sandbox is suspending"),
		isAgentCondition("Suspended", "False PodTerminating: Pod is terminating. Sandbox is suspending"),
		isAgentCondition("PodScheduled", agentScheduled))
	finalizers("null")
	suspended := await("box", agentIs(map[string]string{"Ready": "False SandboxSuspended: Sandbox is suspended", "Suspended": down}), livesAt(ns, false, true))
	c.awaitNoPod(t, ns, "box")
	if _, err := c.kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data-box", metav1.GetOptions{}); err != nil {
		t.Errorf("the volume of a suspended sandbox: %v", err)
	}
	nextSecond()
	change("box", `{"operatingMode": "Running"}`)
	resumed := await("box", isRunning, livesAt(ns, true, true))
	times := []*metav1.Condition{agentCondition(box, "Suspended"), agentCondition(suspended, "Suspended"), agentCondition(resumed, "Suspended")}
	for i := range times[1:] {
		if !times[i+1].LastTransitionTime.After(times[i].LastTransitionTime.Time) {
			t.Errorf("Suspended changed from %+v to %+v", times[i], times[i+1])
		}
	}

	// A sandbox that expires keeps what it says, by its policy, and nothing else.
	change("box", `{"shutdownTime": "2026-01-01T00:00:00Z"}`)
	await("box", isAgentCondition("Ready", "False SandboxExpired: Sandbox has expired"), livesAt(ns, false, false), func(sandbox *unstructured.Unstructured) error {
		if is := agentCondition(sandbox, "PodScheduled"); is != nil {
			return fmt.Errorf("it has the condition %+v", is)
		}
		return nil
	})
	c.awaitNoPod(t, ns, "box")
	c.awaitNoService(t, ns, "box")

	// One that ended stays Finished when it expires, and goes with the policy Delete.
	await("brief", isRunning)
	if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), "brief", types.MergePatchType,
		[]byte(`{"status": {"phase": "Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	const ended = "PodSucceeded: Pod completed successfully"
	before := await("brief", isAgentCondition("Ready", "False "+ended), isAgentCondition("Finished", "True "+ended))
	change("brief", `{"shutdownTime": "2026-01-01T00:00:00Z", "shutdownPolicy": "Retain"}`)
	after := await("brief", isAgentCondition("Ready", "False SandboxExpired: Sandbox has expired"), isAgentCondition("Finished", "True "+ended), livesAt(ns, false, false))
	if was, is := agentCondition(before, "Finished"), agentCondition(after, "Finished"); !is.LastTransitionTime.Equal(&was.LastTransitionTime) {
		t.Errorf("Finished moved from %v to %v", was.LastTransitionTime, is.LastTransitionTime)
	}
	c.awaitNoPod(t, ns, "brief")
	change("brief", `{"shutdownPolicy": "Delete"}`)
	c.awaitAgentGone(t, ns, "brief")

	// A stranger's pod is in the way of a suspension.
	stranger := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "blocked"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}},
	}
	if _, err := c.kube.CoreV1().Pods(ns).Create(t.Context(), stranger, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	blocked := spec()
	blocked["operatingMode"] = "Suspended"
	c.makeAgent(t, agentSandboxes, ns, newAgent(agentSandboxes, "Sandbox", "blocked", blocked))
	await("blocked", func(sandbox *unstructured.Unstructured) error {
		return isAgentCondition("Suspended", "False PodNotOwned: Refused to delete pod because it is not owned by this sandbox")(sandbox)
	})
}

// ownedInAgents fails unless what belongs to a sandbox names it in the words of
// agent-sandbox, as its controller, and has the hash of its name.
func (c *clients) ownedInAgents(t testing.TB, ns string, sandbox *unstructured.Unstructured) {
	t.Helper()
	name := sandbox.GetName()
	pod, err := c.kube.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
	service, serviceErr := c.kube.CoreV1().Services(ns).Get(t.Context(), name, metav1.GetOptions{})
	volume, volumeErr := c.kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data-"+name, metav1.GetOptions{})
	if err := errors.Join(err, serviceErr, volumeErr); err != nil {
		t.Fatal(err)
	}
	for kind, object := range map[string]metav1.Object{"Pod": pod, "Service": service, "PersistentVolumeClaim": volume} {
		owner := metav1.GetControllerOf(object)
		if owner == nil || owner.APIVersion != agentSandboxes.GroupVersion().String() || owner.Kind != "Sandbox" || owner.UID != sandbox.GetUID() {
			t.Errorf("the %s of a sandbox of agent-sandbox belongs to %v", kind, object.GetOwnerReferences())
		}
		if owner != nil && (owner.BlockOwnerDeletion == nil || !*owner.BlockOwnerDeletion) {
			t.Errorf("the %s does not block the deletion of its owner", kind)
		}
		if got, want := object.GetLabels()[v1alpha1.AgentLabelNameHash], v1alpha1.NameHash(name); got != want {
			t.Errorf("the %s says %q for the hash of the name, want %q", kind, got, want)
		}
	}
	if service.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("the Service has the address %s", service.Spec.ClusterIP)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		found, err := c.kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: service.Spec.Selector})})
		if err == nil && (len(found.Items) != 1 || found.Items[0].UID != pod.UID) {
			err = fmt.Errorf("the Service selects %d pods", len(found.Items))
		}
		return err
	})
}

// nextSecond waits until the clock shows another second.
func nextSecond() { time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) }
