// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// settingUpMessage is the message of a sandbox whose new pod is ready.
const settingUpMessage = "The agent-runtime of the new pod is being set up"

// restartedMessage is the message of a sandbox whose pod is ready after a container was restarted.
const restartedMessage = "A container was restarted, and its agent-runtime is being set up again"

// resume begins to resume a sandbox whose pause is complete.
func resume(o *observation, p *plan) {
	p.status.Phase = v1alpha1.SandboxResuming
	meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.SandboxConditionPaused)
	p.setCondition(o, v1alpha1.SandboxConditionResumed, metav1.ConditionFalse, v1alpha1.ReasonCreatePod, "")
	p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonPodReady, startingMessage(p.status.Phase))
	p.noteResumed(o)
	claims.BeginSetupAgain(o.sandbox, &p.status, o.now)
	run(o, p)
}

// awaitsRuntime reports whether a sandbox that is resumed, and whose pod is ready, has to
// wait for its agent-runtime. The API server that sets the runtime up needs the address, and its
// result is about the pod in the status. So a pod that is not in the status yet is put there, and
// the setup begins again.
func awaitsRuntime(o *observation, p *plan) bool {
	if p.status.Phase != v1alpha1.SandboxResuming {
		return p.status.Phase == v1alpha1.SandboxRunning && awaitsRestartedRuntime(o, p)
	}
	initialized := meta.FindStatusCondition(p.status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
	switch {
	case !claims.SetsUpAgain(o.sandbox):
		claims.BeginSetupAgain(o.sandbox, &p.status, o.now) // the request may have been taken away just now
		return false
	case initialized == nil || p.status.PodInfo.PodUID != o.pod.UID || p.status.PodInfo.PodIP != o.pod.Status.PodIP || o.hasRestarted(p):
		claims.BeginSetupAgain(o.sandbox, &p.status, o.now)
	case !claims.SetupPending(&p.status):
		return false
	}
	left := claims.SetupAgainLeft(&p.status, o.now)
	if left <= 0 {
		claims.EndSetupAgain(&p.status, claims.SetupOverdue(), o.now)
		return false
	}
	p.requeueAfter = left
	p.setPodInfo(o)
	p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonPodReady, settingUpMessage)
	return true
}

// awaitsRestartedRuntime reports whether a sandbox that runs has to wait for its agent-runtime, because
// a container was restarted: its agent-runtime may have no access token, and takes one from
// the first caller. It is set up when the pod is ready.
func awaitsRestartedRuntime(o *observation, p *plan) bool {
	pending := claims.SetupPending(&p.status)
	switch {
	case !claims.SetsUpAgain(o.sandbox):
		if pending {
			claims.BeginSetupAgain(o.sandbox, &p.status, o.now) // the request may have been taken away just now
		}
		return false
	case !pending && !o.hasRestarted(p):
		return false
	case !pending:
		claims.BeginSetupAgain(o.sandbox, &p.status, o.now)
	}
	p.setPodInfo(o)
	if status, reason, message := o.readiness(); status != metav1.ConditionTrue {
		p.setReady(o, status, reason, message)
		return true
	}
	if !hasReason(p.status.Conditions, v1alpha1.SandboxConditionReady, v1alpha1.ReasonRuntimeRestarted) {
		claims.BeginSetupAgain(o.sandbox, &p.status, o.now) // its time counts from when the pod is ready
	}
	left := claims.SetupAgainLeft(&p.status, o.now)
	if left <= 0 {
		claims.EndSetupAgain(&p.status, claims.SetupOverdue(), o.now)
		return false
	}
	p.requeueAfter = left
	p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonRuntimeRestarted, restartedMessage)
	return true
}

// hasRestarted reports whether containers of the pod were restarted since the status was written. A
// status without a count was written when none was.
func (o *observation) hasRestarted(p *plan) bool {
	return p.status.PodInfo.PodUID == o.pod.UID && ptr.Deref(p.status.PodInfo.RestartCount, 0) != restartsOf(o.pod)
}

// forgetLostPod takes the address of a pod that ended before the sandbox was resumed out
// of the status: it may be another pod's soon, which must not get what is for this one.
func forgetLostPod(o *observation, p *plan) {
	known := p.status.PodInfo.PodUID
	if p.status.Phase != v1alpha1.SandboxResuming || known == "" || livesAs(o.pod, o.sandbox) && o.pod.UID == known {
		return
	}
	forgetPod(p)
	claims.BeginSetupAgain(o.sandbox, &p.status, o.now)
}

// livesAs reports whether a pod is the sandbox's and is not being deleted.
func livesAs(pod *corev1.Pod, sandbox *v1alpha1.Sandbox) bool {
	return isOwned(sandbox, pod) && pod.DeletionTimestamp == nil
}
