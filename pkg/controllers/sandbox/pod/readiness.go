// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

// quietAfterRestart is for how long a container that was restarted must run before a sandbox that no
// one uses yet is ready. Without a readiness probe a pod is ready as soon as its containers run, also
// where they end every second.
const quietAfterRestart = 10 * time.Second

// readiness returns the condition Ready of the sandbox by its pod, its node and its restarts.
func (o *observation) readiness() (status metav1.ConditionStatus, reason, message string) {
	if o.nodes.isGone(o.pod, o.now) {
		return metav1.ConditionFalse, v1alpha1.ReasonNodeLost, fmt.Sprintf("Node %s is gone from the cluster", o.pod.Spec.NodeName)
	}
	status, reason, message = readinessOf(o.pod)
	if status == metav1.ConditionTrue && o.untilQuiet() > 0 {
		return metav1.ConditionFalse, v1alpha1.ReasonContainerRestarted,
			fmt.Sprintf("A container was restarted; the sandbox is ready when it has run for %s", quietAfterRestart)
	}
	return status, reason, message
}

// untilQuiet returns after what time the last restart of a container no longer matters; 0 if it does
// not. A restart that is more than 10 s in the future, by a wrong clock of the node, is ignored. If a claim changes
// the image, the restart is asked for and is not waited for.
func (o *observation) untilQuiet() time.Duration {
	if o.pod == nil || !isPrepared(o.sandbox) || !v1alpha1.IsInPool(o.sandbox) && inplace.GoalOf(o.sandbox).Image {
		return 0
	}
	var left time.Duration
	for _, statuses := range [][]corev1.ContainerStatus{o.pod.Status.InitContainerStatuses, o.pod.Status.ContainerStatuses} {
		for i := range statuses {
			running := statuses[i].State.Running
			if statuses[i].RestartCount == 0 || running == nil {
				continue
			}
			if until := running.StartedAt.Add(quietAfterRestart).Sub(o.now); until <= 2*quietAfterRestart {
				left = max(left, until)
			}
		}
	}
	return left
}

// isPrepared reports whether a sandbox is still prepared for its user: it is in a pool, or starts for
// a claim.
func isPrepared(sandbox *v1alpha1.Sandbox) bool {
	return v1alpha1.IsInPool(sandbox) || sandbox.Annotations[v1alpha1.AnnotationStarting] == "true"
}
