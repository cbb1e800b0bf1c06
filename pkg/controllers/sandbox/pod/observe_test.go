// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// large is a pod with everything that a real one has beside what plans need.
func large(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := newPod(append([]func(*corev1.Pod){runs("False"), waits("CrashLoopBackOff", "x")}, changes...)...)
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	pod.Annotations = map[string]string{"cni": "a long story", v1alpha1.AnnotationTemplateMetadata: "{}"}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: "False"})
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "d", Ready: true})
	return pod
}

// Everything that a plan is made from survives the cache.
func TestTrimmedPodsGiveTheSamePlans(t *testing.T) {
	pods := map[string]*corev1.Pod{
		"pending": newPod(), "runs": newPod(runs("True")), "unready": newPod(runs("False")), "crashes": large(),
		"terminating": large(terminating), "foreign": large(foreign), "failed": large(podPhase("Failed")),
		"evicted":  large(podPhase("Failed"), func(p *corev1.Pod) { p.Status.Reason, p.Status.Message = "Evicted", "m" }),
		"outdated": large(func(p *corev1.Pod) { p.Labels[v1alpha1.LabelPodTemplateHash] = "other" }),
		"disrupted": large(terminating, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: "True", Reason: "r"})
		}),
		"unschedulable": newPod(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Reason: "Unschedulable"}}
		}),
		"restarted": newPod(runs("True"), restarted(3)),
		"stopped":   newPod(podPhase("Succeeded"), restartsAlways),
		"ended":     newPod(podPhase("Succeeded"), restartsAlways, endsByItself),
		"init waits": newPod(func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
		}),
	}
	for name, pod := range pods {
		for _, p := range []v1alpha1.SandboxPhase{"Pending", "Running", "Paused", "Resuming"} {
			for _, isPaused := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %s %v", name, p, isPaused), func(t *testing.T) {
					object, err := trimmed(pod)
					if err != nil {
						t.Fatal(err)
					}
					o := observation{sandbox: newSandbox(phase(p)), pod: pod, revision: revision, now: now, isFromServer: true}
					o.sandbox.Spec.Paused = isPaused
					want := decide(&o)
					o.pod = object.(*corev1.Pod)
					if diff := cmp.Diff(want, decide(&o), cmp.AllowUnexported(plan{})); diff != "" {
						t.Errorf("plan with the whole pod and the trimmed one (-whole +trimmed):\n%s", diff)
					}
				})
			}
		}
	}
}

func TestTrimmedPodsAreSmall(t *testing.T) {
	pod := trim(large())
	if pod.ManagedFields != nil || pod.Spec.Containers != nil || len(pod.Status.Conditions) != 1 || len(pod.Status.ContainerStatuses) != 1 ||
		len(pod.Annotations) != 1 || len(pod.Labels) != 2 {
		t.Errorf("kept too much: %+v", pod)
	}
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "ns/box", Obj: pod}
	if got, err := trimmed(tombstone); err != nil || !cmp.Equal(got, tombstone) {
		t.Errorf("a tombstone became %+v, %v", got, err)
	}
}

// The pods that are made are those that the cache shows.
func TestCachedPodsSelect(t *testing.T) {
	if !CachedPods().Label.Matches(labels.Set(newPod().Labels)) {
		t.Error("leaves out the pods of sandboxes")
	}
	if CachedPods().Label.Matches(labels.Set{"app": "x"}) {
		t.Error("takes in all pods")
	}
}

func TestDiffer(t *testing.T) {
	before := trim(large(func(p *corev1.Pod) { p.ResourceVersion = "1" }))
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"nothing":           {func(p *corev1.Pod) { p.ResourceVersion = "1" }, false},
		"what is not kept":  {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, false},
		"phase":             {podPhase("Failed"), true},
		"deletion":          {terminating, true},
		"readiness":         {runs("True"), true},
		"restarts":          {restarted(1), true},
		"labels of a claim": {func(p *corev1.Pod) { p.Labels[v1alpha1.LabelPodTemplateHash] = "x" }, true},
	} {
		after := trim(large(func(p *corev1.Pod) { p.ResourceVersion = "2" }, test.change))
		if got := differ(before, after); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRestartsAreTold: of all containers of the pod, also where the pod is ready as before.
func TestRestartsAreTold(t *testing.T) {
	o := observation{sandbox: newSandbox(phase("Running"), addressed), pod: trim(newPod(runs("True"), restarted(3))), revision: revision, now: now}
	if n := decide(&o).status.PodInfo.RestartCount; n == nil || *n != 3 {
		t.Errorf("told %v restarts", n)
	}
}

// TestNoRestartsAreTold: of each pod that is new to the status, and not of those whose sandboxes are
// older than the field: an upgrade does not write each of them again.
func TestNoRestartsAreTold(t *testing.T) {
	for name, test := range map[string]struct {
		sandbox *v1alpha1.Sandbox
		told    bool
	}{
		"a new sandbox":    {newSandbox(phase("Pending")), true},
		"a new pod":        {newSandbox(phase("Running"), addressed, func(s *v1alpha1.Sandbox) { s.Status.PodInfo.PodUID = "" }), true},
		"an older sandbox": {newSandbox(phase("Running"), addressed), false},
	} {
		o := observation{sandbox: test.sandbox, pod: trim(newPod(runs("True"))), revision: revision, now: now}
		if n := decide(&o).status.PodInfo.RestartCount; (n != nil) != test.told || n != nil && *n != 0 {
			t.Errorf("%s: told %v restarts", name, n)
		}
	}
}
