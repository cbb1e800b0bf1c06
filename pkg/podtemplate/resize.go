// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// resizable are the resources that a running container can be given more of.
var resizable = []string{string(corev1.ResourceCPU), string(corev1.ResourceMemory)}

// errWholePod is why nothing is raised where the pod as a whole has less.
var errWholePod = errors.New("what the containers of a pod share cannot be raised")

// Raise makes the containers of have as large as those of want, as far as that can
// be done to a running pod: cpu and memory, of containers and of sidecars that both
// have by name.
//
//  1. A request that is not said is the limit, as it is in every pod.
//  2. What want says have gets: a request also where it had none. Where it has no
//     limit it needs none, and a limit that is below the new request goes up to it.
//  3. What is not below want's stays as it is: nothing is taken away from a container.
//  4. Everything else in have stays. Where that keeps the pod smaller, because it has
//     resources as a whole, it is an error.
//
// raised is have itself if nothing changes.
func Raise(have, want *runtime.RawExtension) (raised *runtime.RawExtension, changed bool, err error) {
	template, err := decode(have)
	if err != nil {
		return nil, false, fmt.Errorf("the template to raise: %w", err)
	}
	goal, err := decode(want)
	if err != nil {
		return nil, false, fmt.Errorf("the template to raise it to: %w", err)
	}
	containers, goals := resizableContainers(template), resizableContainers(goal)
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		more, err := raiseResources(containers[name], goals[name])
		if err != nil {
			return nil, false, fmt.Errorf("container %s: %w", name, err)
		}
		changed = changed || len(more) > 0
	}
	spec, _ := template["spec"].(map[string]any)
	goalSpec, _ := goal["spec"].(map[string]any)
	switch more, err := raiseResources(spec, goalSpec); {
	case err != nil:
		return nil, false, fmt.Errorf("pod: %w", err)
	case len(more) > 0:
		return nil, false, fmt.Errorf("pod: %s: %w", strings.Join(more, ", "), errWholePod)
	}
	if !changed {
		return have, false, nil
	}
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, false, err
	}
	return &runtime.RawExtension{Raw: raw}, true, nil
}

// PatchesResources says whether a patch may change how large the containers of a pod
// template are. What can change anything, or cannot be read, may.
func PatchesResources(patch *runtime.RawExtension) bool {
	change, err := decode(patch)
	return err != nil || patchesResources(change)
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

// resizableContainers returns the containers of a template that run as long as the
// pod does, by name.
func resizableContainers(template map[string]any) map[string]map[string]any {
	found := map[string]map[string]any{}
	spec, _ := template["spec"].(map[string]any)
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := spec[list].([]any)
		for _, c := range containers {
			container, _ := c.(map[string]any)
			name, _ := container["name"].(string)
			sidecar := container["restartPolicy"] == string(corev1.ContainerRestartPolicyAlways)
			if name != "" && (list == "containers" || sidecar) {
				found[name] = container
			}
		}
	}
	return found
}

// raiseResources raises the resources of have, a container or a pod spec, which is
// changed, to those of want, and returns which.
func raiseResources(have, want map[string]any) (changed []string, err error) {
	for _, name := range resizable {
		mine, err := amountsOf(have, name)
		if err != nil {
			return nil, err
		}
		theirs, err := amountsOf(want, name)
		if err != nil {
			return nil, err
		}
		goal, more, err := mine.raised(theirs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if !more {
			continue
		}
		if err := goal.put(have, name); err != nil {
			return nil, err
		}
		changed = append(changed, name)
	}
	return changed, nil
}

// amounts are what is said of one resource, as JSON has it; nil is nothing.
type amounts struct{ request, limit any }

func amountsOf(object map[string]any, name string) (a amounts, err error) {
	if a.limit, _, err = unstructured.NestedFieldNoCopy(object, "resources", "limits", name); err != nil {
		return a, err
	}
	a.request, _, err = unstructured.NestedFieldNoCopy(object, "resources", "requests", name)
	if a.request == nil {
		a.request = a.limit
	}
	return a, err
}

// raised returns what is neither below a nor below want, and whether that is more than a.
func (a amounts) raised(want amounts) (goal amounts, more bool, err error) {
	goal = a
	if goal.request, more, err = larger(a.request, want.request); err != nil {
		return a, false, fmt.Errorf("requests: %w", err)
	}
	if a.limit == nil {
		return goal, more, nil
	}
	for _, least := range []any{want.limit, goal.request} {
		limit, above, err := larger(goal.limit, least)
		if err != nil {
			return a, false, fmt.Errorf("limits: %w", err)
		}
		goal.limit, more = limit, more || above
	}
	return goal, more, nil
}

func (a amounts) put(object map[string]any, name string) error {
	if a.limit != nil {
		if err := unstructured.SetNestedField(object, a.limit, "resources", "limits", name); err != nil {
			return err
		}
	}
	// Also where it was the limit, which may be more now.
	return unstructured.SetNestedField(object, a.request, "resources", "requests", name)
}

// larger returns the larger one of two quantities, or the one that there is, and
// whether that is b alone.
func larger(a, b any) (which any, isB bool, err error) {
	if b == nil {
		return a, false, nil
	}
	y, err := quantity(b)
	if err != nil || a == nil {
		return b, err == nil, err
	}
	x, err := quantity(a)
	if err != nil || x.Cmp(y) >= 0 {
		return a, false, err
	}
	return b, true, nil
}

// quantity reads one as JSON has it: a string or a number.
func quantity(value any) (resource.Quantity, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return resource.Quantity{}, err
	}
	var q resource.Quantity
	if err := json.Unmarshal(raw, &q); err != nil {
		return resource.Quantity{}, fmt.Errorf("%v: %w", value, err)
	}
	return q, nil
}
