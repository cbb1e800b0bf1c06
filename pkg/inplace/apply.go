// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

var errNoContainer = errors.New("it has no container with a name")

// Applied is a pod template with what a claim changes in place.
type Applied struct {
	// Template is the one that it was made from itself if nothing changes.
	Template *runtime.RawExtension
	// Goal is what changes.
	Goal Goal
	// Rejected is why the cpu stays as it is although the claim asks for another one: its
	// request would be above its limit. It names the field of the claim.
	Rejected field.ErrorList
}

// Apply puts image and cpu of a claim's inplaceUpdate, of which path is the field, into
// the first container of a pod template: the cpu only where the container has a request,
// or a limit, of its own. Everything else in the template stays. Nothing changes where
// wants is nil. An error means that the template cannot be read.
func Apply(have *runtime.RawExtension, wants *v1alpha1.SandboxClaimInplaceUpdateOptions, path *field.Path) (Applied, error) {
	as := Applied{Template: have}
	if wants == nil {
		return as, nil
	}
	first, err := firstOf(have)
	if err != nil {
		return as, err
	}
	var patch podPatch
	change := containerPatch{Name: first.Name}
	if wants.Image != "" && wants.Image != first.Image {
		change.Image, as.Goal.Image = wants.Image, true
	}
	if r := wants.Resources; r != nil {
		cpu := cpuOf(first.Resources, r)
		switch as.Rejected = aboveLimit(first.Resources, cpu, path.Child("resources")); {
		case len(as.Rejected) > 0:
		case len(cpu.Requests)+len(cpu.Limits) > 0:
			change.Resources, as.Goal.CPU = &cpu, true
		}
	}
	if !as.Goal.Any() {
		return as, nil
	}
	patch.Spec.Containers = []containerPatch{change}
	raw, err := json.Marshal(patch)
	if err != nil {
		return as, err
	}
	template, err := podtemplate.ApplyPatch(have, &runtime.RawExtension{Raw: raw})
	if err != nil {
		return Applied{Template: have}, err
	}
	as.Template = template
	return as, nil
}

// cpuOf is what of the cpu of a container changes, which has these resources.
func cpuOf(have corev1.ResourceRequirements, wants *v1alpha1.SandboxClaimInplaceUpdateResources) (changes corev1.ResourceRequirements) {
	for _, list := range []struct {
		have, want corev1.ResourceList
		change     *corev1.ResourceList
	}{{have.Requests, wants.Requests, &changes.Requests}, {have.Limits, wants.Limits, &changes.Limits}} {
		has, want := amount(list.have, corev1.ResourceCPU), amount(list.want, corev1.ResourceCPU)
		if has != nil && want != nil && has.Cmp(*want) != 0 {
			put(list.change, corev1.ResourceCPU, want)
		}
	}
	return changes
}

// aboveLimit is what is wrong with a change of the cpu of a container: that it makes the
// request larger than the limit. path is the field of the resources.
func aboveLimit(have, changes corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	after := func(change, have corev1.ResourceList) *resource.Quantity {
		if q := amount(change, corev1.ResourceCPU); q != nil {
			return q
		}
		return amount(have, corev1.ResourceCPU)
	}
	request, limit := after(changes.Requests, have.Requests), after(changes.Limits, have.Limits)
	if len(changes.Requests)+len(changes.Limits) == 0 || request == nil || limit == nil || request.Cmp(*limit) <= 0 {
		return nil
	}
	if amount(changes.Requests, corev1.ResourceCPU) == nil {
		return field.ErrorList{field.Invalid(path.Child("limits").Key("cpu"), limit.String(),
			fmt.Sprintf("must not be less than the cpu that the first container requests, %s", request))}
	}
	return field.ErrorList{field.Invalid(path.Child("requests").Key("cpu"), request.String(),
		fmt.Sprintf("must not be more than the cpu limit of the first container, %s", limit))}
}

// templateContainer is what of a container of a pod template matters here, as it is written.
type templateContainer struct {
	Name          string                         `json:"name"`
	Image         string                         `json:"image"`
	Resources     corev1.ResourceRequirements    `json:"resources"`
	RestartPolicy *corev1.ContainerRestartPolicy `json:"restartPolicy"`
}

// firstOf is the first container of a pod template.
func firstOf(template *runtime.RawExtension) (*templateContainer, error) {
	var decoded *struct {
		Spec struct {
			Containers []templateContainer `json:"containers"`
		} `json:"spec"`
	}
	err := decode(template, &decoded)
	switch {
	case err != nil:
	case decoded == nil:
		err = errNotAnObject
	case len(decoded.Spec.Containers) == 0 || decoded.Spec.Containers[0].Name == "":
		err = errNoContainer
	}
	if err != nil {
		return nil, fmt.Errorf("first container of the pod template: %w", err)
	}
	return &decoded.Spec.Containers[0], nil
}
