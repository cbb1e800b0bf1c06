// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubectl/pkg/util/qos"
)

// Progress is how far a resize is.
type Progress struct {
	// Step is what comes next.
	Step Step
	// Patch is the strategic merge patch of the pod's subresource resize that StepPatch
	// needs. It is refused where the pod is not the one that it was made for.
	Patch []byte
	// Message tells why it failed, and while it waits what the node says, if anything.
	Message string
}

// Step is what comes next in a resize.
type Step int

const (
	// StepPatch means that the pod is to be patched.
	StepPatch Step = iota
	// StepWait means that the node is about it.
	StepWait
	// StepDone means that the containers have what is wanted.
	StepDone
	// StepFailed means that the pod cannot have it, or that the node does not do it.
	StepFailed
)

// ProgressOf returns how far a pod is, whose containers are to have the resources that
// a pod template gives the containers of the same name:
//
//	the spec says less       StepFailed where the QoS class would change, else StepPatch
//	the node refused         StepFailed
//	the status says as much  StepDone
//	anything else            StepWait
func ProgressOf(pod *corev1.Pod, template *runtime.RawExtension) Progress {
	want, err := specOf(template)
	if err != nil {
		return Failed(err.Error())
	}
	after := pod.Spec.DeepCopy()
	var patch podPatch
	if !patch.raise(after, want) {
		return follow(pod, want)
	}
	if p, forbidden := changesClass(cmp.Or(pod.Status.QOSClass, classOf(&pod.Spec)), classOf(after)); forbidden {
		return p
	}
	patch.Metadata = &patchMetadata{ResourceVersion: pod.ResourceVersion}
	raw, err := json.Marshal(patch)
	if err != nil {
		return Failed(err.Error())
	}
	return Progress{Step: StepPatch, Patch: raw}
}

// Simulate returns how a resize from one pod template to another ends where there is no
// node that could have too little room. before is nil where it is not known.
func Simulate(before, after *runtime.RawExtension) Progress {
	if before == nil {
		return Progress{Step: StepDone}
	}
	have, err := specOf(before)
	if err != nil {
		return Failed(err.Error())
	}
	want, err := specOf(after)
	if err != nil {
		return Failed(err.Error())
	}
	if p, forbidden := changesClass(classOf(have), classOf(want)); forbidden {
		return p
	}
	return Progress{Step: StepDone}
}

// follow returns how far the node is with a resize that was asked for. A deferred one
// counts as refused, as it does in OpenKruise: when there will be room is not known.
// The node does it when there is, all the same.
func follow(pod *corev1.Pod, want *corev1.PodSpec) Progress {
	if pending := current(pod, corev1.PodResizePending); pending != nil {
		switch pending.Reason {
		case corev1.PodReasonInfeasible:
			return refused(infeasible, pending.Message)
		case corev1.PodReasonDeferred:
			return refused(infeasible+" for now, it is deferred", pending.Message)
		}
		return Progress{Step: StepWait, Message: pending.Message}
	}
	if running := current(pod, corev1.PodResizeInProgress); running != nil {
		return Progress{Step: StepWait, Message: running.Message}
	}
	if !given(pod.Status.ContainerStatuses, want.Containers, pod.Spec.Containers, false) ||
		!given(pod.Status.InitContainerStatuses, want.InitContainers, pod.Spec.InitContainers, true) {
		return Progress{Step: StepWait}
	}
	return Progress{Step: StepDone}
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

// given reports whether the containers have, by their statuses, what is wanted.
func given(statuses []corev1.ContainerStatus, want, containers []corev1.Container, sidecars bool) bool {
	for i := range containers {
		wanted := containerOf(want, containers[i].Name)
		if wanted == nil || sidecars && !isSidecar(&containers[i]) {
			continue
		}
		at := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == wanted.Name })
		if at < 0 || statuses[at].Resources == nil {
			return false
		}
		if more := raise(statuses[at].Resources.DeepCopy(), wanted.Resources); len(more.Requests)+len(more.Limits) > 0 {
			return false
		}
	}
	return true
}

func refused(what, why string) Progress {
	if why != "" {
		what += ": " + why
	}
	return Failed(what)
}

// changesClass reports whether a resize would change the QoS class, which a pod has
// for life, and what comes of that.
func changesClass(from, to corev1.PodQOSClass) (Progress, bool) {
	if from == to {
		return Progress{}, false
	}
	return Progress{Step: StepFailed, Message: fmt.Sprintf("%s from %s to %s, resize rejected", forbidden, from, to)}, true
}

func classOf(spec *corev1.PodSpec) corev1.PodQOSClass {
	return qos.ComputePodQOS(&corev1.Pod{Spec: *spec})
}
