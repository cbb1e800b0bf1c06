// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// errUnnamed is what a volume claim template without a name is refused with.
var errUnnamed = errors.New("volume claim template without a name")

// VolumeClaimName is the name of the PersistentVolumeClaim that a sandbox has of
// a volume claim template.
func VolumeClaimName(template, sandbox string) string { return template + "-" + sandbox }

// VolumeClaims makes the PersistentVolumeClaims of a sandbox, which owns them.
// Where the template does not say it, they are ReadWriteOnce file systems, as with
// OpenKruise Agents.
func VolumeClaims(sandbox *v1alpha1.Sandbox) ([]*unstructured.Unstructured, error) {
	claims := make([]*unstructured.Unstructured, 0, len(sandbox.Spec.VolumeClaimTemplates))
	for i := range sandbox.Spec.VolumeClaimTemplates {
		claim, err := volumeClaim(sandbox, &sandbox.Spec.VolumeClaimTemplates[i])
		if err != nil {
			return nil, fmt.Errorf("volume claim template %d of Sandbox %s/%s: %w", i, sandbox.Namespace, sandbox.Name, err)
		}
		claims = append(claims, claim)
	}
	return claims, nil
}

func volumeClaim(sandbox *v1alpha1.Sandbox, raw *runtime.RawExtension) (*unstructured.Unstructured, error) {
	name, err := claimTemplateName(raw)
	if err != nil {
		return nil, err
	}
	template, err := decode(raw)
	if err != nil {
		return nil, err
	}
	spec, ok := template["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("spec: %w", errNotAnObject)
	}
	v1alpha1.DropEmptyClaimStrings(template)
	if modes, _ := spec["accessModes"].([]any); len(modes) == 0 {
		spec["accessModes"] = []any{string(corev1.ReadWriteOnce)}
	}
	if spec["volumeMode"] == nil {
		spec["volumeMode"] = string(corev1.PersistentVolumeFilesystem)
	}
	metadata, err := metadataOf(raw)
	if err != nil {
		return nil, err
	}
	labels := maps.Clone(metadata.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.LabelCreatedBy] = v1alpha1.CreatedBySandbox
	labels[v1alpha1.AgentLabelNameHash] = v1alpha1.NameHash(sandbox.Name)
	delete(labels, v1alpha1.LabelSandboxName)
	if len(sandbox.Name) <= validation.LabelValueMaxLength {
		labels[v1alpha1.LabelSandboxName] = sandbox.Name
	}
	labels[v1alpha1.AgentLabelNameHash] = v1alpha1.NameHash(sandbox.Name)
	claim := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	claim.SetAPIVersion("v1")
	claim.SetKind("PersistentVolumeClaim")
	claim.SetNamespace(sandbox.Namespace)
	claim.SetName(VolumeClaimName(name, sandbox.Name))
	claim.SetLabels(labels)
	claim.SetAnnotations(metadata.Annotations)
	claim.SetOwnerReferences([]metav1.OwnerReference{ownedBy(sandbox)})
	return claim, nil
}

func claimTemplateName(raw *runtime.RawExtension) (string, error) {
	template, err := decode(raw)
	if err != nil {
		return "", err
	}
	name, _, err := unstructured.NestedString(template, "metadata", "name")
	if err != nil {
		return "", err
	}
	if name == "" {
		return "", errUnnamed
	}
	return name, nil
}
