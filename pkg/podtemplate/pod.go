// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Pod makes the pod of a sandbox, whose revision is SandboxRevision. It is not a
// corev1.Pod, so that fields of a newer Kubernetes reach the API as they stand in
// the template.
//
//  1. Name and namespace are the sandbox's, which is its controller.
//  2. Labels, annotations and finalizers are the template's; see podMetadataOf for
//     what is added.
//  3. The token of a service account is mounted only if the template says so: what
//     runs in a sandbox is not to be trusted with the API.
//  4. Each volume claim template is a volume of its name, instead of one that the
//     template has under that name.
//  5. Optional strings that are empty, such as a runtimeClassName, are left out: the API
//     server refuses them.
func Pod(sandbox *v1alpha1.Sandbox, revision string) (*unstructured.Unstructured, error) {
	return PodWithRuntimes(sandbox, sandbox.Spec.Template, revision)
}

// PodWithRuntimes is Pod with the sandbox's template as Inject has made it. The
// labels and annotations of the runtimes are the pod's alone: they never take the
// place of the template's, and later changes of those leave them be.
func PodWithRuntimes(
	sandbox *v1alpha1.Sandbox, injected *runtime.RawExtension, revision string,
) (*unstructured.Unstructured, error) {
	pod, err := newPod(sandbox, injected, revision)
	if err != nil {
		return nil, fmt.Errorf("making the pod of Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	return pod, nil
}

func newPod(sandbox *v1alpha1.Sandbox, injected *runtime.RawExtension, revision string) (*unstructured.Unstructured, error) {
	template, err := decode(injected)
	if err != nil {
		return nil, err
	}
	spec, ok := template["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("spec of the template: %w", errNotAnObject)
	}
	v1alpha1.DropEmptyStrings(template)
	if spec["automountServiceAccountToken"] == nil {
		spec["automountServiceAccountToken"] = false
	}
	if err := addVolumes(spec, sandbox); err != nil {
		return nil, err
	}
	metadata, err := podMetadataOf(sandbox, revision)
	if err != nil {
		return nil, err
	}
	if injected != sandbox.Spec.Template {
		added, err := metadataOf(injected)
		if err != nil {
			return nil, fmt.Errorf("metadata of the runtimes: %w", err)
		}
		metadata.add(added)
	}
	pod := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetNamespace(sandbox.Namespace)
	pod.SetName(sandbox.Name)
	pod.SetLabels(metadata.Labels)
	pod.SetAnnotations(metadata.Annotations)
	if finalizers, found, err := unstructured.NestedStringSlice(template, "metadata", "finalizers"); err != nil {
		return nil, fmt.Errorf("metadata of the template: %w", err)
	} else if found {
		pod.SetFinalizers(finalizers)
	}
	pod.SetOwnerReferences([]metav1.OwnerReference{ownedBy(sandbox)})
	return pod, nil
}

func ownedBy(sandbox *v1alpha1.Sandbox) metav1.OwnerReference {
	return *v1alpha1.OwnedBySandbox(sandbox)
}

// addVolumes makes the volume claims of a sandbox volumes of its pod.
func addVolumes(spec map[string]any, sandbox *v1alpha1.Sandbox) error {
	if len(sandbox.Spec.VolumeClaimTemplates) == 0 {
		return nil
	}
	volumes, _, err := unstructured.NestedSlice(spec, "volumes")
	if err != nil {
		return fmt.Errorf("volumes of the template: %w", err)
	}
	at := make(map[string]int, len(volumes))
	for i, volume := range volumes {
		if volume, ok := volume.(map[string]any); ok {
			name, _ := volume["name"].(string)
			at[name] = i
		}
	}
	for i := range sandbox.Spec.VolumeClaimTemplates {
		name, err := claimTemplateName(&sandbox.Spec.VolumeClaimTemplates[i])
		if err != nil {
			return err
		}
		volume := map[string]any{
			"name":                  name,
			"persistentVolumeClaim": map[string]any{"claimName": VolumeClaimName(name, sandbox.Name)},
		}
		if i, ok := at[name]; ok {
			volumes[i] = volume
		} else {
			volumes = append(volumes, volume)
		}
	}
	spec["volumes"] = volumes
	return nil
}
