// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"cmp"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Verdict is what is to be done about a pod that is to be resized.
type Verdict struct {
	// Step is what comes next.
	Step Step
	// Patch is the strategic merge patch of the pod's subresource resize that Ask
	// needs. It is refused where the pod is not the one that was judged.
	Patch []byte
	// Message tells why it failed, and of Wait what the node says of it, if anything.
	Message string
}

// Step is what comes next in a resize.
type Step int

const (
	// Ask means that the pod is to be patched.
	Ask Step = iota
	// Wait means that the node is about it.
	Wait
	// Done means that the containers have what is wanted.
	Done
	// Refuse means that the pod cannot have it, because of its QoS class.
	Refuse
	// Fail means that the node does not do it.
	Fail
)

// change is what a patch says of a container.
type change struct {
	Name      string                      `json:"name"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

// Judge says what comes next for a pod, whose containers are to have the resources
// that want gives them, container by container of the same name:
//
//	the spec says less       Refuse where the QoS class would change, else Ask
//	the node refused         Fail
//	the status says as much  Done
//	anything else            Wait
func Judge(pod *corev1.Pod, want *corev1.PodSpec) (Verdict, error) {
	after := pod.Spec
	var asked struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Spec struct {
			Containers     []change `json:"containers,omitempty"`
			InitContainers []change `json:"initContainers,omitempty"`
		} `json:"spec"`
	}
	after.Containers, asked.Spec.Containers = resized(pod.Spec.Containers, want.Containers, false)
	after.InitContainers, asked.Spec.InitContainers = resized(pod.Spec.InitContainers, want.InitContainers, true)
	if len(asked.Spec.Containers)+len(asked.Spec.InitContainers) == 0 {
		return follow(pod, want), nil
	}
	from := cmp.Or(pod.Status.QOSClass, Class(&pod.Spec))
	if to := Class(&after); from != to {
		return Verdict{Step: Refuse, Message: Forbidden(from, to)}, nil
	}
	asked.Metadata.ResourceVersion = pod.ResourceVersion
	patch, err := json.Marshal(asked)
	if err != nil {
		return Verdict{}, fmt.Errorf("making the patch that resizes Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return Verdict{Step: Ask, Patch: patch}, nil
}

// follow says how far the node is with a resize that was asked for. A deferred one
// counts as refused, as it does in OpenKruise: nobody knows when there is room. The
// node does it when there is, all the same.
func follow(pod *corev1.Pod, want *corev1.PodSpec) Verdict {
	if pending := current(pod, corev1.PodResizePending); pending != nil {
		switch pending.Reason {
		case corev1.PodReasonInfeasible:
			return Verdict{Step: Fail, Message: failed(infeasible, pending.Message)}
		case corev1.PodReasonDeferred:
			return Verdict{Step: Fail, Message: failed(infeasible+" for now, it is deferred", pending.Message)}
		}
		return Verdict{Step: Wait, Message: pending.Message}
	}
	if running := current(pod, corev1.PodResizeInProgress); running != nil {
		return Verdict{Step: Wait, Message: running.Message}
	}
	if !given(pod.Status.ContainerStatuses, want.Containers, pod.Spec.Containers, false) ||
		!given(pod.Status.InitContainerStatuses, want.InitContainers, pod.Spec.InitContainers, true) {
		return Verdict{Step: Wait}
	}
	return Verdict{Step: Done}
}

// current returns a condition that is true of the pod as it is specified now. One
// that a node has observed of an earlier spec is about an earlier resize.
func current(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == kind && c.Status == corev1.ConditionTrue && (c.ObservedGeneration == 0 || c.ObservedGeneration >= pod.Generation) {
			return c
		}
	}
	return nil
}

// given says whether the containers have what is wanted, or more.
func given(statuses []corev1.ContainerStatus, want, containers []corev1.Container, sidecars bool) bool {
	for i := range want {
		container := containerOf(containers, want[i].Name)
		if container == nil || sidecars && !isSidecar(container) {
			continue
		}
		status := statusOf(statuses, want[i].Name)
		if status == nil || status.Resources == nil ||
			!has(status.Resources.Requests, want[i].Resources.Requests) || !has(status.Resources.Limits, want[i].Resources.Limits) {
			return false
		}
	}
	return true
}

func has(have, want corev1.ResourceList) bool {
	for _, name := range changeable {
		wanted, ok := want[name]
		if !ok {
			continue
		}
		if now, ok := have[name]; !ok || now.Cmp(wanted) < 0 {
			return false
		}
	}
	return true
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

func failed(what, why string) string {
	if why != "" {
		what += ": " + why
	}
	return v1alpha1.ResizeFailedMessage(what)
}
