// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// observation is what is known when a plan is made. decide changes nothing in it; readFromServer,
// inspect, resize and changeImage update it and decide again.
type observation struct {
	sandbox *v1alpha1.Sandbox
	// revision is the hash of the sandbox's template.
	revision string
	// pod is the one that has the sandbox's name, whatever its owner, or nil.
	pod *corev1.Pod
	// isFromServer: pod is what the server answered just now. A cache may be late.
	isFromServer bool
	// isPodExpected: a pod was created that the cache does not show yet.
	isPodExpected bool
	// isInBackoff: a new pod must wait, because the last try failed.
	isInBackoff bool
	// inplace is what is known for an update in place, nil before inspect.
	inplace *wholePod
	// nodes are those of the cluster; nil says nothing of them.
	nodes *knownNodes
	now   time.Time
}

// action is what is to be done about the pod.
type action int

const (
	// actionNone: nothing.
	actionNone action = iota
	// actionReadFromServer: what is known of the pod is not enough; ask the server and plan again.
	actionReadFromServer
	// actionInspect: the sandbox is changed in place; look at the whole pod and plan again.
	actionInspect
	// actionCreate: create the volume claims and the pod.
	actionCreate
	// actionLabel: give the pod the metadata that the sandbox wants by now.
	actionLabel
	// actionRemove: delete the pod.
	actionRemove
)

// plan is what is to be done.
type plan struct {
	action action
	// wantsFinalizer: the sandbox should have v1alpha1.FinalizerSandbox.
	wantsFinalizer bool
	// podNameAction is what becomes of the annotation with the pod's name.
	podNameAction podNameAction
	// status is what the status should be, provided that action succeeds.
	status v1alpha1.SandboxStatus
	// hasForeignPod: a pod that the sandbox does not own has its name.
	hasForeignPod bool
	// resize is the patch that asks for other resources, and image the one that asks for
	// another image, beside the action.
	resize, image []byte
	// requeueAfter is after what time to look again although nothing happens; 0 is not at all.
	requeueAfter time.Duration
}

// decide makes the plan for a sandbox:
//
//	being deleted        remove the finalizer; the pod is garbage collected
//	Succeeded, Failed    final, nothing more happens but what agentsandbox.go says
//	Recycling            remove the pod; back in its pool, create another (recycle.go)
//	kept past its end    remove the pod (agentsandbox.go)
//	spec.paused          remove the pod; when it is gone, Paused for good
//	Paused               likewise, and then on to Resuming
//	Pending, Resuming    create the pod, wait until it runs; resumed, until its
//	                     agent-runtime is set up (resume.go)
//	any other            follow the pod; without it, Failed, or Resuming for
//	                     agent-sandbox
func decide(o *observation) plan {
	phase := o.sandbox.Status.Phase
	switch {
	case o.sandbox.DeletionTimestamp != nil:
		return plan{status: o.sandbox.Status}
	case hasEnded(phase) && !o.needsWork():
		p := plan{status: *o.sandbox.Status.DeepCopy(), requeueAfter: o.untilExpiry()}
		claims.Observe(&p.status, o.sandbox.Generation)
		return p
	}
	p := plan{status: *o.sandbox.Status.DeepCopy()}
	p.status.UpdateRevision = o.revision
	if phase == "" {
		p.status.Phase = v1alpha1.SandboxPending
	}
	switch {
	case isRecycling(o.sandbox):
		recycleSandbox(o, &p)
	case o.expired():
		expire(o, &p)
	case o.sandbox.Spec.Paused:
		pause(o, &p)
	case phase == v1alpha1.SandboxPaused:
		// A pause is completed, and stored as that, before the sandbox is resumed: so it is
		// always clear which of two pods a status is about, and who watches sees each phase.
		if pause(o, &p); p.action == actionNone && isTrue(o.sandbox.Status.Conditions, v1alpha1.SandboxConditionPaused) {
			resume(o, &p)
		}
	default:
		run(o, &p)
	}
	if progress, aborted := inplace.Aborted(&p.status, inplace.GoalOf(o.sandbox)); aborted {
		p.setInplaceUpdate(o, progress)
	}
	completePlan(o, &p)
	return p
}

// completePlan adds what follows from the status, and when to look again.
func completePlan(o *observation, p *plan) {
	claims.Observe(&p.status, o.sandbox.Generation)
	p.wantsFinalizer = p.status.Phase == v1alpha1.SandboxPaused || p.status.Phase == v1alpha1.SandboxResuming
	p.podNameAction = o.podNameActionFor(&p.status)
	p.requeueAfter = queue.MinRequeue(o.untilExpiry(), p.requeueAfter, o.untilQuiet())
}

// pause deletes the pod.
func pause(o *observation, p *plan) {
	p.status.Phase, p.status.Message = v1alpha1.SandboxPaused, ""
	p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonPodReady, "The sandbox is paused")
	meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.SandboxConditionResumed)
	meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.SandboxConditionFinished)
	if o.ownsPod() {
		message := "The pod is being deleted"
		if o.pod.DeletionTimestamp == nil {
			p.action = actionRemove
			if last := meta.FindStatusCondition(p.status.Conditions, v1alpha1.SandboxConditionPaused); last != nil && last.Status == metav1.ConditionFalse {
				message = last.Message // why it was refused, until it is not
			}
		}
		p.setCondition(o, v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonPending, message)
		return
	}
	if isTrue(p.status.Conditions, v1alpha1.SandboxConditionPaused) {
		return // that the pod is gone was seen before
	}
	if !o.isFromServer {
		p.action = actionReadFromServer
		return
	}
	if reportForeignPod(o, p) {
		return
	}
	p.setCondition(o, v1alpha1.SandboxConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonStopPauseSucceed, "")
	p.noteSuspended(o)
	forgetPod(p) // the address may be another pod's by now
}

// forgetPod says that there is no pod.
func forgetPod(p *plan) {
	p.status.PodInfo, p.status.NodeName, p.status.SandboxIP = v1alpha1.PodInfo{}, "", ""
}

// markPickedUp records that the controller has picked the sandbox up, which sets wait for before
// they make more.
func (p *plan) markPickedUp(o *observation) {
	if meta.FindStatusCondition(p.status.Conditions, v1alpha1.SandboxConditionReady) == nil {
		p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonPodReady, startingMessage(p.status.Phase))
	}
}

// run creates the pod, if the sandbox is still to start, and follows it.
func run(o *observation, p *plan) {
	starting := isStartPhase(p.status.Phase)
	p.markPickedUp(o)
	forgetLostPod(o, p)
	switch {
	case starting && o.pod == nil:
		start(o, p)
	case starting && !o.ownsPod():
		p.hasForeignPod = true
		p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonPodCreateFailed, mismatchMessage(o.pod))
	case !starting && o.hasLostPod() && !o.isFromServer:
		p.action = actionReadFromServer
	case !starting && (o.hasLostPod() || o.pod.DeletionTimestamp != nil):
		handleLostPod(o, p)
	case o.pod.DeletionTimestamp != nil:
		// A user deleted it before it ran. Another one is created when it is gone.
	case o.pod.Status.Phase == corev1.PodFailed, wasStopped(o.pod):
		p.setEnded(o, v1alpha1.SandboxFailed, "Pod status phase is "+string(o.pod.Status.Phase))
	case o.pod.Status.Phase == corev1.PodSucceeded:
		p.setEnded(o, v1alpha1.SandboxSucceeded, "Pod status phase is Succeeded")
	default:
		syncFromPod(o, p, starting)
	}
}

// isStartPhase reports whether a sandbox in this phase gets a pod.
func isStartPhase(phase v1alpha1.SandboxPhase) bool {
	return phase == v1alpha1.SandboxPending || phase == v1alpha1.SandboxResuming || phase == v1alpha1.SandboxRecycling
}

// start creates the pod, unless the cache is about to show one, or the last try was a
// moment ago.
func start(o *observation, p *plan) {
	if o.isPodExpected || o.isInBackoff {
		return
	}
	p.action = actionCreate
	if waitsForTemplate(&p.status) {
		p.status.Message = ""
		p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonPodReady, startingMessage(p.status.Phase))
	}
	const conditionType = v1alpha1.SandboxConditionReady
	if hasReason(p.status.Conditions, conditionType, v1alpha1.ReasonPodCreateFailed) || hasReason(p.status.Conditions, conditionType, v1alpha1.ReasonPodDeleted) {
		p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonPodReady, startingMessage(p.status.Phase))
	}
}

// syncFromPod reports the state of a living pod in the status.
func syncFromPod(o *observation, p *plan, starting bool) {
	if podtemplate.PodMetadataOutdated(o.pod.Labels, o.revision) {
		p.action = actionLabel
	}
	p.setSchedulingGated(o)
	if starting && !o.hasStarted(p.status.Phase) {
		p.reportStartProblem(o)
		return
	}
	if awaitsRuntime(o, p) {
		return
	}
	if p.status.Phase == v1alpha1.SandboxResuming && !o.startedAgain() {
		p.setCondition(o, v1alpha1.SandboxConditionResumed, metav1.ConditionTrue, v1alpha1.ReasonCreatePod, "")
	}
	p.status.Phase, p.status.Message = v1alpha1.SandboxRunning, ""
	p.setPodInfo(o)
	if inplace.InProgress(o.sandbox) {
		updateInPlace(o, p)
		return
	}
	p.syncReadiness(o)
}

// syncReadiness makes the sandbox as ready as its pod.
func (p *plan) syncReadiness(o *observation) {
	status, reason, message := o.readiness()
	p.setReady(o, status, reason, message)
}

// hasStarted reports whether the pod is good enough for the sandbox to be Running. A
// sandbox that is resumed was in use, and one in use that runs without being ready counts
// as dead, so it stays Resuming until its pod is ready. One that is recycled is back only
// when it can be claimed.
func (o *observation) hasStarted(phase v1alpha1.SandboxPhase) bool {
	if o.pod.Status.Phase != corev1.PodRunning || o.pod.Status.PodIP == "" {
		return false
	}
	status, _, _ := o.readiness()
	mustBeReady := phase == v1alpha1.SandboxResuming || phase == v1alpha1.SandboxRecycling
	return !mustBeReady || status == metav1.ConditionTrue
}

// reportStartProblem reports what keeps a pod from starting, if anything does. The usual steps of a
// start are not worth a write.
func (p *plan) reportStartProblem(o *observation) {
	if reason, message, found := startProblem(o.pod); found {
		ready := meta.FindStatusCondition(p.status.Conditions, v1alpha1.SandboxConditionReady)
		if reason == v1alpha1.ReasonUnschedulable && ready.Reason == reason && sameWords(ready.Message, message) {
			message = ready.Message // a count that changes is not worth a write
		}
		p.setReady(o, metav1.ConditionFalse, reason, message)
	} else {
		p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonPodReady, startingMessage(p.status.Phase))
	}
}

// setSchedulingGated sets the condition SchedulingGated, on a sandbox whose pod has, or had, a
// scheduling gate.
func (p *plan) setSchedulingGated(o *observation) {
	const conditionType = v1alpha1.SandboxConditionSchedulingGated
	scheduled := podCondition(o.pod, corev1.PodScheduled)
	switch {
	case scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonSchedulingGated:
		p.setCondition(o, conditionType, metav1.ConditionTrue, v1alpha1.ReasonSchedulingGated, scheduled.Message)
	case isTrue(p.status.Conditions, conditionType):
		p.setCondition(o, conditionType, metav1.ConditionFalse, v1alpha1.ReasonGatesRemoved, "")
	}
}

// startingMessage is the message of a sandbox that starts without problems.
func startingMessage(phase v1alpha1.SandboxPhase) string {
	switch phase {
	case v1alpha1.SandboxResuming:
		return "The sandbox is being resumed"
	case v1alpha1.SandboxRecycling:
		return recycle.StartingMessage
	}
	return ""
}

// setEnded sets a final phase. The node and the UID of the pod stay, to look for its traces
// by. Its address goes: it may be another pod's soon.
func (p *plan) setEnded(o *observation, phase v1alpha1.SandboxPhase, message string) {
	p.status.Phase, p.status.Message = phase, message
	p.status.SandboxIP, p.status.PodInfo.PodIP = "", ""
	reason, detail := v1alpha1.ReasonPodDeleted, goneMessage
	if !o.hasLostPod() {
		reason, detail = endOf(o.pod)
	}
	p.setReady(o, metav1.ConditionFalse, reason, detail)
	p.noteFinished(o)
}

// refused returns the plan where the pod could not be created.
func (o *observation) refused(err error) plan {
	without := *o
	without.isInBackoff = true
	p := decide(&without)
	if err != nil {
		p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonPodCreateFailed, err.Error())
	}
	return p
}

// withoutTemplate returns the plan where the pod cannot be created for want of a
// template, or of a runtime.
func (o *observation) withoutTemplate(err templateError) plan {
	p := o.refused(nil)
	p.status.Message = report.Truncate(err.Error(), report.MaxNote)
	p.setReady(o, metav1.ConditionFalse, err.reason, err.Error())
	return p
}

// ownsPod reports whether there is a pod and it is this very sandbox's.
func (o *observation) ownsPod() bool { return isOwned(o.sandbox, o.pod) }

func isOwned(sandbox *v1alpha1.Sandbox, pod *corev1.Pod) bool {
	return pod != nil && metav1.IsControlledBy(pod, sandbox)
}

// hasLostPod reports whether the pod that the sandbox ran as is not there: there is none, or
// another one, which has nothing of what was in the first. While a sandbox starts,
// its pod may be any that it owns.
func (o *observation) hasLostPod() bool {
	known := o.sandbox.Status.PodInfo.PodUID
	return !o.ownsPod() || known != "" && known != o.pod.UID
}

func (p *plan) setReady(o *observation, status metav1.ConditionStatus, reason, message string) {
	p.setCondition(o, v1alpha1.SandboxConditionReady, status, reason, message)
}

func (p *plan) setCondition(o *observation, conditionType string, status metav1.ConditionStatus, reason, message string) {
	setCondition(&p.status, conditionType, status, reason, message, o.sandbox.Generation, o.now)
}

func hasEnded(phase v1alpha1.SandboxPhase) bool {
	return phase == v1alpha1.SandboxSucceeded || phase == v1alpha1.SandboxFailed
}
