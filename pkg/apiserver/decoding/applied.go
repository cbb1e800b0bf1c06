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

	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// listKeys are the map keys of the lists for which server-side apply has more keys than the
// patchMergeKey of the Go type, which is for strategic merge patches.
var listKeys = map[string][]string{
	"Container.ports":                   {"containerPort", "protocol"},
	"EphemeralContainerCommon.ports":    {"containerPort", "protocol"},
	"PodSpec.topologySpreadConstraints": {"topologyKey", "whenUnsatisfiable"},
}

// ListMerge returns how server-side apply merges a list, which is a field of a struct type of
// Kubernetes: as a map with these keys, as a set, or, if it returns neither, atomically.
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

// checkTemplates returns an error for the first value in the pod template or the volume claim
// templates of an object that server-side apply cannot merge: a value that does not decode, or a
// list element that is null or a duplicate.
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

// unmergeable returns an error for the first list element in a value that server-side apply
// cannot merge; see invalidElement.
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
			if bad := invalidElement(list, t, f, path.Child(name)); bad != nil {
				return bad
			}
		}
		if bad := unmergeable(value, f.Type, path.Child(name)); bad != nil {
			return bad
		}
	}
	return nil
}

// invalidElement returns an error for the first element of a list that is null, or that has the
// same keys (in a set, the same value) as an earlier one.
func invalidElement(list []any, t reflect.Type, f reflect.StructField, path *field.Path) *field.Error {
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
		identity, badValue := element, element
		if object, ok := element.(map[string]any); ok && !set {
			at = at.Child(keys[0])
			identity, badValue = keyOf(object, keys), object[keys[0]]
		}
		key := fmt.Sprint(identity)
		if seen[key] {
			if text, ok := badValue.(string); ok {
				badValue = cut(text, maxShown)
			}
			return field.Duplicate(at, badValue)
		}
		seen[key] = true
	}
	return nil
}

// keyOf returns the values of the keys of a list element, with defaults, as quoted text.
func keyOf(object map[string]any, keys []string) []string {
	key := make([]string, len(keys))
	for i, name := range keys {
		value := object[name]
		if value == nil {
			value = podtemplate.DefaultListKey(name, strings.HasSuffix(name, "Port"))
		}
		key[i] = fmt.Sprintf("%q", fmt.Sprint(value))
	}
	return key
}
