// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// strictSerializer extends strict decoding to the pod templates and volume claim templates of
// the groups of agent-sandbox, which are raw JSON in our types. In agents.kruise.io unknown fields
// of templates are accepted, and the strategies warn of them.
type strictSerializer struct {
	runtime.Serializer
}

// Decode implements runtime.Decoder.
func (s strictSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := s.Serializer.Decode(data, defaults, into)
	strict, isStrict := runtime.AsStrictDecodingError(err)
	if err != nil && !isStrict || gvk == nil {
		return obj, gvk, err
	}
	unknown := unknownInTemplates(obj, gvk.Group)
	if len(unknown) == 0 {
		return obj, gvk, err
	}
	if isStrict {
		unknown = append(strict.Errors(), unknown...)
	}
	return obj, gvk, runtime.NewStrictDecodingError(unknown)
}

// unknownInTemplates returns an error for each field that is unknown, or occurs twice, in the
// templates of an object of a group of agent-sandbox.
func unknownInTemplates(obj runtime.Object, group string) []error {
	if group != v1alpha1.AgentsGroup && group != v1alpha1.ExtensionsGroup {
		return nil
	}
	value := reflect.Indirect(reflect.ValueOf(obj))
	if value.Kind() != reflect.Struct {
		return nil
	}
	spec := value.FieldByName("Spec")
	if !spec.IsValid() || spec.Kind() != reflect.Struct {
		return nil
	}
	var unknown []error
	path := field.NewPath("spec")
	if template := spec.FieldByName("PodTemplate"); template.IsValid() {
		if raw, ok := reflect.TypeAssert[*runtime.RawExtension](template); ok {
			unknown = v1alpha1.UnknownPodTemplateFields(raw, path.Child("podTemplate"))
		}
	}
	if claims := spec.FieldByName("VolumeClaimTemplates"); claims.IsValid() {
		if raw, ok := reflect.TypeAssert[[]runtime.RawExtension](claims); ok && len(raw) > 0 {
			unknown = append(unknown, v1alpha1.UnknownVolumeClaimFields(raw, path.Child("volumeClaimTemplates"))...)
		}
	}
	return unknown
}
