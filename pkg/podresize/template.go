// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podresize

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var errNotAnObject = errors.New("not an object")

// PatchesResources reports whether a patch of a pod template may change the resources
// of its containers. A patch that replaces parts as a whole, or cannot be read, may.
func PatchesResources(patch *runtime.RawExtension) bool {
	var change map[string]any
	err := decode(patch, &change)
	return err != nil || change == nil || patchesResources(change)
}

func patchesResources(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			if key == "resources" || key == "$patch" || key == "$retainKeys" || patchesResources(child) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, patchesResources)
	}
	return false
}

// specOf reads the resources in a pod template: a pod spec with the names and the
// resources of the containers alone. A request that is not there is the limit, as the
// API makes it in a pod.
func specOf(template *runtime.RawExtension) (*corev1.PodSpec, error) {
	type container struct {
		Name          string                         `json:"name"`
		Resources     corev1.ResourceRequirements    `json:"resources"`
		RestartPolicy *corev1.ContainerRestartPolicy `json:"restartPolicy"`
	}
	var decoded *struct {
		Spec struct {
			Containers     []container                  `json:"containers"`
			InitContainers []container                  `json:"initContainers"`
			Resources      *corev1.ResourceRequirements `json:"resources"`
		} `json:"spec"`
	}
	err := decode(template, &decoded)
	if err == nil && decoded == nil {
		err = errNotAnObject
	}
	if err != nil {
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
	spec := &corev1.PodSpec{
		Containers:     convert(decoded.Spec.Containers),
		InitContainers: convert(decoded.Spec.InitContainers),
		Resources:      decoded.Spec.Resources,
	}
	if spec.Resources != nil {
		defaultRequests(spec.Resources)
	}
	return spec, nil
}

func defaultRequests(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if amount(r.Requests, name) == nil {
			put(&r.Requests, name, &limit)
		}
	}
}

func decode(raw *runtime.RawExtension, into any) error {
	data, err := json.Marshal(raw) // a client may have sent CBOR
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
