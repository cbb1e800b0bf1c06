// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// resizable are the resources that a running container can be given more of.
var resizable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// errPodLevel is why nothing is raised where the pod as a whole has less.
var errPodLevel = errors.New("what the containers of a pod share cannot be raised")

// Raise makes the containers and sidecars of have as large as those of the same name
// in want. Everything else in have stays. Where that keeps the pod smaller, because it
// has resources as a whole, it is an error.
//
// template is have itself if nothing changes.
func Raise(have, want *runtime.RawExtension) (template *runtime.RawExtension, changed bool, err error) {
	from, err := specOf(have)
	if err != nil {
		return nil, false, fmt.Errorf("the template to raise: %w", err)
	}
	to, err := specOf(want)
	if err != nil {
		return nil, false, fmt.Errorf("the template to raise it to: %w", err)
	}
	whole := ptr.Deref(from.Resources, corev1.ResourceRequirements{})
	more := raise(&whole, ptr.Deref(to.Resources, corev1.ResourceRequirements{}), false)
	for _, name := range resizable {
		if amount(more.Requests, name) != nil {
			return nil, false, fmt.Errorf("pod: %s: %w", name, errPodLevel)
		}
	}
	var patch podPatch
	if !patch.raise(from, target{PodSpec: to}) {
		return have, false, nil
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, false, err
	}
	template, err = podtemplate.ApplyPatch(have, &runtime.RawExtension{Raw: raw})
	return template, err == nil, err
}

// target is what the containers of a pod are to have.
type target struct {
	*corev1.PodSpec
	// exact is the name of the container that is to have exactly the cpu that it says.
	exact string
}

// podPatch is a strategic merge patch of the containers of a pod or a pod template.
type podPatch struct {
	Metadata *patchMetadata `json:"metadata,omitempty"`
	Spec     struct {
		Containers     []containerPatch `json:"containers,omitempty"`
		InitContainers []containerPatch `json:"initContainers,omitempty"`
	} `json:"spec"`
}

type patchMetadata struct {
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

type containerPatch struct {
	Name      string                       `json:"name"`
	Image     string                       `json:"image,omitempty"`
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// raise raises have, which is changed, to want, puts the same change into the patch,
// and reports whether there is any.
func (p *podPatch) raise(have *corev1.PodSpec, want target) bool {
	p.Spec.Containers = raiseContainers(have.Containers, want.Containers, want.exact, false)
	p.Spec.InitContainers = raiseContainers(have.InitContainers, want.InitContainers, "", true)
	return !p.isEmpty()
}

func (p *podPatch) isEmpty() bool { return len(p.Spec.Containers)+len(p.Spec.InitContainers) == 0 }

// raiseContainers raises the containers of one of a pod's lists. Init containers that
// are not sidecars have ended, or end before the pod runs, and stay as they are.
func raiseContainers(have, want []corev1.Container, exact string, sidecars bool) (changes []containerPatch) {
	for i := range have {
		wanted := containerOf(want, have[i].Name)
		if wanted == nil || sidecars && !isSidecar(&have[i]) {
			continue
		}
		if more := raise(&have[i].Resources, wanted.Resources, wanted.Name == exact); len(more.Requests)+len(more.Limits) > 0 {
			changes = append(changes, containerPatch{Name: have[i].Name, Resources: &more})
		}
	}
	return changes
}

// raise gives have what want has more of, and returns the requests and the limits of
// those resources as they are then:
//
//  1. What want requests have requests, also where it had no request.
//  2. Where have has no limit it needs none. A limit goes up to want's, and up to the
//     new request.
//  3. What is not below want's stays as it is.
//
// Where exact says so the cpu becomes what want says, be it more or less.
func raise(have *corev1.ResourceRequirements, want corev1.ResourceRequirements, exact bool) (changes corev1.ResourceRequirements) {
	for _, name := range resizable {
		if exact && name == corev1.ResourceCPU {
			set(have, want, name, &changes)
			continue
		}
		request, more := larger(amount(have.Requests, name), amount(want.Requests, name))
		limit := amount(have.Limits, name)
		if limit != nil {
			for _, least := range []*resource.Quantity{amount(want.Limits, name), request} {
				var above bool
				limit, above = larger(limit, least)
				more = more || above
			}
		}
		if more {
			for _, r := range []*corev1.ResourceRequirements{have, &changes} {
				put(&r.Requests, name, request)
				put(&r.Limits, name, limit)
			}
		}
	}
	return changes
}

// set makes a resource of have what want says of it, and tells in changes what request
// and limit are then, if they change. Where have has no limit it gets none.
func set(have *corev1.ResourceRequirements, want corev1.ResourceRequirements, name corev1.ResourceName, changes *corev1.ResourceRequirements) {
	request, limit := amount(have.Requests, name), amount(have.Limits, name)
	other := false
	if to := amount(want.Requests, name); to != nil && (request == nil || request.Cmp(*to) != 0) {
		request, other = to, true
	}
	if to := amount(want.Limits, name); to != nil && limit != nil && limit.Cmp(*to) != 0 {
		limit, other = to, true
	}
	if !other {
		return
	}
	for _, r := range []*corev1.ResourceRequirements{have, changes} {
		put(&r.Requests, name, request)
		put(&r.Limits, name, limit)
	}
}

// larger returns the larger one of two amounts, nil being the least, and reports
// whether that is b alone.
func larger(a, b *resource.Quantity) (which *resource.Quantity, isB bool) {
	if b == nil || a != nil && a.Cmp(*b) >= 0 {
		return a, false
	}
	return b, true
}

func amount(list corev1.ResourceList, name corev1.ResourceName) *resource.Quantity {
	if found, ok := list[name]; ok {
		return &found
	}
	return nil
}

func put(list *corev1.ResourceList, name corev1.ResourceName, amount *resource.Quantity) {
	if amount == nil {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = *amount
}

func containerOf(containers []corev1.Container, name string) *corev1.Container {
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &containers[i]
}

func isSidecar(c *corev1.Container) bool {
	return ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
}

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
	var decoded *struct {
		Spec struct {
			Containers     []templateContainer          `json:"containers"`
			InitContainers []templateContainer          `json:"initContainers"`
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
	convert := func(in []templateContainer) []corev1.Container {
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
	data, err := json.Marshal(raw)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
