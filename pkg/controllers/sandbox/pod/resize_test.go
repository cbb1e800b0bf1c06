// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

func cores(amount string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}}
}

// has makes a pod whose container has so many cores by its spec, and by its status.
func has(spec, status string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.ResourceVersion, p.Status.QOSClass = "7", corev1.PodQOSBurstable
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: cores(spec)}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Resources: new(cores(status))}}
	}
}

func pending(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: "True", Reason: reason})
	}
}

var (
	isUpdating     = cond("InplaceUpdate", no, "InplaceUpdating", "inplace update is incompleted")
	isReverting    = cond("InplaceUpdate", no, "InplaceReverting", "in-place resource resize failed: pod resize is infeasible")
	readyUpdating  = ready("InplaceUpdating", "inplace update is incompleted")
	updatedInplace = cond("InplaceUpdate", yes, "Succeeded", "")
)

func updateFailed(message string) metav1.Condition {
	return cond("InplaceUpdate", no, "Failed", message)
}

// Four cores are wanted.
func TestDecideResize(t *testing.T) {
	const ask = `{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"4"}}}]}}`
	updating := []func(*v1alpha1.Sandbox){phase("Running"), addressed, held(readyUpdating, isUpdating)}
	reverting := []func(*v1alpha1.Sandbox){phase("Running"), addressed, held(readyUpdating, isReverting)}
	resumed := cond("SandboxResumed", yes, "CreatePod", "")
	tests := map[string]struct {
		sandbox *v1alpha1.Sandbox
		pod     *corev1.Pod
		inplace wholePod
		unknown bool // no one has looked
		action  action
		patch   string
		want    []metav1.Condition
	}{
		"to be looked at": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), has("2", "2")), unknown: true,
			action: actionInspect, want: []metav1.Condition{readyUpdating, isUpdating},
		},
		"to be asked for": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), has("2", "2")),
			patch: ask, want: []metav1.Condition{readyUpdating, isUpdating},
		},
		"and labelled": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), has("2", "2"), func(p *corev1.Pod) { p.Labels[v1alpha1.LabelPodTemplateHash] = "before" }),
			action: actionLabel, patch: ask, want: []metav1.Condition{readyUpdating, isUpdating},
		},
		"asked for": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), has("4", "2")), inplace: wholePod{answers: inplace.Answers{Resize: true}},
			want: []metav1.Condition{readyUpdating, isUpdating},
		},
		"asked for, less came": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), has("3", "2")), inplace: wholePod{answers: inplace.Answers{Resize: true}},
			want: []metav1.Condition{isReady, updateFailed("in-place resource resize failed: the cluster set other resources than it was asked for")},
		},
		"given": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), has("4", "4")),
			want: []metav1.Condition{isReady, updatedInplace},
		},
		"given, and not ready": {
			sandbox: newSandbox(updating...), pod: newPod(runs("False"), has("4", "4")),
			want: []metav1.Condition{ready("PodReady", "ContainersNotReady: containers with unready status: [c]"), updatedInplace},
		},
		"infeasible": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), has("4", "2"), pending("Infeasible")),
			want: []metav1.Condition{readyUpdating, isReverting},
		},
		"to be taken back": {
			sandbox: newSandbox(reverting...), pod: newPod(runs("True"), has("4", "2"), pending("Infeasible")),
			patch: `{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}`,
			want:  []metav1.Condition{readyUpdating, isReverting},
		},
		"taken back": {
			sandbox: newSandbox(reverting...), pod: newPod(runs("True"), has("2", "2"), pending("Infeasible")), inplace: wholePod{answers: inplace.Answers{Resize: true}},
			want: []metav1.Condition{isReady, updateFailed(isReverting.Message)},
		},
		"taken back by the controller before": {
			sandbox: newSandbox(reverting...), pod: newPod(runs("True"), has("2", "2")),
			want: []metav1.Condition{isReady, updateFailed(isReverting.Message)},
		},
		"not to be taken back": {
			sandbox: newSandbox(reverting...), pod: newPod(runs("True"), has("4", "2")), inplace: wholePod{answers: inplace.Answers{ResizeRefused: "policy"}},
			want: []metav1.Condition{isReady, updateFailed(isReverting.Message)},
		},
		"refused by the API": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), has("2", "2")), inplace: wholePod{answers: inplace.Answers{ResizeRefused: "quota"}},
			want: []metav1.Condition{isReady, updateFailed("in-place resource resize failed: quota")},
		},
		"another class": {
			sandbox: newSandbox(updating...), pod: newPod(runs("True"), has("2", "2"), func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }),
			want: []metav1.Condition{isReady, updateFailed("resource resize would change QoS class from Guaranteed to Burstable, resize rejected")},
		},
		"the pod fails": {
			sandbox: newSandbox(updating...), pod: newPod(podPhase("Failed"), has("2", "2")),
			want: []metav1.Condition{ready("PodFailed", ""), updateFailed("in-place resource resize failed: the sandbox is failed")},
		},
		"the pod goes": {
			sandbox: newSandbox(updating...), unknown: true,
			want: []metav1.Condition{ready("PodDeleted", goneMessage), updateFailed("in-place resource resize failed: the sandbox is failed")},
		},
		"paused": {
			sandbox: newSandbox(append(updating, paused)...), unknown: true,
			want: []metav1.Condition{readyPaused, isUpdating, isPaused},
		},
		"resumed, to be looked at": {
			sandbox: newSandbox(phase("Resuming"), held(readyPaused, isUpdating)), pod: newPod(runs("True"), has("4", "4")), unknown: true,
			action: actionInspect, want: []metav1.Condition{readyUpdating, isUpdating, resumed},
		},
		"resumed, made as it is to be": {
			sandbox: newSandbox(phase("Resuming"), held(readyPaused, isUpdating)), pod: newPod(runs("True"), has("4", "4")),
			want: []metav1.Condition{isReady, updatedInplace, resumed},
		},
		"not to be resized": {
			sandbox: newSandbox(phase("Running"), addressed, held(isReady, updateFailed("x"))), pod: newPod(runs("True"), has("2", "2")), unknown: true,
			want: []metav1.Condition{isReady, updateFailed("x")},
		},
		"still to start": {
			sandbox: newSandbox(phase("Pending"), held(isUpdating)), pod: newPod(has("2", "2")), unknown: true,
			want: []metav1.Condition{isUpdating, ready("PodReady", "")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := &observation{sandbox: test.sandbox, pod: test.pod, isFromServer: true, revision: revision, now: now}
			if !test.unknown {
				test.inplace.pod = test.pod
				test.inplace.template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"4"}}}]}}`)}
				o.inplace = &test.inplace
			}
			p := decide(o)
			if p.action != test.action || string(p.resize) != test.patch {
				t.Errorf("action %v, patch %s", p.action, p.resize)
			}
			if diff := cmp.Diff(test.want, p.status.Conditions,
				cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime", "ObservedGeneration")); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsResizeRefusal(t *testing.T) {
	status := func(code int32) error { return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}} }
	for err, want := range map[error]bool{
		status(http.StatusForbidden): true, status(http.StatusUnprocessableEntity): true, status(http.StatusBadRequest): true,
		status(http.StatusTooManyRequests): false, status(http.StatusUnauthorized): false, status(http.StatusRequestTimeout): false,
		status(http.StatusInternalServerError): false, status(http.StatusServiceUnavailable): false, errors.New("refused"): false,
	} {
		if got := isResizeRefusal(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// What the cache leaves out of a pod matters while it is resized, and only then.
func TestEventsOfAPodThatIsResized(t *testing.T) {
	c := New(Options{Clock: clocktesting.NewFakePassiveClock(now)})
	before := newPod(func(p *corev1.Pod) { p.ResourceVersion = "1" })
	after := newPod(func(p *corev1.Pod) { p.ResourceVersion = "2" })
	queued := func() int {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		c.podEvents().Update(t.Context(), event.UpdateEvent{ObjectOld: trim(before), ObjectNew: trim(after)}, q)
		return q.Len()
	}
	if got := queued(); got != 0 {
		t.Errorf("queued %d times without a resize", got)
	}
	c.memory.resizes.begin(box)
	if got := queued(); got != 1 {
		t.Errorf("queued %d times during a resize", got)
	}
	c.memory.forget(box)
	if got := queued(); got != 0 || len(c.memory.resizes.keys) != 0 {
		t.Errorf("queued %d times when it is forgotten, and remembers %v", got, c.memory.resizes.keys)
	}
}

func TestWarnResize(t *testing.T) {
	failure, forbidden := updateFailed("in-place resource resize failed: x"), updateFailed("resource resize would change QoS class from A to B, resize rejected")
	for name, test := range map[string]struct {
		before, after metav1.Condition
		want          string
	}{
		"fails":           {isUpdating, failure, "InplaceUpdateFailed"},
		"forbidden":       {isUpdating, forbidden, "InplaceUpdateForbidden"},
		"failed before":   {failure, failure, ""},
		"continues":       {isUpdating, isUpdating, ""},
		"comes to an end": {isUpdating, updatedInplace, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorded{}
			c := New(Options{Clock: clocktesting.NewFakePassiveClock(now), Recorder: r})
			c.writer.warnResize(newSandbox(held(test.before)), newSandbox(held(test.after)))
			if r.reason != test.want || test.want != "" && r.note != test.after.Message {
				t.Errorf("event %q with %q, want %q", r.reason, r.note, test.want)
			}
		})
	}
}
