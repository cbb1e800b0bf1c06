// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

// withImage makes a pod whose container has an image by its spec, and was asked for
// image two when it ran as id-1, if asked says so.
func withImage(spec string, asked bool, status corev1.ContainerStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		has("2", "2")(p)
		p.Spec.Containers[0].Image = spec
		status.Name, status.Resources = "c", p.Status.ContainerStatuses[0].Resources
		p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
		if asked {
			p.Annotations = map[string]string{v1alpha1.AnnotationInplaceUpdateState: `{"image":"two","lastContainerStatuses":{"c":{"containerID":"id-1"}}}`}
		}
	}
}

func runningAs(id string) corev1.ContainerStatus {
	return corev1.ContainerStatus{ContainerID: id, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

// restartedAs is the status of a container that the kubelet has restarted just now.
func restartedAs(id string) corev1.ContainerStatus {
	status := runningAs(id)
	status.RestartCount, status.State.Running.StartedAt = 1, metav1.NewTime(now)
	return status
}

// The image two is wanted, and so many cores.
func TestDecideImage(t *testing.T) {
	const ask = `{"metadata":{"resourceVersion":"7","annotations":{"agents.kruise.io/inplace-update-state":` +
		`"{\"image\":\"two\",\"lastContainerStatuses\":{\"c\":{\"containerID\":\"id-1\"}}}"}},"spec":{"containers":[{"name":"c","image":"two"}]}}`
	imageUpdated := cond("ImageUpdated", yes, "Succeeded", "")
	imageFailed := func(message string) metav1.Condition { return cond("ImageUpdated", no, "Failed", message) }
	wants := func(s *v1alpha1.Sandbox) {
		s.Annotations = map[string]string{v1alpha1.AnnotationInplaceUpdate: `{"image":true,"cpu":true}`}
	}
	startsForClaim := func(s *v1alpha1.Sandbox) { s.Annotations[v1alpha1.AnnotationStarting] = "true" }
	updatingSince := func(at time.Time) func(*v1alpha1.Sandbox) {
		return func(s *v1alpha1.Sandbox) {
			meta.FindStatusCondition(s.Status.Conditions, "InplaceUpdate").LastTransitionTime = metav1.NewTime(at)
		}
	}
	updating := []func(*v1alpha1.Sandbox){phase("Running"), addressed, held(readyUpdating, isUpdating), wants, updatingSince(now.Add(time.Second - sayEndingAfter))}
	waiting := func(reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such image"}}}
	}
	tests := map[string]struct {
		sandbox       *v1alpha1.Sandbox
		pod           *corev1.Pod
		cores         string
		answers       inplace.Answers
		unknown       bool // no one has looked
		action        action
		resize, image string
		after         time.Duration
		want          []metav1.Condition
	}{
		"to be looked at": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), withImage("one", false, runningAs("id-1"))), unknown: true,
			action: actionInspect, want: []metav1.Condition{readyUpdating, isUpdating},
		},
		"to be asked for": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), withImage("one", false, runningAs("id-1"))), cores: "2",
			image: ask, want: []metav1.Condition{readyUpdating, isUpdating},
		},
		"after the resources": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), withImage("one", false, runningAs("id-1"))), cores: "1",
			resize: `{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}`,
			want:   []metav1.Condition{readyUpdating, isUpdating},
		},
		"the process of before ends": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), withImage("two", true, runningAs("id-1"))), cores: "2",
			after: time.Second, want: []metav1.Condition{readyUpdating, isUpdating},
		},
		"the process of before does not end": {
			sandbox: newSandbox(append(updating, updatingSince(now.Add(-sayEndingAfter)))...), cores: "2",
			pod: newPod(runs("True"), withImage("two", true, runningAs("id-1")), func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(60)) }),
			want: []metav1.Condition{readyUpdating, cond("InplaceUpdate", no, "InplaceUpdating",
				"the process of before has not ended; if it ignores SIGTERM, it is killed after 1m0s (terminationGracePeriodSeconds)")},
		},
		"the pod restarts": {
			sandbox: newSandbox(updating...), pod: newPod(runs("False"), withImage("two", true, corev1.ContainerStatus{})), cores: "2",
			want: []metav1.Condition{readyUpdating, isUpdating},
		},
		"runs": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), withImage("two", true, runningAs("id-2"))), cores: "2",
			want: []metav1.Condition{isReady, updatedInplace, imageUpdated},
		},
		"restarts in the pod": {
			sandbox: newSandbox(append(updating, startsForClaim)...), cores: "2",
			pod:  newPod(runs("True"), withImage("two", true, restartedAs("id-2"))),
			want: []metav1.Condition{isReady, updatedInplace, imageUpdated},
		},
		"runs, the resources were refused": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), withImage("two", true, runningAs("id-2"))), cores: "1",
			answers: inplace.Answers{ResizeRefused: "quota"},
			want:    []metav1.Condition{isReady, updateFailed("in-place resource resize failed: quota"), imageUpdated},
		},
		"cannot be pulled yet": {
			sandbox: newSandbox(updating...), pod: newPod(runs("False"), withImage("two", true, waiting("ImagePullBackOff"))), cores: "2",
			want: []metav1.Condition{readyUpdating, cond("InplaceUpdate", no, "InplaceUpdating", "no such image")},
		},
		"is no image": {
			sandbox: newSandbox(updating...), pod: newPod(runs("False"), withImage("two", true, waiting("InvalidImageName"))), cores: "2",
			want: []metav1.Condition{ready("StartContainerFailed", "no such image"), updateFailed("no such image"), imageFailed("no such image")},
		},
		"refused by the API": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), withImage("one", false, runningAs("id-1"))), cores: "2",
			answers: inplace.Answers{ImageRefused: "policy"},
			want:    []metav1.Condition{isReady, updateFailed("in-place image update failed: policy"), imageFailed("in-place image update failed: policy")},
		},
		"paused": {
			sandbox: newSandbox(append(updating, paused)...), unknown: true,
			want: []metav1.Condition{readyPaused, isUpdating, isPaused},
		},
		"resumed": {
			sandbox: newSandbox(phase("Resuming"), held(readyPaused, isUpdating), wants), cores: "2",
			pod:  newPod(runs("True"), withImage("two", false, runningAs("id-3"))),
			want: []metav1.Condition{isReady, updatedInplace, cond("SandboxResumed", yes, "CreatePod", ""), imageUpdated},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := &observation{sandbox: test.sandbox, pod: test.pod, isFromServer: true, revision: revision, now: now}
			if !test.unknown {
				template := &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"c","image":"two","resources":{"requests":{"cpu":"` + test.cores + `"}}}]}}`)}
				o.inplace = &wholePod{pod: test.pod, template: template, goal: inplace.GoalOf(test.sandbox), answers: test.answers}
			}
			p := decide(o)
			if p.action != test.action || string(p.resize) != test.resize || string(p.image) != test.image || p.requeueAfter != test.after {
				t.Errorf("action %v, resize %s, image %s, again after %s", p.action, p.resize, p.image, p.requeueAfter)
			}
			if diff := cmp.Diff(test.want, p.status.Conditions,
				cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime", "ObservedGeneration")); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}
