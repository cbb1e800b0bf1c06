// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Goal is what of the pod template of a sandbox its pod is to be given. It is in the
// sandbox's annotation AnnotationInplaceUpdate, and says nothing of images and amounts:
// these are in the template, which users cannot change. Without the annotation the pod is
// to have no less cpu and memory than the template says, as with Size alone.
type Goal struct {
	// Image says that the first container is to run the image of the template.
	Image bool `json:"image,omitempty"`
	// CPU says that the first container is to have exactly the cpu of the template, also
	// where it has more.
	CPU bool `json:"cpu,omitempty"`
	// Size says that all containers, except for that cpu, are to have no less than the
	// template says.
	Size bool `json:"size,omitempty"`
	// Failed is why the pod will have less than the claim asks for, or may, as far as that
	// was known when the sandbox was bound.
	Failed string `json:"failed,omitempty"`
	// Before is the patch, as JSON, that gives the template the resources again that it had before, for
	// when the pod does not get others: see TakeBack.
	Before string `json:"before,omitempty"`
}

// maxFailed bounds Failed, in bytes, so that a condition has all of it.
const maxFailed = 900

// Any reports whether a claim asks for an image or for cpu.
func (g Goal) Any() bool { return g.Image || g.CPU }

// targetOf is what a pod template says that a pod is to have, as far as that is the goal.
func (g Goal) targetOf(want *corev1.PodSpec) target {
	first := want.Containers[:min(len(want.Containers), 1)]
	to := target{PodSpec: want}
	if g.CPU && len(first) > 0 {
		to.exact = first[0].Name
	}
	switch {
	case !g.Any() || g.Size:
	case g.CPU:
		only := corev1.Container{Name: to.exact}
		cpuAlone(&only.Resources.Requests, first[0].Resources.Requests)
		cpuAlone(&only.Resources.Limits, first[0].Resources.Limits)
		to.PodSpec = &corev1.PodSpec{Containers: []corev1.Container{only}}
	default:
		to.PodSpec = &corev1.PodSpec{}
	}
	return to
}

func cpuAlone(to *corev1.ResourceList, from corev1.ResourceList) {
	put(to, corev1.ResourceCPU, amount(from, corev1.ResourceCPU))
}

// GoalOf is the goal that is written on a sandbox.
func GoalOf(sb *v1alpha1.Sandbox) Goal {
	var g Goal
	if err := json.Unmarshal([]byte(sb.Annotations[v1alpha1.AnnotationInplaceUpdate]), &g); err != nil {
		return Goal{}
	}
	return g
}

// write writes the goal on a sandbox, if there is any.
func (g Goal) write(sb *v1alpha1.Sandbox) {
	if !g.Any() && g.Before == "" {
		delete(sb.Annotations, v1alpha1.AnnotationInplaceUpdate)
		return
	}
	g.Failed = cut(g.Failed, maxFailed)
	raw, _ := json.Marshal(g) // of these fields it cannot fail
	if sb.Annotations == nil {
		sb.Annotations = map[string]string{}
	}
	sb.Annotations[v1alpha1.AnnotationInplaceUpdate] = string(raw)
}
