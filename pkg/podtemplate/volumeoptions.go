// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// refusedVolume is why a claim may not have one of its volumes: unless the template's
// options say otherwise, they are new and empty, of the default StorageClass or of one
// that the template's own volumes name. path is that of the volume's spec.
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
	spec, err := volumeSpec(raw)
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
	}
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
