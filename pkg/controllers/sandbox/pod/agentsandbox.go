// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// What is different for sandboxes of agent-sandbox (v1alpha1.OfAgentSandbox), and for those
// that are kept at their shutdownTime:
//
//	kept, and due                the pod goes, the sandbox stays, not ready: SandboxExpired;
//	                             one whose shutdownTime is moved gets another pod
//	Succeeded, Failed; paused    the pod goes, and the sandbox gets another when resumed
//	runs, pod gone               another pod is made
//	pause, a stranger's pod      the pause waits until it is gone
//	a stranger's volume claim    refused, unless its labels say that it may be taken
//	annotation with pod's name   there while there is, or is to be, a pod
//
// Suspended and Finished keep the times that the API of agent-sandbox shows.

const (
	// foreignRecheck is when to look again at a pod of another owner, of which there may
	// be no event.
	foreignRecheck = 15 * time.Second
	// expiryRecheck is after what time a sandbox that expires later is looked at again at
	// the latest: a wait does not see that the clock is set.
	expiryRecheck = 5 * time.Minute
	// expiredMessage is the message of a sandbox that was kept.
	expiredMessage = "The sandbox has expired"
)

// podNameAction is what becomes of the annotation with the name of a sandbox's pod.
type podNameAction int

const (
	// keepPodName: it stays as it is.
	keepPodName podNameAction = iota
	// setPodName: it names the pod.
	setPodName
	// dropPodName: there is none.
	dropPodName
)

// podNameActionFor returns what becomes of the annotation in a status. It is written before the
// status, so it is there when the sandbox is seen ready.
func (o *observation) podNameActionFor(status *v1alpha1.SandboxStatus) podNameAction {
	switch {
	case !v1alpha1.OfAgentSandbox(o.sandbox):
		return keepPodName
	case status.Phase == v1alpha1.SandboxPaused || status.Phase == v1alpha1.SandboxResuming || o.expired():
		return dropPodName
	case status.Phase == v1alpha1.SandboxPending || status.Phase == v1alpha1.SandboxRunning:
		return setPodName
	}
	return keepPodName
}

// needsWork reports whether something is to be done about a sandbox that has ended.
func (o *observation) needsWork() bool {
	if o.expired() {
		return !v1alpha1.SandboxExpired(o.sandbox) || o.sandbox.Status.PodInfo.PodUID != "" || o.ownsPod()
	}
	return v1alpha1.OfAgentSandbox(o.sandbox) && o.sandbox.Spec.Paused
}

// expired reports whether the sandbox is kept past its shutdownTime.
func (o *observation) expired() bool {
	return v1alpha1.KeptAtShutdown(o.sandbox) && v1alpha1.ShutdownDue(o.sandbox, o.now)
}

// untilExpiry is after what time to look whether the sandbox has expired; 0 is not at all.
func (o *observation) untilExpiry() time.Duration {
	if o.sandbox.Spec.ShutdownTime == nil || !v1alpha1.KeptAtShutdown(o.sandbox) || o.expired() {
		return 0
	}
	return min(o.sandbox.Spec.ShutdownTime.Sub(o.now), expiryRecheck)
}

// expire deletes the pod and keeps the sandbox, as a pause does. One that has ended stays
// in its phase.
func expire(o *observation, p *plan) {
	if hasEnded(p.status.Phase) {
		removeEnded(o, p)
	} else {
		pause(o, p)
	}
	p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonSandboxExpired, expiredMessage)
}

// removeEnded deletes the pod of a sandbox that has ended.
func removeEnded(o *observation, p *plan) {
	switch {
	case o.ownsPod():
		if o.pod.DeletionTimestamp == nil {
			p.action = actionRemove
		}
	case !o.isFromServer:
		p.action = actionReadFromServer
	default:
		forgetPod(p)
	}
}

// reportForeignPod reports in the status if a pod that a sandbox of agent-sandbox does not own has its
// name, when the sandbox is to be suspended. It returns whether that is so.
func reportForeignPod(o *observation, p *plan) bool {
	if o.pod == nil || !o.sandbox.Spec.Paused || o.expired() || !v1alpha1.OfAgentSandbox(o.sandbox) {
		return false
	}
	p.setCondition(o, v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonPodNotOwned, mismatchMessage(o.pod))
	p.requeueAfter = foreignRecheck
	return true
}

// handleLostPod says what becomes of a sandbox that ran, and whose pod is gone or being deleted: in
// agent-sandbox it gets another one.
func handleLostPod(o *observation, p *plan) {
	if v1alpha1.OfAgentSandbox(o.sandbox) {
		startAgain(o, p)
		return
	}
	p.setEnded(o, v1alpha1.SandboxFailed, "Pod Not Found")
}

// startAgain takes the pod out of the status, and has another one made when there is none.
func startAgain(o *observation, p *plan) {
	message := goneMessage
	if !o.hasLostPod() {
		_, message = endOf(o.pod)
	}
	p.status.Phase, p.status.Message = v1alpha1.SandboxResuming, ""
	forgetPod(p)
	p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonPodDeleted, message)
	claims.BeginSetupAgain(o.sandbox, &p.status, o.now)
	if o.pod == nil {
		start(o, p)
	}
}

// startedAgain reports whether a sandbox is Resuming because it lost its pod, and not after
// a pause.
func (o *observation) startedAgain() bool {
	resumed := meta.FindStatusCondition(o.sandbox.Status.Conditions, v1alpha1.SandboxConditionResumed)
	return v1alpha1.OfAgentSandbox(o.sandbox) && (resumed == nil || resumed.Status == metav1.ConditionTrue)
}

// noteSuspended keeps when a sandbox of agent-sandbox was suspended.
func (p *plan) noteSuspended(o *observation) {
	if v1alpha1.OfAgentSandbox(o.sandbox) && o.sandbox.Spec.Paused {
		p.setSuspended(o, metav1.ConditionTrue, v1alpha1.ReasonPodTerminated)
	}
}

// noteResumed keeps when a sandbox was resumed that was suspended.
func (p *plan) noteResumed(o *observation) {
	if meta.FindStatusCondition(p.status.Conditions, v1alpha1.SandboxConditionSuspended) != nil {
		p.setSuspended(o, metav1.ConditionFalse, v1alpha1.ReasonNotSuspended)
	}
}

// setSuspended sets the condition Suspended. Its time advances with each change, also of
// two in one second, which is as exact as times are stored.
func (p *plan) setSuspended(o *observation, status metav1.ConditionStatus, reason string) {
	const conditionType = v1alpha1.SandboxConditionSuspended
	at := o.now.Truncate(time.Second)
	if last := meta.FindStatusCondition(p.status.Conditions, conditionType); last != nil && !at.After(last.LastTransitionTime.Time) {
		at = last.LastTransitionTime.Add(time.Second)
	}
	setCondition(&p.status, conditionType, status, reason, "", o.sandbox.Generation, at)
}

// noteFinished keeps when the pod of a sandbox of agent-sandbox ended. A claim may count
// from then on when it goes.
func (p *plan) noteFinished(o *observation) {
	if !v1alpha1.OfAgentSandbox(o.sandbox) {
		return
	}
	reason := v1alpha1.ReasonPodFailed
	if p.status.Phase == v1alpha1.SandboxSucceeded {
		reason = v1alpha1.ReasonPodSucceeded
	}
	p.setCondition(o, v1alpha1.SandboxConditionFinished, metav1.ConditionTrue, reason, "")
}

// mayUsePVC reports whether a sandbox may use a volume claim that has no controller. In
// agent-sandbox, labels say so.
func mayUsePVC(sandbox *v1alpha1.Sandbox, pvc metav1.Object) bool {
	labels := pvc.GetLabels()
	return !v1alpha1.OfAgentSandbox(sandbox) || labels[v1alpha1.AgentLabelAdoptable] == "true" ||
		labels[v1alpha1.AgentLabelNameHash] == v1alpha1.NameHash(sandbox.Name)
}
