// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// listKeys are the keys of lists where they are more than the merge key of the Go type, which
// is of strategic merge patches.
var listKeys = map[string][]string{
	"Container.ports":                   {"containerPort", "protocol"},
	"EphemeralContainerCommon.ports":    {"containerPort", "protocol"},
	"PodSpec.topologySpreadConstraints": {"topologyKey", "whenUnsatisfiable"},
}

// ListMerge returns how server-side apply merges a list, which is a field of a struct type of
// Kubernetes: by the keys of its elements, as a set, or, if neither, as a whole.
func ListMerge(t reflect.Type, list reflect.StructField) (keys []string, set bool) {
	name, _, _ := strings.Cut(list.Tag.Get("json"), ",")
	if keys := listKeys[t.Name()+"."+name]; keys != nil {
		return keys, false
	}
	if key := list.Tag.Get("patchMergeKey"); key != "" {
		return []string{key}, false
	}
	return nil, list.Tag.Get("patchStrategy") == "merge"
}

// DefaultKey returns what a key of the elements of a list is where an element does not set it.
func DefaultKey(key string, isInteger bool) any {
	switch {
	case key == "protocol":
		return string(corev1.ProtocolTCP)
	case isInteger:
		return 0
	}
	return ""
}

// checkTemplates returns an error for the first value in the pod template or the volume claim
// templates of an object that server-side apply cannot merge: it does not decode, or an
// element of a list is there twice.
func checkTemplates(obj runtime.Object) error {
	spec := reflect.Indirect(reflect.ValueOf(obj)).FieldByName("Spec")
	if !spec.IsValid() || spec.Kind() != reflect.Struct {
		return nil
	}
	for name, at := range map[string]string{"Template": "template", "PodTemplate": "podTemplate"} {
		part := spec.FieldByName(name)
		if !part.IsValid() {
			continue
		}
		if raw, ok := reflect.TypeAssert[*runtime.RawExtension](part); ok && raw != nil {
			if err := checkTemplate(raw, reflect.TypeFor[corev1.PodTemplateSpec](), field.NewPath("spec", at)); err != nil {
				return err
			}
		}
	}
	part := spec.FieldByName("VolumeClaimTemplates")
	if !part.IsValid() {
		return nil
	}
	claims, _ := reflect.TypeAssert[[]runtime.RawExtension](part)
	for i := range claims {
		path := field.NewPath("spec", "volumeClaimTemplates").Index(i)
		if err := checkTemplate(&claims[i], reflect.TypeFor[corev1.PersistentVolumeClaim](), path); err != nil {
			return err
		}
	}
	return nil
}

func checkTemplate(raw *runtime.RawExtension, t reflect.Type, path *field.Path) error {
	if len(raw.Raw) == 0 {
		return nil
	}
	if bad := undecodable(raw.Raw, t, path); bad != nil {
		bad.BadValue = field.OmitValueType{} // the environment of a container may hold secrets
		return bad
	}
	var value any
	if err := json.Unmarshal(raw.Raw, &value); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if bad := unmergeable(value, t, path); bad != nil {
		return bad
	}
	return nil
}

// unmergeable returns an error for the first element of a list that has no key or is there
// twice.
func unmergeable(value any, t reflect.Type, path *field.Path) *field.Error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	switch value := value.(type) {
	case map[string]any:
		if t.Kind() == reflect.Struct {
			return unmergeableStruct(value, t, path)
		}
	case []any:
		if t.Kind() != reflect.Slice {
			return nil
		}
		for i, element := range value {
			if bad := unmergeable(element, t.Elem(), path.Index(i)); bad != nil {
				return bad
			}
		}
	}
	return nil
}

func unmergeableStruct(object map[string]any, t reflect.Type, path *field.Path) *field.Error {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			if bad := unmergeableStruct(object, f.Type, path); bad != nil {
				return bad
			}
			continue
		}
		value, ok := object[name]
		if !ok || name == "-" {
			continue
		}
		if list, ok := value.([]any); ok {
			if bad := repeated(list, t, f, path.Child(name)); bad != nil {
				return bad
			}
		}
		if bad := unmergeable(value, f.Type, path.Child(name)); bad != nil {
			return bad
		}
	}
	return nil
}

// repeated returns an error for the first element of a list that is null, or that server-side
// apply takes for another of the list.
func repeated(list []any, t reflect.Type, f reflect.StructField, path *field.Path) *field.Error {
	keys, set := ListMerge(t, f)
	if keys == nil && !set {
		return nil
	}
	seen := map[string]bool{}
	for i, element := range list {
		at := path.Index(i)
		if element == nil {
			return field.Required(at, "must not be null")
		}
		is, shows := element, element
		if object, ok := element.(map[string]any); ok && !set {
			at = at.Child(keys[0])
			is, shows = keyOf(object, keys), object[keys[0]]
		}
		key := fmt.Sprint(is)
		if seen[key] {
			return field.Duplicate(at, shows)
		}
		seen[key] = true
	}
	return nil
}

func keyOf(object map[string]any, keys []string) []string {
	key := make([]string, len(keys))
	for i, name := range keys {
		value := object[name]
		if value == nil {
			value = DefaultKey(name, strings.HasSuffix(name, "Port"))
		}
		key[i] = fmt.Sprintf("%q", fmt.Sprint(value))
	}
	return key
}
