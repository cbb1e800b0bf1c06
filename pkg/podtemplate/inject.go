// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// InjectEnv puts a claim's variables into the containers of a pod template, as far
// as the template's policy lets it: Allowed adds, Overrides also replaces.
//
//  1. A variable without a container's name is for the first container; init
//     containers have to be named.
//  2. Under Allowed a container with envFrom takes none: which names that brings is
//     not to be seen here, and a variable hides one of the same name.
//  3. A replaced variable stays where it was, because others may refer to it.
//  4. With envVarsInjectionContainers First, no other container may be named.
//
// What is refused is reported by fields below path, and never with a value. An
// error is about the template.
func InjectEnv(
	template *runtime.RawExtension, env []v1alpha1.SandboxClaimEnvVar, policies *v1alpha1.SandboxTemplateSpec, path *field.Path,
) (injected *runtime.RawExtension, refused field.ErrorList, err error) {
	if len(env) == 0 {
		return template, nil, nil
	}
	policy := policies.EnvVarsInjectionPolicy
	if !injects(policy) {
		return nil, field.ErrorList{field.Forbidden(path, disallowed("envVarsInjectionPolicy"))}, nil
	}
	pod, err := decode(template)
	if err != nil {
		return nil, nil, fmt.Errorf("pod template: %w", err)
	}
	targets, err := envTargets(pod)
	if err != nil {
		return nil, nil, fmt.Errorf("pod template: %w", err)
	}
	for i, variable := range env {
		target := targets.find(variable.ContainerName)
		switch at := path.Index(i).Child("containerName"); {
		case target == nil:
			refused = append(refused, field.NotFound(at, variable.ContainerName))
			continue
		case target != targets.first && policies.EnvVarsInjectionContainers == v1alpha1.InjectionContainersFirst:
			refused = append(refused, field.Forbidden(at, fmt.Sprintf(
				"only the first container takes variables of claims: the template's envVarsInjectionContainers is %s", v1alpha1.InjectionContainersFirst)))
			continue
		}
		if problem := target.inject(variable, policy, path.Index(i)); problem != nil {
			refused = append(refused, problem)
		}
	}
	if len(refused) > 0 {
		return nil, refused, nil
	}
	raw, err := json.Marshal(pod)
	if err != nil {
		return nil, nil, err
	}
	return &runtime.RawExtension{Raw: raw}, nil, nil
}

// InjectVolumes adds a claim's volume claim templates to have, those of a template, as
// far as the template's policies let it: Allowed appends, Overrides also replaces those
// of the same name. What volumes they may ask for: see refusedVolume. Errors are as for
// InjectEnv.
//
// A volume claim template takes the place of a volume of its name in the pod template
// (see Pod). That needs Overrides too, unless this is an emptyDir: it has nothing in it,
// and is how a template has a volume that claims may bring.
func InjectVolumes(
	template *runtime.RawExtension, have, add []runtime.RawExtension, policies *v1alpha1.SandboxTemplateSpec, path *field.Path,
) (injected []runtime.RawExtension, refused field.ErrorList, err error) {
	if len(add) == 0 {
		return have, nil, nil
	}
	policy := policies.VolumeClaimTemplatesPolicy
	if !injects(policy) {
		return nil, field.ErrorList{field.Forbidden(path, disallowed("volumeClaimTemplatesPolicy"))}, nil
	}
	filled, err := filledVolumes(template)
	if err != nil {
		return nil, nil, fmt.Errorf("pod template: %w", err)
	}
	injected = slices.Clone(have)
	at, classes, err := volumesOf(have)
	if err != nil {
		return nil, nil, err
	}
	for i := range add {
		nameAt := path.Index(i).Child("metadata", "name")
		name, err := claimTemplateName(&add[i])
		if err != nil {
			refused = append(refused, field.Invalid(nameAt, field.OmitValueType{}, err.Error()))
			continue
		}
		if problems := refusedVolume(&add[i], classes, policies.VolumeClaimTemplatesOptions, path.Index(i)); len(problems) > 0 {
			refused = append(refused, problems...)
			continue
		}
		switch there, replaces := at[name]; {
		case policy == v1alpha1.InjectionOverrides && replaces:
			injected[there] = *add[i].DeepCopy()
		case policy == v1alpha1.InjectionOverrides || !replaces && !filled[name]:
			injected = append(injected, *add[i].DeepCopy())
		default:
			refused = append(refused, field.Forbidden(nameAt,
				fmt.Sprintf("%s is a volume of the template, which its volumeClaimTemplatesPolicy Allowed does not let a claim replace", name)))
		}
	}
	if len(refused) > 0 {
		return nil, refused, nil
	}
	return injected, nil, nil
}

// volumesOf returns where the volumes of a template are, by name, and the StorageClasses
// that they name.
func volumesOf(have []runtime.RawExtension) (at map[string]int, classes map[string]bool, err error) {
	at, classes = make(map[string]int, len(have)), map[string]bool{}
	for i := range have {
		name, err := claimTemplateName(&have[i])
		if err != nil {
			return nil, nil, fmt.Errorf("volume claim template %d: %w", i, err)
		}
		at[name] = i
		spec, err := volumeSpec(&have[i])
		if err != nil {
			return nil, nil, fmt.Errorf("volume claim template %d: %w", i, err)
		}
		if class, ok := spec["storageClassName"].(string); ok {
			classes[class] = true
		}
	}
	return at, classes, nil
}

// filledVolumes are the names of the volumes of a pod template that bring something
// with them. One that does not say what it is is an emptyDir.
func filledVolumes(template *runtime.RawExtension) (map[string]bool, error) {
	pod, err := decode(template)
	if err != nil {
		return nil, err
	}
	volumes, _, err := unstructured.NestedSlice(pod, "spec", "volumes")
	if err != nil {
		return nil, err
	}
	filled := map[string]bool{}
	for i, v := range volumes {
		volume, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("spec.volumes[%d]: %w", i, errNotAnObject)
		}
		name, _ := volume["name"].(string)
		for source, value := range volume {
			filled[name] = filled[name] || value != nil && source != "name" && source != "emptyDir"
		}
	}
	return filled, nil
}

func injects(policy v1alpha1.InjectionPolicy) bool {
	return policy == v1alpha1.InjectionAllowed || policy == v1alpha1.InjectionOverrides
}

func disallowed(policy string) string {
	return fmt.Sprintf("not allowed by the template policy: %s is %s", policy, v1alpha1.InjectionDisallowed)
}

// targets are the containers that variables can be put into.
type targets struct {
	first  *target
	byName map[string]*target
}

// target is a container with what a claim has put into it so far.
type target struct {
	container map[string]any
	env       []any
	injected  map[string]bool
}

func envTargets(pod map[string]any) (targets, error) {
	found := targets{byName: map[string]*target{}}
	spec, ok := pod["spec"].(map[string]any)
	if !ok {
		return found, fmt.Errorf("spec: %w", errNotAnObject)
	}
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := spec[list].([]any)
		for i, c := range containers {
			container, ok := c.(map[string]any)
			if !ok {
				return found, fmt.Errorf("spec.%s[%d]: %w", list, i, errNotAnObject)
			}
			env, _ := container["env"].([]any)
			t := &target{container: container, env: env, injected: map[string]bool{}}
			if name, _ := container["name"].(string); name != "" {
				found.byName[name] = t
			}
			if list == "containers" && i == 0 {
				found.first = t
			}
		}
	}
	return found, nil
}

func (ts targets) find(name string) *target {
	if name == "" {
		return ts.first
	}
	return ts.byName[name]
}

// inject puts a variable into the container, or says why not.
func (t *target) inject(variable v1alpha1.SandboxClaimEnvVar, policy v1alpha1.InjectionPolicy, path *field.Path) *field.Error {
	name := path.Child("name")
	if t.injected[variable.Name] {
		return field.Duplicate(name, variable.Name)
	}
	t.injected[variable.Name] = true
	var there []int
	for i, e := range t.env {
		if entry, _ := e.(map[string]any); entry["name"] == variable.Name {
			there = append(there, i)
		}
	}
	if policy == v1alpha1.InjectionAllowed {
		if from, _ := t.container["envFrom"].([]any); len(from) > 0 {
			return field.Forbidden(path, fmt.Sprintf(
				"container %v takes variables from envFrom, which the template's envVarsInjectionPolicy Allowed does not let a claim hide", t.container["name"]))
		}
		if len(there) > 0 {
			return field.Forbidden(name, fmt.Sprintf(
				"%s is a variable of the template, which its envVarsInjectionPolicy Allowed does not let a claim replace", variable.Name))
		}
	}
	entry := map[string]any{"name": variable.Name, "value": variable.Value}
	if len(there) == 0 {
		t.env = append(t.env, entry)
	}
	for _, i := range there { // of several the last one counts, so all are replaced
		t.env[i] = entry
	}
	t.container["env"] = t.env
	return nil
}
