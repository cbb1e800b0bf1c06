// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

var now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

const revision = "rev"

func newSandbox(changes ...func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	sandbox := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "box", UID: "u", Generation: 3},
		Spec: v1alpha1.SandboxSpec{EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
			Template: &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"c","image":"i"}]}}`)},
		}},
	}
	for _, change := range changes {
		change(sandbox)
	}
	return sandbox
}

func newPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "box", UID: "pod-uid",
			Labels: map[string]string{v1alpha1.LabelCreatedBy: "sandbox", v1alpha1.LabelPodTemplateHash: revision},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "agents.kruise.io/v1alpha1", Kind: "Sandbox", Name: "box", UID: "u", Controller: new(true),
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func restartsAlways(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }

func endsByItself(p *corev1.Pod) {
	never := corev1.ContainerRestartPolicyNever
	p.Spec.Containers = []corev1.Container{{Name: "main", RestartPolicy: &never}}
}

func phase(p v1alpha1.SandboxPhase) func(*v1alpha1.Sandbox) {
	return func(s *v1alpha1.Sandbox) { s.Status.Phase = p }
}

func paused(s *v1alpha1.Sandbox) { s.Spec.Paused = true }

func held(c ...metav1.Condition) func(*v1alpha1.Sandbox) {
	return func(s *v1alpha1.Sandbox) { s.Status.Conditions = append(s.Status.Conditions, c...) }
}

func addressed(s *v1alpha1.Sandbox) {
	s.Status.NodeName, s.Status.SandboxIP = "node", "10.0.0.1"
	s.Status.PodInfo = v1alpha1.PodInfo{NodeName: "node", PodIP: "10.0.0.1", PodUID: "pod-uid"}
}

// counted makes a sandbox whose status says how often containers were restarted.
func counted(restarts int32) func(*v1alpha1.Sandbox) {
	return func(s *v1alpha1.Sandbox) { s.Status.PodInfo.RestartCount = &restarts }
}

// second makes a pod of the sandbox's that is not the one of its status.
func second(p *corev1.Pod) { p.UID = "second" }

// runs makes a pod that runs; Ready or not.
func runs(ready corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status.PodIP, p.Status.Phase = "node", "10.0.0.1", corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		if ready != corev1.ConditionTrue {
			p.Status.Conditions[0].Reason, p.Status.Conditions[0].Message = "ContainersNotReady", "containers with unready status: [c]"
		}
	}
}

func podPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func unscheduled(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Reason: reason, Message: message}}
	}
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(now)) }

func foreign(p *corev1.Pod) { p.OwnerReferences[0].UID = "older" }

func waits(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
	}
}

// restarted makes a pod of which containers were restarted so often, half of them init containers.
func restarted(times int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "runtime", RestartCount: times / 2}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: times - times/2}}
	}
}

func cond(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func ready(reason, message string) metav1.Condition {
	return cond("Ready", metav1.ConditionFalse, reason, message)
}

func gated(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return cond("SchedulingGated", status, reason, message)
}

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

var (
	isReady      = cond("Ready", yes, "PodReady", "")
	isPaused     = cond("SandboxPaused", yes, "StopPauseSucceed", "")
	readyPaused  = ready("PodReady", "The sandbox is paused")
	readyResumes = ready("PodReady", "The sandbox is being resumed")
	resumes      = cond("SandboxResumed", no, "CreatePod", "")
)

// request gives a sandbox a runtime that is set up again.
func request(s *v1alpha1.Sandbox) {
	s.Annotations = map[string]string{v1alpha1.AnnotationInitRuntimeRequest: "v1:sealed"}
}

// since gives the conditions of a sandbox a time.
func since(at time.Time) func(*v1alpha1.Sandbox) {
	return func(s *v1alpha1.Sandbox) {
		for i := range s.Status.Conditions {
			s.Status.Conditions[i].LastTransitionTime = metav1.NewTime(at)
		}
	}
}

var (
	readySetup     = ready("PodReady", settingUpMessage)
	readyRestarted = ready("RuntimeRestarted", restartedMessage)
	hasResumed     = cond("SandboxResumed", yes, "CreatePod", "")
	isSetUp        = cond("RuntimeInitialized", yes, "Succeeded", "")
	toBeSetUp      = cond("RuntimeInitialized", no, "Pending", "")
	toBeMounted    = cond("VolumesMounted", no, "Pending", "")
	isMounted      = cond("VolumesMounted", yes, "Succeeded", "")
	notSetUp       = cond("RuntimeInitialized", no, "Failed", "the agent-runtime refused the connection")
	neverSetUp     = cond("RuntimeInitialized", no, "Failed", claims.SetupOverdue().Message)
	neverMounted   = cond("VolumesMounted", no, "Failed", claims.SetupOverdue().Message)
)

// want is a plan, without what every plan has.
type want struct {
	action     action
	finalizer  bool
	mismatch   bool
	phase      v1alpha1.SandboxPhase
	message    string
	addressed  bool
	nodeOnly   bool // the node and the UID of a pod that is gone
	conditions []metav1.Condition
}

func TestDecide(t *testing.T) {
	running := []func(*v1alpha1.Sandbox){phase("Running"), addressed, held(isReady)}
	tests := map[string]struct {
		sandbox *v1alpha1.Sandbox
		pod     *corev1.Pod
		given   observation // sure, expected, held
		want    want
		goesOn  bool // the next plan, once this one is stored, is another
	}{
		// The start.
		"new":                   {sandbox: newSandbox(), want: want{action: actionCreate, phase: "Pending", conditions: []metav1.Condition{ready("PodReady", "")}}},
		"pending":               {sandbox: newSandbox(phase("Pending")), want: want{action: actionCreate, phase: "Pending", conditions: []metav1.Condition{ready("PodReady", "")}}},
		"its pod is on its way": {sandbox: newSandbox(phase("Pending")), given: observation{isPodExpected: true}, want: want{phase: "Pending", conditions: []metav1.Condition{ready("PodReady", "")}}},
		"must wait": {
			sandbox: newSandbox(phase("Pending"), held(ready("PodCreateFailed", "quota"))), given: observation{isInBackoff: true},
			want: want{phase: "Pending", conditions: []metav1.Condition{ready("PodCreateFailed", "quota")}},
		},
		"tries again": {
			sandbox: newSandbox(phase("Pending"), held(ready("PodCreateFailed", "quota"))),
			want:    want{action: actionCreate, phase: "Pending", conditions: []metav1.Condition{ready("PodReady", "")}},
		},
		"its pod is there":      {sandbox: newSandbox(phase("Pending")), pod: newPod(), want: want{phase: "Pending", conditions: []metav1.Condition{ready("PodReady", "")}}},
		"its container is made": {sandbox: newSandbox(phase("Pending")), pod: newPod(waits("ContainerCreating", "")), want: want{phase: "Pending", conditions: []metav1.Condition{ready("PodReady", "")}}},
		"unschedulable": {
			sandbox: newSandbox(phase("Pending")),
			pod: newPod(func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Reason: "Unschedulable", Message: "0/4 nodes"}}
			}),
			want: want{phase: "Pending", conditions: []metav1.Condition{ready("Unschedulable", "0/4 nodes")}},
		},
		"a count of the scheduler's changes": {
			sandbox: newSandbox(phase("Pending"), held(ready("Unschedulable", "0/4 nodes are available: 2 Insufficient cpu."))),
			pod:     newPod(unscheduled("Unschedulable", "0/12 nodes are available: 11 Insufficient cpu.")),
			want: want{phase: "Pending", conditions: []metav1.Condition{
				ready("Unschedulable", "0/4 nodes are available: 2 Insufficient cpu."),
			}},
		},
		"another cause of the scheduler's": {
			sandbox: newSandbox(phase("Pending"), held(ready("Unschedulable", "0/4 nodes are available: 2 Insufficient cpu."))),
			pod:     newPod(unscheduled("Unschedulable", "0/4 nodes are available: 2 Insufficient memory.")),
			want: want{phase: "Pending", conditions: []metav1.Condition{
				ready("Unschedulable", "0/4 nodes are available: 2 Insufficient memory."),
			}},
		},
		"gated": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(unscheduled("SchedulingGated", "Scheduling is blocked")),
			want: want{phase: "Pending", conditions: []metav1.Condition{
				ready("SchedulingGated", "Scheduling is blocked"), gated("True", "SchedulingGated", "Scheduling is blocked"),
			}},
		},
		"its gates are removed": {
			sandbox: newSandbox(phase("Pending"), held(gated("True", "SchedulingGated", "Scheduling is blocked"))), pod: newPod(unscheduled("Unschedulable", "full")),
			want: want{phase: "Pending", conditions: []metav1.Condition{gated("False", "GatesRemoved", ""), ready("Unschedulable", "full")}},
		},
		"its gates were removed": {
			sandbox: newSandbox(phase("Pending"), held(gated("False", "GatesRemoved", ""))), pod: newPod(),
			want: want{phase: "Pending", conditions: []metav1.Condition{gated("False", "GatesRemoved", ""), ready("PodReady", "")}},
		},
		"not scheduled, with no reason that a condition takes": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(unscheduled("no room", "full")),
			want: want{phase: "Pending", conditions: []metav1.Condition{ready("Unschedulable", "full")}},
		},
		"its node does not answer": {
			sandbox: newSandbox(running...), pod: newPod(runs("False"), func(p *corev1.Pod) {
				p.Status.Conditions[0].Reason, p.Status.Conditions[0].Message = "", ""
			}),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{
				ready("PodReady", "The pod is not ready and does not say why; node node may be unreachable"),
			}},
		},
		"its node is lost": {
			sandbox: newSandbox(running...), pod: newPod(runs("False"), func(p *corev1.Pod) {
				p.Status.Reason, p.Status.Message = "NodeLost", "Node node is unresponsive"
				p.Status.Conditions[0].Reason, p.Status.Conditions[0].Message = "", ""
			}),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{ready("NodeLost", "Node node is unresponsive")}},
		},
		"preempted, and failed at once": {
			sandbox: newSandbox(running...), pod: newPod(podPhase("Failed"), func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.DisruptionTarget, Status: "True", Reason: "PreemptionByScheduler", Message: "preempting",
				}}
			}),
			want: want{phase: "Failed", message: "Pod status phase is Failed", nodeOnly: true, conditions: []metav1.Condition{
				ready("PreemptionByScheduler", "preempting"),
			}},
		},
		"scheduled after all": {
			sandbox: newSandbox(phase("Pending"), held(ready("Unschedulable", "0/4 nodes"))), pod: newPod(),
			want: want{phase: "Pending", conditions: []metav1.Condition{ready("PodReady", "")}},
		},
		"no image": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(waits("ErrImagePull", "not found")),
			want: want{phase: "Pending", conditions: []metav1.Condition{ready("StartContainerFailed", "not found")}},
		},
		"no image, in few words": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(waits("ImagePullBackOff", "")),
			want: want{phase: "Pending", conditions: []metav1.Condition{ready("StartContainerFailed", "ImagePullBackOff")}},
		},
		"runs": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(runs("True")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady}},
		},
		"runs after trouble": {
			sandbox: newSandbox(phase("Pending"), held(ready("StartContainerFailed", "x"))), pod: newPod(runs("True")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady}},
		},
		"runs, not ready": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(runs("False")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{ready("PodReady", "ContainersNotReady: containers with unready status: [c]")}},
		},
		"runs without an address": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(runs("True"), func(p *corev1.Pod) { p.Status.PodIP = "" }),
			want: want{phase: "Pending", conditions: []metav1.Condition{ready("PodReady", "")}},
		},
		"deleted before it ran": {sandbox: newSandbox(phase("Pending")), pod: newPod(terminating), want: want{phase: "Pending", conditions: []metav1.Condition{ready("PodReady", "")}}},
		"failed before it ran": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(podPhase("Failed")),
			want: want{phase: "Failed", message: "Pod status phase is Failed", conditions: []metav1.Condition{ready("PodFailed", "")}},
		},
		"done before it was seen to run": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(podPhase("Succeeded")),
			want: want{phase: "Succeeded", message: "Pod status phase is Succeeded", conditions: []metav1.Condition{ready("PodSucceeded", "")}},
		},
		"a pod in the way": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(foreign),
			want: want{mismatch: true, phase: "Pending", conditions: []metav1.Condition{
				ready("PodCreateFailed", "Pod ns/box is not this sandbox's, its controller is Sandbox box (older); waiting until it is gone"),
			}},
		},
		"a pod without an owner in the way": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(func(p *corev1.Pod) { p.OwnerReferences = nil }),
			want: want{mismatch: true, phase: "Pending", conditions: []metav1.Condition{
				ready("PodCreateFailed", "Pod ns/box is not this sandbox's, it has no controller; waiting until it is gone"),
			}},
		},

		// The life.
		"nothing new": {sandbox: newSandbox(running...), pod: newPod(runs("True")), want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady}}},
		"not ready any more": {
			sandbox: newSandbox(running...), pod: newPod(runs("False")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{ready("PodReady", "ContainersNotReady: containers with unready status: [c]")}},
		},
		"crashes": {
			sandbox: newSandbox(running...), pod: newPod(runs("False"), waits("CrashLoopBackOff", "back-off 10s")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{ready("StartContainerFailed", "back-off 10s")}},
		},
		"one container waits, the pod is ready all the same": {
			sandbox: newSandbox(running...), pod: newPod(runs("True"), waits("CrashLoopBackOff", "back-off 10s")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady}},
		},
		"other metadata": {
			sandbox: newSandbox(running...), pod: newPod(runs("True"), func(p *corev1.Pod) { p.Labels[v1alpha1.LabelPodTemplateHash] = "before" }),
			want: want{action: actionLabel, phase: "Running", addressed: true, conditions: []metav1.Condition{isReady}},
		},
		"other metadata, not running yet": {
			sandbox: newSandbox(phase("Pending")), pod: newPod(func(p *corev1.Pod) { p.Labels = nil }),
			want: want{action: actionLabel, phase: "Pending", conditions: []metav1.Condition{ready("PodReady", "")}},
		},
		"phase of a later version": {
			sandbox: newSandbox(phase("Upgrading")), pod: newPod(runs("True")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady}},
		},

		// The end.
		"gone, as the cache says": {sandbox: newSandbox(running...), want: want{action: actionReadFromServer, phase: "Running", addressed: true, conditions: []metav1.Condition{isReady}}},
		"gone": {
			sandbox: newSandbox(running...), given: observation{isFromServer: true},
			want: want{phase: "Failed", message: "Pod Not Found", nodeOnly: true, conditions: []metav1.Condition{ready("PodDeleted", goneMessage)}},
		},
		"another in its place, as the cache says": {
			sandbox: newSandbox(running...), pod: newPod(foreign),
			want: want{action: actionReadFromServer, phase: "Running", addressed: true, conditions: []metav1.Condition{isReady}},
		},
		"another in its place": {
			sandbox: newSandbox(running...), pod: newPod(foreign), given: observation{isFromServer: true},
			want: want{phase: "Failed", message: "Pod Not Found", nodeOnly: true, conditions: []metav1.Condition{ready("PodDeleted", goneMessage)}},
		},
		"another of its own, as the cache says": {
			sandbox: newSandbox(running...), pod: newPod(runs("True"), second),
			want: want{action: actionReadFromServer, phase: "Running", addressed: true, conditions: []metav1.Condition{isReady}},
		},
		"another of its own": {
			sandbox: newSandbox(running...), pod: newPod(runs("True"), second), given: observation{isFromServer: true},
			want: want{phase: "Failed", message: "Pod Not Found", nodeOnly: true, conditions: []metav1.Condition{ready("PodDeleted", goneMessage)}},
		},
		"another of its own, being deleted": {
			sandbox: newSandbox(running...), pod: newPod(runs("True"), second, terminating), given: observation{isFromServer: true},
			want: want{phase: "Failed", message: "Pod Not Found", nodeOnly: true, conditions: []metav1.Condition{ready("PodDeleted", goneMessage)}},
		},
		"being deleted by a user": {
			sandbox: newSandbox(running...), pod: newPod(runs("True"), terminating),
			want: want{phase: "Failed", message: "Pod Not Found", nodeOnly: true, conditions: []metav1.Condition{ready("PodDeleted", "The pod is being deleted")}},
		},
		"being evicted": {
			sandbox: newSandbox(running...),
			pod: newPod(runs("True"), terminating, func(p *corev1.Pod) {
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
					Type: corev1.DisruptionTarget, Status: "True", Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
				})
			}),
			want: want{phase: "Failed", message: "Pod Not Found", nodeOnly: true, conditions: []metav1.Condition{
				ready("EvictionByEvictionAPI", "Eviction API: evicting"),
			}},
		},
		"evicted by its node": {
			sandbox: newSandbox(running...),
			pod: newPod(podPhase("Failed"), func(p *corev1.Pod) {
				p.Status.Reason, p.Status.Message = "Evicted", "The node was low on resource: memory."
			}),
			want: want{phase: "Failed", message: "Pod status phase is Failed", nodeOnly: true, conditions: []metav1.Condition{
				ready("Evicted", "The node was low on resource: memory."),
			}},
		},
		"evicted by its node, where its process ended well": {
			sandbox: newSandbox(running...),
			pod: newPod(podPhase("Succeeded"), restartsAlways, func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.DisruptionTarget, Status: "True", Reason: "TerminationByKubelet", Message: "The node was low on resource: memory.",
				}}
			}),
			want: want{phase: "Failed", message: "Pod status phase is Succeeded", nodeOnly: true, conditions: []metav1.Condition{
				ready("TerminationByKubelet", "The node was low on resource: memory."),
			}},
		},
		"ended, by the policy of its container": {
			sandbox: newSandbox(running...), pod: newPod(podPhase("Succeeded"), restartsAlways, endsByItself),
			want: want{phase: "Succeeded", message: "Pod status phase is Succeeded", nodeOnly: true, conditions: []metav1.Condition{ready("PodSucceeded", "")}},
		},
		"stopped, and its process ended well": {
			sandbox: newSandbox(running...), pod: newPod(podPhase("Succeeded"), restartsAlways),
			want: want{phase: "Failed", message: "Pod status phase is Succeeded", nodeOnly: true, conditions: []metav1.Condition{
				ready("PodFailed", "The containers of the pod were stopped"),
			}},
		},
		"done": {
			sandbox: newSandbox(running...), pod: newPod(podPhase("Succeeded")),
			want: want{phase: "Succeeded", message: "Pod status phase is Succeeded", nodeOnly: true, conditions: []metav1.Condition{ready("PodSucceeded", "")}},
		},

		// The pause.
		"pause": {
			sandbox: newSandbox(append(running, paused)...), pod: newPod(runs("True")),
			want: want{action: actionRemove, finalizer: true, phase: "Paused", addressed: true, conditions: []metav1.Condition{
				readyPaused, cond("SandboxPaused", no, "Pending", "The pod is being deleted"),
			}},
		},
		"pause, when it was refused": {
			sandbox: newSandbox(phase("Paused"), addressed, paused, held(readyPaused, cond("SandboxPaused", no, "Pending", "a webhook says no"))), pod: newPod(runs("True")),
			want: want{action: actionRemove, finalizer: true, phase: "Paused", addressed: true, conditions: []metav1.Condition{
				readyPaused, cond("SandboxPaused", no, "Pending", "a webhook says no"),
			}},
		},
		"pausing, when it is not refused any more": {
			sandbox: newSandbox(phase("Paused"), paused, held(readyPaused, cond("SandboxPaused", no, "Pending", "a webhook says no"))), pod: newPod(runs("True"), terminating),
			want: want{finalizer: true, phase: "Paused", conditions: []metav1.Condition{
				readyPaused, cond("SandboxPaused", no, "Pending", "The pod is being deleted"),
			}},
		},
		"paused, and a pod comes": {
			sandbox: newSandbox(phase("Paused"), paused, held(readyPaused, isPaused)), pod: newPod(),
			want: want{action: actionRemove, finalizer: true, phase: "Paused", conditions: []metav1.Condition{
				readyPaused, cond("SandboxPaused", no, "Pending", "The pod is being deleted"),
			}},
		},
		"pausing": {
			sandbox: newSandbox(phase("Paused"), paused), pod: newPod(runs("True"), terminating),
			want: want{finalizer: true, phase: "Paused", conditions: []metav1.Condition{
				readyPaused, cond("SandboxPaused", no, "Pending", "The pod is being deleted"),
			}},
		},
		"paused, as the cache says": {
			sandbox: newSandbox(phase("Paused"), addressed, paused, held(readyPaused)),
			want:    want{action: actionReadFromServer, finalizer: true, phase: "Paused", addressed: true, conditions: []metav1.Condition{readyPaused}},
		},
		"paused": {
			sandbox: newSandbox(phase("Paused"), addressed, paused, held(readyPaused, cond("SandboxPaused", no, "Pending", "x"))), given: observation{isFromServer: true},
			want: want{finalizer: true, phase: "Paused", conditions: []metav1.Condition{readyPaused, isPaused}},
		},
		"paused for good": {
			sandbox: newSandbox(phase("Paused"), paused, held(readyPaused, isPaused)),
			want:    want{finalizer: true, phase: "Paused", conditions: []metav1.Condition{readyPaused, isPaused}},
		},
		"pause before the start": {
			sandbox: newSandbox(phase("Pending"), paused), given: observation{isFromServer: true},
			want: want{finalizer: true, phase: "Paused", conditions: []metav1.Condition{readyPaused, isPaused}},
		},
		"pause while the pod is on its way": {
			sandbox: newSandbox(phase("Pending"), paused), given: observation{isPodExpected: true},
			want: want{action: actionReadFromServer, finalizer: true, phase: "Paused", conditions: []metav1.Condition{readyPaused}},
		},
		"pause with another's pod in the way": {
			sandbox: newSandbox(phase("Pending"), paused), pod: newPod(foreign), given: observation{isFromServer: true},
			want: want{finalizer: true, phase: "Paused", conditions: []metav1.Condition{readyPaused, isPaused}},
		},
		"pause while resuming": {
			sandbox: newSandbox(phase("Resuming"), paused, held(resumes)), pod: newPod(),
			want: want{action: actionRemove, finalizer: true, phase: "Paused", conditions: []metav1.Condition{
				readyPaused, cond("SandboxPaused", no, "Pending", "The pod is being deleted"),
			}},
		},

		// The way back.
		"resume before the pod is gone": {
			sandbox: newSandbox(phase("Paused"), held(readyPaused)), pod: newPod(terminating),
			want: want{finalizer: true, phase: "Paused", conditions: []metav1.Condition{
				readyPaused, cond("SandboxPaused", no, "Pending", "The pod is being deleted"),
			}},
		},
		"resume before the pod was deleted": {
			sandbox: newSandbox(phase("Paused"), held(readyPaused)), pod: newPod(runs("True")),
			want: want{action: actionRemove, finalizer: true, phase: "Paused", conditions: []metav1.Condition{
				readyPaused, cond("SandboxPaused", no, "Pending", "The pod is being deleted"),
			}},
		},
		"resume, as the cache says": {
			sandbox: newSandbox(phase("Paused"), held(readyPaused)),
			want:    want{action: actionReadFromServer, finalizer: true, phase: "Paused", conditions: []metav1.Condition{readyPaused}},
		},
		"resume": {
			sandbox: newSandbox(phase("Paused"), held(readyPaused, isPaused)),
			want:    want{action: actionCreate, finalizer: true, phase: "Resuming", conditions: []metav1.Condition{readyResumes, resumes}},
		},
		"resume at the very end of the pause": {
			sandbox: newSandbox(phase("Paused"), addressed, held(readyPaused, cond("SandboxPaused", no, "Pending", "x"))), given: observation{isFromServer: true},
			want: want{finalizer: true, phase: "Paused", conditions: []metav1.Condition{readyPaused, isPaused}}, goesOn: true,
		},
		"resuming, its pod is there": {
			sandbox: newSandbox(phase("Resuming"), held(readyResumes, resumes)), pod: newPod(),
			want: want{finalizer: true, phase: "Resuming", conditions: []metav1.Condition{readyResumes, resumes}},
		},
		"resuming, its pod is gone": {
			sandbox: newSandbox(phase("Resuming"), held(readyResumes, resumes)),
			want:    want{action: actionCreate, finalizer: true, phase: "Resuming", conditions: []metav1.Condition{readyResumes, resumes}},
		},
		"resuming, not ready": {
			sandbox: newSandbox(phase("Resuming"), held(readyResumes, resumes)), pod: newPod(runs("False")),
			want: want{finalizer: true, phase: "Resuming", conditions: []metav1.Condition{readyResumes, resumes}},
		},
		"resumed": {
			sandbox: newSandbox(phase("Resuming"), held(readyResumes, resumes)), pod: newPod(runs("True")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady, cond("SandboxResumed", yes, "CreatePod", "")}},
		},
		"resumed, the status tells of the pod before": {
			sandbox: newSandbox(phase("Resuming"), held(readyResumes, resumes), func(s *v1alpha1.Sandbox) { s.Status.PodInfo.PodUID = "before" }), pod: newPod(runs("True")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady, cond("SandboxResumed", yes, "CreatePod", "")}},
		},
		"resume, with a runtime": {
			sandbox: newSandbox(phase("Paused"), request, held(readyPaused, isPaused, isSetUp, isMounted)),
			want: want{action: actionCreate, finalizer: true, phase: "Resuming", conditions: []metav1.Condition{
				readyResumes, toBeSetUp, toBeMounted, resumes,
			}},
		},
		"resume, with a runtime that the claim sets up": {
			sandbox: newSandbox(phase("Paused"), request, held(readyPaused, isPaused, toBeSetUp), func(s *v1alpha1.Sandbox) {
				s.Annotations[v1alpha1.AnnotationStarting] = "true"
			}),
			want: want{action: actionCreate, finalizer: true, phase: "Resuming", conditions: []metav1.Condition{readyResumes, toBeSetUp, resumes}},
		},
		"its pod is ready, its runtime not": {
			sandbox: newSandbox(phase("Resuming"), request, held(readyResumes, toBeSetUp, resumes), since(now.Add(-time.Hour))), pod: newPod(runs("True")),
			want: want{finalizer: true, phase: "Resuming", addressed: true, conditions: []metav1.Condition{readySetup, toBeSetUp, resumes}},
		},
		"a runtime of a pod before does not count": {
			sandbox: newSandbox(phase("Resuming"), request, addressed, held(readySetup, isSetUp, resumes), func(s *v1alpha1.Sandbox) { s.Status.PodInfo.PodUID = "before" }),
			pod:     newPod(runs("True")),
			want:    want{finalizer: true, phase: "Resuming", addressed: true, conditions: []metav1.Condition{readySetup, toBeSetUp, resumes}},
		},
		"its runtime is being set up": {
			sandbox: newSandbox(phase("Resuming"), request, addressed, held(readySetup, toBeSetUp, resumes), since(now.Add(-59*time.Second))), pod: newPod(runs("True")),
			want: want{finalizer: true, phase: "Resuming", addressed: true, conditions: []metav1.Condition{readySetup, toBeSetUp, resumes}},
		},
		"its runtime was never set up": {
			sandbox: newSandbox(phase("Resuming"), request, addressed, held(readySetup, toBeSetUp, resumes), since(now.Add(-time.Minute))), pod: newPod(runs("True")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady, neverSetUp, hasResumed}},
		},
		"its volumes are being mounted": {
			sandbox: newSandbox(phase("Resuming"), request, addressed, held(readySetup, toBeSetUp, toBeMounted, resumes), since(now.Add(-time.Minute))), pod: newPod(runs("True")),
			want: want{finalizer: true, phase: "Resuming", addressed: true, conditions: []metav1.Condition{readySetup, toBeSetUp, toBeMounted, resumes}},
		},
		"its volumes were never mounted": {
			sandbox: newSandbox(phase("Resuming"), request, addressed, held(readySetup, toBeSetUp, toBeMounted, resumes), since(now.Add(-10*time.Minute))), pod: newPod(runs("True")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady, neverSetUp, neverMounted, hasResumed}},
		},
		"its runtime is set up": {
			sandbox: newSandbox(phase("Resuming"), request, addressed, held(readySetup, isSetUp, resumes)), pod: newPod(runs("True")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady, isSetUp, hasResumed}},
		},
		"its runtime cannot be set up": {
			sandbox: newSandbox(phase("Resuming"), request, addressed, held(readySetup, notSetUp, resumes)), pod: newPod(runs("True")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady, notSetUp, hasResumed}},
		},
		"its runtime is set up, and not ready any more": {
			sandbox: newSandbox(phase("Resuming"), request, addressed, held(readySetup, isSetUp, resumes)), pod: newPod(runs("False")),
			want: want{finalizer: true, phase: "Resuming", addressed: true, conditions: []metav1.Condition{readyResumes, isSetUp, resumes}},
		},
		"a container was restarted, so its runtime has no token": {
			sandbox: newSandbox(phase("Running"), request, addressed, counted(1), held(isReady, isSetUp), since(now.Add(-time.Hour))), pod: newPod(runs("True"), restarted(2)),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{readyRestarted, toBeSetUp}},
		},
		"a container was restarted, and is not ready": {
			sandbox: newSandbox(phase("Running"), request, addressed, counted(1), held(isReady, isSetUp)), pod: newPod(runs("False"), restarted(2)),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{
				ready("PodReady", "ContainersNotReady: containers with unready status: [c]"), toBeSetUp,
			}},
		},
		"a restarted runtime that failed before is set up again": {
			sandbox: newSandbox(phase("Running"), request, addressed, counted(1), held(isReady, notSetUp)), pod: newPod(runs("True"), restarted(2)),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{readyRestarted, toBeSetUp}},
		},
		"a restarted container is ready after a while": {
			sandbox: newSandbox(phase("Running"), request, addressed, counted(2), held(ready("PodReady", ""), toBeSetUp), since(now.Add(-time.Hour))), pod: newPod(runs("True"), restarted(2)),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{readyRestarted, toBeSetUp}},
		},
		"a restarted container is not ready for long": {
			sandbox: newSandbox(phase("Running"), request, addressed, counted(2), held(ready("PodReady", ""), toBeSetUp), since(now.Add(-time.Hour))), pod: newPod(runs("False"), restarted(2)),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{
				ready("PodReady", "ContainersNotReady: containers with unready status: [c]"), toBeSetUp,
			}},
		},
		"the first restart of a sandbox of an older version": {
			sandbox: newSandbox(phase("Running"), request, addressed, held(isReady, isSetUp)), pod: newPod(runs("True"), restarted(1)),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{readyRestarted, toBeSetUp}},
		},
		"its request was taken away after a restart": {
			sandbox: newSandbox(phase("Running"), addressed, counted(2), held(readyRestarted, toBeSetUp)), pod: newPod(runs("True"), restarted(2)),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady}},
		},
		"a container was restarted while it is resumed": {
			sandbox: newSandbox(phase("Resuming"), request, addressed, counted(1), held(readySetup, isSetUp, resumes)), pod: newPod(runs("True"), restarted(2)),
			want: want{finalizer: true, phase: "Resuming", addressed: true, conditions: []metav1.Condition{readySetup, toBeSetUp, resumes}},
		},
		"a restarted runtime is being set up": {
			sandbox: newSandbox(phase("Running"), request, addressed, counted(2), held(readyRestarted, toBeSetUp), since(now.Add(-59*time.Second))), pod: newPod(runs("True"), restarted(2)),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{readyRestarted, toBeSetUp}},
		},
		"a restarted runtime was never set up": {
			sandbox: newSandbox(phase("Running"), request, addressed, counted(2), held(readyRestarted, toBeSetUp), since(now.Add(-time.Minute))), pod: newPod(runs("True"), restarted(2)),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady, neverSetUp}},
		},
		"a restarted runtime is set up": {
			sandbox: newSandbox(phase("Running"), request, addressed, counted(2), held(readyRestarted, isSetUp)), pod: newPod(runs("True"), restarted(2)),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady, isSetUp}},
		},
		"a restart where no runtime is set up": {
			sandbox: newSandbox(phase("Running"), addressed, counted(1), held(isReady)), pod: newPod(runs("True"), restarted(2)),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady}},
		},
		"its pod goes before its runtime is set up": {
			sandbox: newSandbox(phase("Resuming"), request, addressed, held(readySetup, isSetUp, resumes)), pod: newPod(runs("True"), terminating),
			want: want{finalizer: true, phase: "Resuming", conditions: []metav1.Condition{readySetup, toBeSetUp, resumes}},
		},
		"its pod is gone before its runtime is set up": {
			sandbox: newSandbox(phase("Resuming"), request, addressed, held(readySetup, toBeSetUp, resumes)),
			want:    want{action: actionCreate, finalizer: true, phase: "Resuming", conditions: []metav1.Condition{readySetup, toBeSetUp, resumes}},
		},
		"its request was taken away": {
			sandbox: newSandbox(phase("Resuming"), addressed, held(readySetup, toBeSetUp, resumes)), pod: newPod(runs("True")),
			want: want{phase: "Running", addressed: true, conditions: []metav1.Condition{isReady, hasResumed}},
		},
		"failed while resuming": {
			sandbox: newSandbox(phase("Resuming"), held(readyResumes, resumes)), pod: newPod(podPhase("Failed")),
			want: want{phase: "Failed", message: "Pod status phase is Failed", conditions: []metav1.Condition{ready("PodFailed", ""), resumes}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := test.given
			o.sandbox, o.pod, o.revision, o.now = test.sandbox, test.pod, revision, now
			sandbox, pod := test.sandbox.DeepCopy(), test.pod.DeepCopy()
			p := decide(&o)
			got := want{
				action: p.action, finalizer: p.wantsFinalizer, mismatch: p.hasForeignPod,
				phase: p.status.Phase, message: p.status.Message, conditions: p.status.Conditions,
				addressed: p.status.SandboxIP == "10.0.0.1" && p.status.NodeName == "node" &&
					p.status.PodInfo.PodIP == "10.0.0.1" && p.status.PodInfo.NodeName == "node" && p.status.PodInfo.PodUID == types.UID("pod-uid"),
				nodeOnly: p.status.SandboxIP == "" && p.status.PodInfo.PodIP == "" && p.status.NodeName == "node" &&
					p.status.PodInfo.NodeName == "node" && p.status.PodInfo.PodUID == types.UID("pod-uid"),
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(want{}), cmpopts.EquateEmpty(),
				cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime", "ObservedGeneration")); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if p.status.ObservedGeneration != 3 || p.status.UpdateRevision != revision {
				t.Errorf("generation %d, revision %q", p.status.ObservedGeneration, p.status.UpdateRevision)
			}
			if !got.addressed && !got.nodeOnly && (p.status.SandboxIP != "" || p.status.NodeName != "" || p.status.PodInfo.PodIP != "") {
				t.Errorf("half an address: %+v", p.status)
			}
			if diff := cmp.Diff(sandbox, test.sandbox); diff != "" {
				t.Errorf("the sandbox changed (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(pod, test.pod); diff != "" {
				t.Errorf("the pod changed (-before +after):\n%s", diff)
			}
			// A plan that was carried out leads to no other write.
			if p.action == actionNone && !test.goesOn {
				after := test.sandbox.DeepCopy()
				after.Status = p.status
				o.sandbox = after
				if diff := cmp.Diff(p.status, decide(&o).status); diff != "" {
					t.Errorf("status the second time (-first +second):\n%s", diff)
				}
			}
		})
	}
}

// What has ended, or is being deleted, is left alone once its spec is observed.
func TestDecideLeavesAlone(t *testing.T) {
	for name, sandbox := range map[string]*v1alpha1.Sandbox{
		"failed":           newSandbox(phase("Failed")),
		"failed, paused":   newSandbox(phase("Failed"), paused),
		"succeeded":        newSandbox(phase("Succeeded")),
		"being deleted":    newSandbox(phase("Running"), func(s *v1alpha1.Sandbox) { s.DeletionTimestamp = new(metav1.NewTime(now)) }),
		"deleted, paused":  newSandbox(phase("Paused"), paused, func(s *v1alpha1.Sandbox) { s.DeletionTimestamp = new(metav1.NewTime(now)) }),
		"deleted, pending": newSandbox(phase("Pending"), func(s *v1alpha1.Sandbox) { s.DeletionTimestamp = new(metav1.NewTime(now)) }),
	} {
		sandbox.Status.ObservedGeneration = sandbox.Generation
		for _, pod := range []*corev1.Pod{nil, newPod(), newPod(runs("True")), newPod(foreign)} {
			o := observation{sandbox: sandbox, pod: pod, revision: revision, now: now}
			if diff := cmp.Diff(plan{status: sandbox.Status}, decide(&o), cmp.AllowUnexported(plan{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
}

// A condition that stays as it is keeps its time, and a new one has whole seconds,
// so that what is compared is what was stored.
func TestConditionTimes(t *testing.T) {
	o := observation{sandbox: newSandbox(phase("Pending")), pod: newPod(runs("True")), revision: revision, now: now.Add(300 * time.Millisecond)}
	first := decide(&o).status
	if got := first.Conditions[0].LastTransitionTime.Time; !got.Equal(now) {
		t.Errorf("since %s, want %s", got, now)
	}
	o.sandbox.Status = first
	o.now = now.Add(time.Hour)
	if diff := cmp.Diff(first, decide(&o).status); diff != "" {
		t.Errorf("an hour later (-before +after):\n%s", diff)
	}
}
