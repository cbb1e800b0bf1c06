// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubectl/pkg/util/qos"
)

// changeable are the resources that a running pod can get more of.
var changeable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// Spec reads what a pod template says of resources: a pod spec with the names and
// the resources of the containers alone, as the API would have it. A request that
// is not there is the limit, as the API makes it in a pod.
func Spec(template *runtime.RawExtension) (*corev1.PodSpec, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	type container struct {
		Name          string                         `json:"name"`
		Resources     corev1.ResourceRequirements    `json:"resources"`
		RestartPolicy *corev1.ContainerRestartPolicy `json:"restartPolicy"`
	}
	var decoded struct {
		Spec struct {
			Containers     []container                  `json:"containers"`
			InitContainers []container                  `json:"initContainers"`
			Resources      *corev1.ResourceRequirements `json:"resources"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &decoded); err != nil {
		return nil, fmt.Errorf("resources of the pod template: %w", err)
	}
	convert := func(in []container) []corev1.Container {
		out := make([]corev1.Container, len(in))
		for i := range in {
			defaultRequests(&in[i].Resources)
			out[i] = corev1.Container{Name: in[i].Name, Resources: in[i].Resources, RestartPolicy: in[i].RestartPolicy}
		}
		return out
	}
	return &corev1.PodSpec{
		Containers:     convert(decoded.Spec.Containers),
		InitContainers: convert(decoded.Spec.InitContainers),
		Resources:      decoded.Spec.Resources,
	}, nil
}

func defaultRequests(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; ok {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = limit
	}
}

// Class is the QoS class of a pod of a spec.
func Class(spec *corev1.PodSpec) corev1.PodQOSClass {
	return qos.ComputePodQOS(&corev1.Pod{Spec: *spec})
}

// resized returns the containers of a pod as they are with the resources that are
// wanted, and those of them that get more in a form to patch the pod with. Init
// containers that are no sidecars are done, and left out.
func resized(have, want []corev1.Container, sidecars bool) (all []corev1.Container, changes []change) {
	all = make([]corev1.Container, len(have))
	for i := range have {
		all[i] = *have[i].DeepCopy()
		wanted := containerOf(want, have[i].Name)
		if wanted == nil || sidecars && !isSidecar(&have[i]) {
			continue
		}
		c := change{Name: have[i].Name}
		c.Resources.Requests = raise(&all[i].Resources.Requests, wanted.Resources.Requests)
		c.Resources.Limits = raise(&all[i].Resources.Limits, wanted.Resources.Limits)
		if len(c.Resources.Requests)+len(c.Resources.Limits) > 0 {
			changes = append(changes, c)
		}
	}
	return all, changes
}

// raise gives a list the amounts that are wanted and returns those that it had not
// as much of.
func raise(have *corev1.ResourceList, want corev1.ResourceList) corev1.ResourceList {
	var changed corev1.ResourceList
	for _, name := range changeable {
		wanted, ok := want[name]
		if !ok {
			continue
		}
		if now, ok := (*have)[name]; ok && now.Cmp(wanted) >= 0 {
			continue
		}
		if *have == nil {
			*have = corev1.ResourceList{}
		}
		if changed == nil {
			changed = corev1.ResourceList{}
		}
		(*have)[name], changed[name] = wanted, wanted
	}
	return changed
}

func containerOf(containers []corev1.Container, name string) *corev1.Container {
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
