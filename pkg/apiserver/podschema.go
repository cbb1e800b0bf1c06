// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sandlot-io/sandlot/pkg/apiserver/decoding"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Pod templates and volume claim templates are raw JSON in our types. Their schema is made from
// the Go types of Kubernetes, so that kubectl explain knows the fields, and server-side apply
// merges containers by name. Every object in it preserves unknown fields, for the fields of newer
// versions of Kubernetes.

// podModels is the prefix of the OpenAPI names of these types. The names differ from those of
// Kubernetes, because kube-aggregator merges both documents, and the schemas of Kubernetes do not
// preserve unknown fields.
const podModels = "io.sandlot.podtemplate."

const preserveUnknown = "x-kubernetes-preserve-unknown-fields"

// rawModels are the types of fields with raw JSON, by the name of the field.
var rawModels = map[string]reflect.Type{
	"template":             reflect.TypeFor[corev1.PodTemplateSpec](),
	"podTemplate":          reflect.TypeFor[corev1.PodTemplateSpec](),
	"volumeClaimTemplates": reflect.TypeFor[corev1.PersistentVolumeClaim](),
}

// podSchemas adds the definitions of Go types to existing definitions.
type podSchemas struct {
	ref         common.ReferenceCallback
	definitions map[string]common.OpenAPIDefinition
}

// define adds the definition of a struct type, unless it is there, and returns its name.
func (p *podSchemas) define(t reflect.Type) string {
	name := podModels + strings.NewReplacer("k8s.io/", "", "/", ".").Replace(t.PkgPath()) + "." + t.Name()
	if _, ok := p.definitions[name]; ok {
		return name
	}
	p.definitions[name] = common.OpenAPIDefinition{} // types may be recursive
	schema := spec.Schema{SchemaProps: spec.SchemaProps{
		Type: []string{"object"}, Properties: map[string]spec.Schema{}, Description: docOf(t)[""],
	}}
	schema.AddExtension(preserveUnknown, true)
	needs := map[string]bool{}
	p.addFields(&schema, t, needs)
	p.definitions[name] = common.OpenAPIDefinition{Schema: schema, Dependencies: slices.Sorted(maps.Keys(needs))}
	return name
}

// docOf returns the descriptions of a type of Kubernetes: those of its fields by name, and its
// own by the empty name.
func docOf(t reflect.Type) map[string]string {
	documented, ok := reflect.TypeAssert[interface{ SwaggerDoc() map[string]string }](reflect.Zero(t))
	if !ok {
		return nil
	}
	return documented.SwaggerDoc()
}

// addFields adds the fields of a struct type to a schema.
func (p *podSchemas) addFields(to *spec.Schema, t reflect.Type, needs map[string]bool) {
	docs := docOf(t)
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && field.Anonymous:
			p.addFields(to, field.Type, needs)
		case name != "":
			property := p.schemaOf(field.Type, needs)
			property.Description = docs[name]
			if property.Type.Contains("array") {
				p.setListType(&property, t, field)
			}
			to.Properties[name] = property
		}
	}
}

// setListType sets how server-side apply merges a list.
func (p *podSchemas) setListType(list *spec.Schema, t reflect.Type, field reflect.StructField) {
	keys, set := decoding.ListMerge(t, field)
	switch {
	case keys != nil:
		list.AddExtension("x-kubernetes-list-type", "map")
		list.AddExtension("x-kubernetes-list-map-keys", asAny(keys))
		p.setKeyDefaults(field.Type.Elem(), keys)
	case set:
		list.AddExtension("x-kubernetes-list-type", "set")
	default:
		list.AddExtension("x-kubernetes-list-type", "atomic")
	}
}

func asAny(names []string) []any {
	all := make([]any, len(names))
	for i, name := range names {
		all[i] = name
	}
	return all
}

// setKeyDefaults sets a default on the map keys of a list. Without one, every apply to an object
// would fail once a stored element lacks a key.
func (p *podSchemas) setKeyDefaults(element reflect.Type, keys []string) {
	definition := p.definitions[p.define(element)]
	for _, key := range keys {
		property := definition.Schema.Properties[key]
		property.Default = podtemplate.DefaultListKey(key, property.Type.Contains("integer"))
		definition.Schema.Properties[key] = property
	}
}

var jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()

// schemaOf returns the schema of a type. needs collects the definitions that it refers to.
func (p *podSchemas) schemaOf(t reflect.Type, needs map[string]bool) spec.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(jsonUnmarshaler) {
		return p.leaf(t, needs)
	}
	switch t.Kind() {
	case reflect.Struct:
		return p.refTo(p.define(t), needs)
	case reflect.Map:
		return *spec.MapProperty(new(p.schemaOf(t.Elem(), needs)))
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return *new(spec.Schema).Typed("string", "byte")
		}
		return *spec.ArrayProperty(new(p.schemaOf(t.Elem(), needs)))
	case reflect.String:
		return *new(spec.Schema).Typed("string", "")
	case reflect.Bool:
		return *new(spec.Schema).Typed("boolean", "")
	case reflect.Int64:
		return *new(spec.Schema).Typed("integer", "int64")
	case reflect.Int32:
		return *new(spec.Schema).Typed("integer", "int32")
	}
	return unknownObject()
}

// leaf returns the schema of a type with its own UnmarshalJSON, such as a quantity or a time.
func (p *podSchemas) leaf(t reflect.Type, needs map[string]bool) spec.Schema {
	if named, ok := reflect.TypeAssert[util.OpenAPIModelNamer](reflect.Zero(t)); ok {
		if name := named.OpenAPIModelName(); p.definitions[name].Schema.Type != nil || p.definitions[name].Schema.OneOf != nil {
			return p.refTo(name, needs)
		}
	}
	return unknownObject()
}

func (p *podSchemas) refTo(name string, needs map[string]bool) spec.Schema {
	needs[name] = true
	return spec.Schema{SchemaProps: spec.SchemaProps{Ref: p.ref(name)}}
}

// unknownObject returns the schema of an object of unknown fields.
func unknownObject() spec.Schema {
	schema := *new(spec.Schema).Typed("object", "")
	schema.AddExtension(preserveUnknown, true)
	return schema
}
