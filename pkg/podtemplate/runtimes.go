// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// mainContainerKey is where a Runtime says what the first container gets, whose name
// only the template knows.
const mainContainerKey = "mainContainer"

// Runtime is what an installation puts into the pods that ask for a runtime.
type Runtime struct {
	// patch is a strategic merge patch on the pod template.
	patch map[string]any
	// main is merged into the first container of the template.
	main map[string]any
}

// ErrRuntime means that a runtime is malformed, or does not fit the template.
var ErrRuntime = errors.New("the runtime cannot be put into the pod")

// ParseRuntime reads a runtime from YAML: a strategic merge patch on a pod template,
// with the key mainContainer beside metadata and spec. Errors are ErrRuntime.
func ParseRuntime(text string) (*Runtime, error) {
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRuntime, err)
	}
	var patch map[string]any
	if err := utiljson.Unmarshal(raw, &patch); err != nil || patch == nil {
		return nil, fmt.Errorf("%w: %w", ErrRuntime, errNotAnObject)
	}
	r := &Runtime{patch: patch}
	if main, ok := patch[mainContainerKey]; ok {
		if r.main, ok = main.(map[string]any); !ok {
			return nil, fmt.Errorf("%w: %s: %w", ErrRuntime, mainContainerKey, errNotAnObject)
		}
		if r.main["name"] != nil {
			return nil, fmt.Errorf("%w: %s: its name is the template's", ErrRuntime, mainContainerKey)
		}
		delete(patch, mainContainerKey)
	}
	for key, value := range patch {
		if key != "metadata" && key != "spec" {
			return nil, fmt.Errorf("%w: unknown key %q: there are metadata, spec and %s", ErrRuntime, key, mainContainerKey)
		}
		if _, ok := value.(map[string]any); !ok {
			return nil, fmt.Errorf("%w: %s: %w", ErrRuntime, key, errNotAnObject)
		}
	}
	return r, nil
}

// Inject puts runtimes into a pod template, one after the other. Their containers
// come after those of the template, whose first is the one that most things are meant
// for, and their init containers before those of the template, which may need them:
//
//	template    containers [main]         initContainers [load]
//	runtime a   containers [a]            initContainers [a-init]
//	runtime b   containers [b]            initContainers [b-init]
//	result      containers [main, a, b]   initContainers [a-init, b-init, load]
//
// Errors are ErrRuntime.
func Inject(template *runtime.RawExtension, runtimes ...*Runtime) (*runtime.RawExtension, error) {
	merged, err := decode(template)
	if err != nil {
		return nil, fmt.Errorf("%w: pod template: %w", ErrRuntime, err)
	}
	own, ownInit := containerNames(merged, "containers"), containerNames(merged, "initContainers")
	var added, addedInit []string
	for _, r := range runtimes {
		added = append(added, containerNames(r.patch, "containers")...)
		addedInit = append(addedInit, containerNames(r.patch, "initContainers")...)
		first := ""
		if len(own) > 0 {
			first = own[0]
		}
		for _, patch := range r.patches(first) {
			if merged, err = merge(merged, patch); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrRuntime, err)
			}
		}
	}
	removeDirectives(merged)
	order(merged, "containers", append(own, added...))
	addedInit = slices.DeleteFunc(addedInit, func(name string) bool { return slices.Contains(ownInit, name) }) // changed, not added
	order(merged, "initContainers", append(addedInit, ownInit...))
	raw, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRuntime, err)
	}
	injected := &runtime.RawExtension{Raw: raw}
	if _, err := v1alpha1.PodTemplate(injected); err != nil { // text where a number belongs, say
		return nil, fmt.Errorf("%w: %w", ErrRuntime, err)
	}
	return injected, nil
}

// patches are copies, because a merge changes what it is given.
func (r *Runtime) patches(first string) []map[string]any {
	patches := []map[string]any{runtime.DeepCopyJSON(r.patch)}
	if len(r.main) > 0 {
		main := runtime.DeepCopyJSON(r.main)
		main["name"] = first
		patches = append(patches, map[string]any{"spec": map[string]any{"containers": []any{main}}})
	}
	return patches
}

// containerNames are the names in a list of containers.
func containerNames(template map[string]any, list string) []string {
	spec, _ := template["spec"].(map[string]any)
	containers, _ := spec[list].([]any)
	names := make([]string, 0, len(containers))
	for _, container := range containers {
		names = append(names, nameOf(container))
	}
	return names
}

func nameOf(container any) string {
	object, _ := container.(map[string]any)
	name, _ := object["name"].(string)
	return name
}

// order sorts a list of containers: a merge puts what is new in front. A name counts
// where it comes first in names.
func order(template map[string]any, list string, names []string) {
	spec, _ := template["spec"].(map[string]any)
	containers, _ := spec[list].([]any)
	slices.SortStableFunc(containers, func(a, b any) int {
		return cmp.Compare(slices.Index(names, nameOf(a)), slices.Index(names, nameOf(b)))
	})
}
