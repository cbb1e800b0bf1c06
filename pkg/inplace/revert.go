// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// A resize that the node does not do is taken back in two places. The pod is asked to have what it
// has: the scheduler counts what it was asked to have, so that a node could look full for as long as
// the sandbox lives. The template of the sandbox says again what it said before: its next pod, after
// a pause, would not fit on any node.

// Reverting reports whether the pod of a sandbox is to be asked for what it has, and why.
func Reverting(sb *v1alpha1.Sandbox) (why string, is bool) {
	c := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
	if c == nil || c.Reason != v1alpha1.ReasonInplaceReverting {
		return "", false
	}
	return c.Message, true
}

// RevertPatch returns the patch of the pod's subresource resize that asks for what its containers
// have; nil if they are asked to have nothing else, or that cannot be known.
func RevertPatch(pod *corev1.Pod, template *runtime.RawExtension, goal Goal) []byte {
	want, err := specOf(template)
	if err != nil {
		return nil
	}
	patch := revert(pod, goal.targetOf(want))
	if patch.isEmpty() {
		return nil
	}
	patch.Metadata = &patchMetadata{ResourceVersion: pod.ResourceVersion}
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil
	}
	return raw
}

func revert(pod *corev1.Pod, want target) (patch podPatch) {
	patch.Spec.Containers = revertContainers(pod.Spec.Containers, pod.Status.ContainerStatuses, want.Containers, false)
	patch.Spec.InitContainers = revertContainers(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, want.InitContainers, true)
	return patch
}

// revertContainers returns the changes after which the containers of one of a pod's lists are asked
// to have what they have by their statuses, of the resources that were wanted.
func revertContainers(containers []corev1.Container, statuses []corev1.ContainerStatus, want []corev1.Container, sidecars bool) (changes []containerPatch) {
	for i := range containers {
		c := &containers[i]
		wanted, status := containerOf(want, c.Name), statusOf(statuses, c.Name)
		if wanted == nil || sidecars && !isSidecar(c) || status == nil || status.Resources == nil {
			continue
		}
		var back corev1.ResourceRequirements
		for _, name := range resizable {
			if amount(wanted.Resources.Requests, name) == nil {
				continue
			}
			putOther(&back.Requests, c.Resources.Requests, status.Resources.Requests, name)
			putOther(&back.Limits, c.Resources.Limits, status.Resources.Limits, name)
		}
		if len(back.Requests)+len(back.Limits) > 0 {
			changes = append(changes, containerPatch{Name: c.Name, Resources: &back})
		}
	}
	return changes
}

// putOther puts into list what a container has of a resource, if it is asked to have another amount.
func putOther(list *corev1.ResourceList, asked, has corev1.ResourceList, name corev1.ResourceName) {
	if a, b := amount(asked, name), amount(has, name); a != nil && b != nil && a.Cmp(*b) != 0 {
		put(list, name, b)
	}
}

// Before returns the strategic merge patch that undoes a change of the resources in a pod template;
// empty if there is nothing to undo, or a template cannot be read.
func Before(template, after *runtime.RawExtension) string {
	was, err := resourcesOf(template)
	is, afterErr := resourcesOf(after)
	if err != nil || afterErr != nil {
		return ""
	}
	spec := map[string]any{}
	for list, containers := range was {
		var changed []map[string]any
		for i, container := range containers {
			if i >= len(is[list]) || equality.Semantic.DeepEqual(container, is[list][i]) {
				continue // a claim adds no containers
			}
			resources := container.Resources
			if resources != nil {
				resources["$patch"] = "replace"
			}
			changed = append(changed, map[string]any{"name": container.Name, "resources": resources})
		}
		if changed != nil {
			spec[list] = changed
		}
	}
	if len(spec) == 0 {
		return ""
	}
	patch, _ := json.Marshal(map[string]any{"spec": spec}) // of what was JSON it cannot fail
	return string(patch)
}

// rawContainer is a container with its resources as they are written.
type rawContainer struct {
	Name      string         `json:"name"`
	Resources map[string]any `json:"resources"`
}

// resourcesOf returns the containers of a pod template, by the names of their lists.
func resourcesOf(template *runtime.RawExtension) (map[string][]rawContainer, error) {
	var decoded struct {
		Spec struct {
			Containers     []rawContainer `json:"containers"`
			InitContainers []rawContainer `json:"initContainers"`
		} `json:"spec"`
	}
	if err := decode(template, &decoded); err != nil {
		return nil, err
	}
	return map[string][]rawContainer{"containers": decoded.Spec.Containers, "initContainers": decoded.Spec.InitContainers}, nil
}

// TakeBack ends the update of a sandbox that comes to count: if its pod was not given other
// resources, the template has those again that it had before. It reports whether the template
// changed.
func TakeBack(sb *v1alpha1.Sandbox) (changed bool, err error) {
	goal := GoalOf(sb)
	before := goal.Before
	if before == "" {
		return false, nil
	}
	goal.Before = ""
	goal.write(sb)
	if !resizeFailed(sb, goal) {
		return false, nil
	}
	template, err := podtemplate.ApplyPatch(sb.Spec.Template, &runtime.RawExtension{Raw: []byte(before)})
	if err != nil {
		return false, fmt.Errorf("taking back the resize of sandbox %s/%s: %w", sb.Namespace, sb.Name, err)
	}
	sb.Spec.Template = template
	return true, nil
}

// resizeFailed reports whether the pod of a sandbox was not given the resources of its template. If
// only what was known at binding failed, it was given the rest.
func resizeFailed(sb *v1alpha1.Sandbox, goal Goal) bool {
	c := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonFailed &&
		(goal.Failed == "" || c.Message != Failed(goal.Failed).Message)
}
