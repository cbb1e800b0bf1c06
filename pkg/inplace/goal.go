// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Goal is what of the pod template of a sandbox its pod is to be given exactly, beside
// that it is not to have less cpu and memory. It is in the sandbox's annotation
// AnnotationInplaceUpdate, and says nothing of images and amounts: these are in the
// template, which users cannot change.
type Goal struct {
	// Image says that the first container is to run the image of the template.
	Image bool `json:"image,omitempty"`
	// CPU says that the first container is to have exactly the cpu of the template, also
	// where it has more.
	CPU bool `json:"cpu,omitempty"`
	// Failed is why the pod will have less than the claim asks for, or may, as far as that
	// was known when the sandbox was bound.
	Failed string `json:"failed,omitempty"`
}

// Any reports whether anything is to be given exactly.
func (g Goal) Any() bool { return g.Image || g.CPU }

// exact is the name of the container that is to have exactly the cpu that the template
// says; empty if there is none.
func (g Goal) exact(want *corev1.PodSpec) string {
	if !g.CPU || len(want.Containers) == 0 {
		return ""
	}
	return want.Containers[0].Name
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
	if !g.Any() {
		return
	}
	raw, _ := json.Marshal(g) // of these fields it cannot fail
	if sb.Annotations == nil {
		sb.Annotations = map[string]string{}
	}
	sb.Annotations[v1alpha1.AnnotationInplaceUpdate] = string(raw)
}
