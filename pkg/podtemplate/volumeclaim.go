// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
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

// withMoreVolumes returns volumes, followed by those of more that have other names. If one of the
// lists is empty, it returns the other one itself, and not a copy. A volume claim template
// without a name is kept, for validation to refuse.
func withMoreVolumes(volumes, more []runtime.RawExtension) []runtime.RawExtension {
	switch {
	case len(more) == 0:
		return volumes
	case len(volumes) == 0:
		return more
	}
	names := make(map[string]bool, len(volumes))
	for i := range volumes {
		if name, err := claimTemplateName(&volumes[i]); err == nil {
			names[name] = true
		}
	}
	all := slices.Clone(volumes)
	for i := range more {
		if name, err := claimTemplateName(&more[i]); err != nil || !names[name] {
			all = append(all, more[i])
		}
	}
	return all
}

// checkVolumes returns an error if the volume claim templates of a chain exceed the limits for
// one SandboxTemplate.
func checkVolumes(volumes []runtime.RawExtension) error {
	if n := len(volumes); n > validation.MaxVolumeClaimTemplates {
		return fmt.Errorf("%w: %d of at most %d", ErrVolumes, n, validation.MaxVolumeClaimTemplates)
	}
	size := 0
	for i := range volumes {
		size += len(volumes[i].Raw)
	}
	if size > validation.MaxVolumeClaimTemplatesSize {
		return fmt.Errorf("%w: %d bytes of at most %d", ErrVolumes, size, validation.MaxVolumeClaimTemplatesSize)
	}
	return nil
}

// VolumeClaimsHash returns a hash of the volume claim templates of Resolved; zero if there are none.
func (r *Resolved) VolumeClaimsHash() [sha256.Size]byte {
	if len(r.VolumeClaimTemplates) == 0 {
		return [sha256.Size]byte{}
	}
	sum := sha256.New()
	for i := range r.VolumeClaimTemplates {
		raw := r.VolumeClaimTemplates[i].Raw
		_, _ = fmt.Fprintf(sum, "%d ", len(raw))
		_, _ = sum.Write(raw)
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

// WithVolumes returns the volume claim templates of an object that is resolved: its own, and
// those of the templates that it refers to whose names are not among them. They are shared
// and not to be changed.
func (r *Resolved) WithVolumes(own []runtime.RawExtension) []runtime.RawExtension {
	if r == nil {
		return own
	}
	return withMoreVolumes(own, r.VolumeClaimTemplates)
}

// copiedVolumes is WithVolumes, but returns copies, which the caller may change.
func (r *Resolved) copiedVolumes(own []runtime.RawExtension) []runtime.RawExtension {
	volumes := slices.Clone(r.WithVolumes(own))
	for i := range volumes {
		volumes[i] = *volumes[i].DeepCopy()
	}
	return volumes
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
	if len(sandbox.Name) <= utilvalidation.LabelValueMaxLength {
		labels[v1alpha1.LabelSandboxName] = sandbox.Name
	}
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
