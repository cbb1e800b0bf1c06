// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

const (
	// maxReason is how long a reason of a condition may be.
	maxReason = 1024
	// goneMessage is the message of a sandbox whose pod is gone without a trace.
	goneMessage = "The pod is gone: it was deleted, or its node was lost"
)

// setCondition sets a condition. One that is the same as before keeps its time.
func setCondition(
	status *v1alpha1.SandboxStatus, conditionType string, value metav1.ConditionStatus, reason, message string,
	generation int64, now time.Time,
) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:               conditionType,
		Status:             value,
		Reason:             reason,
		Message:            report.Truncate(message, report.MaxNote),
		ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), // as it is stored
	})
}

func isTrue(conditions []metav1.Condition, conditionType string) bool {
	return meta.IsStatusConditionTrue(conditions, conditionType)
}

func hasReason(conditions []metav1.Condition, conditionType, reason string) bool {
	condition := meta.FindStatusCondition(conditions, conditionType)
	return condition != nil && condition.Reason == reason
}

// waitsForTemplate reports whether a sandbox waits for its template, or for a runtime.
func waitsForTemplate(status *v1alpha1.SandboxStatus) bool {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.SandboxConditionReady)
	return ready != nil && (templates.IsReason(ready.Reason) || isRuntimeReason(ready.Reason))
}

// isRuntimeReason reports whether a reason of the condition Ready is about runtimes.
func isRuntimeReason(reason string) bool {
	return reason == v1alpha1.ReasonRuntimeNotFound || reason == v1alpha1.ReasonInvalidRuntime
}

// readinessOf returns the condition Ready of a pod as a sandbox shows it.
func readinessOf(pod *corev1.Pod) (metav1.ConditionStatus, string, string) {
	ready := podCondition(pod, corev1.PodReady)
	if ready != nil && ready.Status == corev1.ConditionTrue {
		return metav1.ConditionTrue, v1alpha1.ReasonPodReady, ""
	}
	if reason, message, found := containerProblem(pod); found {
		return metav1.ConditionFalse, reason, message
	}
	if ready == nil {
		return metav1.ConditionFalse, v1alpha1.ReasonPodReady, ""
	}
	return metav1.ConditionFalse, reasonOr(pod.Status.Reason, v1alpha1.ReasonPodReady), unreadyMessage(pod, ready)
}

// unreadyMessage says why a pod that runs is not ready.
func unreadyMessage(pod *corev1.Pod, ready *corev1.PodCondition) string {
	if said := joined(ready.Reason, ready.Message); said != "" {
		return said
	}
	// A kubelet gives a reason. Where the node is lost, the cluster changes the status alone.
	return cmp.Or(pod.Status.Message, fmt.Sprintf("The pod is not ready and does not say why; node %s may be unreachable", pod.Spec.NodeName))
}

// startProblem returns what keeps a pod from starting.
func startProblem(pod *corev1.Pod) (reason, message string, found bool) {
	if reason, message, found = containerProblem(pod); found {
		return reason, message, true
	}
	scheduled := podCondition(pod, corev1.PodScheduled)
	if scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		return reasonOr(scheduled.Reason, v1alpha1.ReasonUnschedulable), scheduled.Message, true
	}
	return "", "", false
}

// reasons are the texts that a condition takes as its reason.
var reasons = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// reasonOr returns the reason that a pod gives, or another where it gives none, or none
// that a condition takes.
func reasonOr(given, otherwise string) string {
	if len(given) > maxReason || !reasons.MatchString(given) {
		return otherwise
	}
	return given
}

// sameWords reports whether two messages differ in numbers at most, as the scheduler's do
// while nodes and other pods come and go. The first may have been truncated.
func sameWords(before, message string) bool {
	return withoutNumbers(before) == withoutNumbers(report.Truncate(message, report.MaxNote))
}

func withoutNumbers(text string) string { return numbers.ReplaceAllString(text, "0") }

var numbers = regexp.MustCompile(`[0-9]+`)

// containerProblem returns why a container waits, the first one that waits for something that may never come.
func containerProblem(pod *corev1.Pod) (reason, message string, found bool) {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if waiting := statuses[i].State.Waiting; inplace.Stuck(waiting) {
				return v1alpha1.ReasonStartContainerFailed, cmp.Or(waiting.Message, waiting.Reason), true
			}
		}
	}
	return "", "", false
}

// restartsOf returns how often containers of a pod were restarted. A container that starts again
// without its pod becoming unready is seen by nothing else.
func restartsOf(pod *corev1.Pod) int32 {
	var n int32
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			n += statuses[i].RestartCount
		}
	}
	return n
}

// wasStopped reports whether a pod with restartPolicy Always succeeded, none of whose containers has a
// policy of its own. They would have been started again, so something, such as an eviction, stopped the pod.
func wasStopped(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded && restartPolicyOf(&pod.Spec) == corev1.RestartPolicyAlways
}

// endOf returns why a pod ended, or is about to: as it says itself, as those say who
// disrupted it, or what is seen of it.
func endOf(pod *corev1.Pod) (reason, message string) {
	reason, message = v1alpha1.ReasonPodDeleted, "The pod is being deleted"
	switch pod.Status.Phase {
	case corev1.PodFailed:
		reason, message = v1alpha1.ReasonPodFailed, ""
	case corev1.PodSucceeded:
		reason, message = v1alpha1.ReasonPodSucceeded, ""
		if wasStopped(pod) {
			reason, message = v1alpha1.ReasonPodFailed, "The containers of the pod were stopped"
		}
	}
	if given := pod.Status.Reason; given != "" || pod.Status.Message != "" {
		return reasonOr(given, reason), cmp.Or(pod.Status.Message, message)
	}
	if target := podCondition(pod, corev1.DisruptionTarget); target != nil && target.Status == corev1.ConditionTrue {
		return reasonOr(target.Reason, reason), cmp.Or(target.Message, message)
	}
	return reason, message
}

func podCondition(pod *corev1.Pod, conditionType corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == conditionType {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// mismatchMessage returns who owns the pod that has the sandbox's name.
func mismatchMessage(pod *corev1.Pod) string {
	whose := "it has no controller"
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		whose = fmt.Sprintf("its controller is %s %s (%s)", owner.Kind, owner.Name, owner.UID)
	}
	return fmt.Sprintf("Pod %s/%s is not this sandbox's, %s; waiting until it is gone", pod.Namespace, pod.Name, whose)
}

func joined(reason, message string) string {
	switch {
	case reason == "":
		return message
	case message == "":
		return reason
	}
	return reason + ": " + message
}

// setPodInfo says where the sandbox is, and how often its containers were restarted.
func (p *plan) setPodInfo(o *observation) {
	p.status.NodeName, p.status.SandboxIP = o.pod.Spec.NodeName, o.pod.Status.PodIP
	p.status.PodInfo.NodeName, p.status.PodInfo.PodIP = o.pod.Spec.NodeName, o.pod.Status.PodIP
	restarts := restartsOf(o.pod)
	// A status of this pod without a count was written before the field existed. That no container was
	// restarted is no reason to write each sandbox of the cluster again.
	if restarts != 0 || p.status.PodInfo.RestartCount != nil || p.status.PodInfo.PodUID != o.pod.UID {
		p.status.PodInfo.RestartCount = &restarts
	}
	p.status.PodInfo.PodUID = o.pod.UID
}
