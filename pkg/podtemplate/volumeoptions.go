// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// claimVolumeFields are the fields of a PersistentVolumeClaim's spec that a claim may set,
// some of them only where the template's options allow it. Any other one may choose a
// volume in a way that the options do not govern, as volumeAttributesClassName does.
var claimVolumeFields = []string{
	"accessModes", "dataSource", "dataSourceRef", "resources", "selector", "storageClassName", "volumeMode", "volumeName",
}

// refusedVolume is why a claim may not have one of its volumes: unless the template's
// options say otherwise, they are new and empty, of the default StorageClass or of one
// that the template's own volumes name. Labels and annotations may not say more than the
// spec: the older annotation for the StorageClass comes before the field, others choose
// the node. path is that of the volume.
//
// Data sources and volumes that exist belong to others in the namespace, or in the
// cluster, and the controllers that make the PersistentVolumeClaim do not ask what the
// user who made the claim may read.
func refusedVolume(
	raw *runtime.RawExtension, classes map[string]bool, options *v1alpha1.VolumeClaimTemplatesOptions, path *field.Path,
) field.ErrorList {
	if options == nil {
		options = &v1alpha1.VolumeClaimTemplatesOptions{}
	}
	metadata, err := metadataOf(raw)
	if err != nil {
		return field.ErrorList{field.Invalid(path.Child("metadata"), field.OmitValueType{}, err.Error())}
	}
	refused := refusedVolumeKeys(metadata.Labels, path.Child("metadata", "labels"))
	refused = append(refused, refusedVolumeKeys(metadata.Annotations, path.Child("metadata", "annotations"))...)
	path = path.Child("spec")
	spec, err := volumeSpec(raw)
	if err != nil {
		return append(refused, field.Invalid(path, field.OmitValueType{}, err.Error()))
	}
	for _, name := range slices.Sorted(maps.Keys(spec)) {
		if spec[name] != nil && !slices.Contains(claimVolumeFields, name) {
			refused = append(refused, field.Forbidden(path.Child(name), "not a field that a claim's volumes may have"))
		}
	}
	return append(refused, refusedVolumeSpec(spec, classes, options, path)...)
}

// refusedVolumeSpec is why the options do not allow what the spec of a volume says, at path.
func refusedVolumeSpec(
	spec map[string]any, classes map[string]bool, options *v1alpha1.VolumeClaimTemplatesOptions, path *field.Path,
) field.ErrorList {
	var refused field.ErrorList
	forbid := func(at *field.Path, what, option string) {
		refused = append(refused, field.Forbidden(at, fmt.Sprintf("%s: not among the template's volumeClaimTemplatesOptions.%s", what, option)))
	}
	if value := spec["storageClassName"]; value != nil {
		class, isString := value.(string)
		if !isString || !classes[class] && !slices.Contains(options.StorageClassNames, class) {
			forbid(path.Child("storageClassName"), fmt.Sprintf("StorageClass %q", class), "storageClassNames")
		}
	}
	for _, name := range []string{"dataSource", "dataSourceRef"} {
		if spec[name] == nil {
			continue
		}
		source, _ := spec[name].(map[string]any)
		if kind := sourceKind(source); !slices.Contains(options.DataSources, kind) {
			forbid(path.Child(name), fmt.Sprintf("kind %q", kind), "dataSources")
		} else if source["namespace"] != nil {
			refused = append(refused, field.Forbidden(path.Child(name, "namespace"), "a claim's volumes have no sources in other namespaces"))
		}
	}
	for _, name := range []string{"volumeName", "selector"} {
		if value := spec[name]; value != nil && value != "" && !options.ExistingVolumes {
			refused = append(refused, field.Forbidden(path.Child(name), "the template's volumeClaimTemplatesOptions.existingVolumes is false"))
		}
	}
	return refused
}

// refusedVolumeKeys refuses labels or annotations of a volume that Kubernetes, drivers
// and platforms act on, and those that this API keeps to itself.
func refusedVolumeKeys(in map[string]string, path *field.Path) field.ErrorList {
	var refused field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(in)) {
		if v1alpha1.IsPlatformKey(key) || isInternal(key) {
			refused = append(refused, field.Forbidden(path.Key(key), "belongs into the volume claim templates of the template"))
		}
	}
	return refused
}

// volumeSpec is the spec of a volume claim template; empty where there is none.
func volumeSpec(raw *runtime.RawExtension) (map[string]any, error) {
	template, err := decode(raw)
	if err != nil || template["spec"] == nil {
		return nil, err
	}
	spec, ok := template["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("spec: %w", errNotAnObject)
	}
	return spec, nil
}

// sourceKind is the kind of a data source, with its API group if it has one.
func sourceKind(source map[string]any) string {
	kind, _ := source["kind"].(string)
	if group, _ := source["apiGroup"].(string); group != "" {
		return kind + "." + group
	}
	return kind
}
