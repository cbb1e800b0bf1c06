// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command jsonschema writes a JSON schema of each of our kinds, for editors and for
// checks without a server, named as yaml-language-server and kubeconform look for
// them: <kind>_<version>.json, and for the groups of agent-sandbox
// <group>/<kind>_<version>.json. They are those of the server's OpenAPI, each complete in
// its file, and strict: a field that there is not is an error. A pod template is any
// object: it is the cluster that knows its fields.
//
//	jsonschema FOLDER
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	agentsv1alpha1 "github.com/sandlot-io/sandlot/apis/agents/v1alpha1"
	agentsv1beta1 "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	extensionsv1alpha1 "github.com/sandlot-io/sandlot/apis/extensions/v1alpha1"
	extensionsv1beta1 "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/generated/openapi"
)

// draft is the one that all tools know.
const draft = "http://json-schema.org/draft-07/schema#"

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("usage: jsonschema FOLDER"))
	}
	fail(write(os.Args[1]))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "jsonschema:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	for _, group := range groups {
		path := folder
		if group.version.Group != v1alpha1.GroupName {
			path = filepath.Join(folder, group.version.Group)
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		for _, object := range group.kinds {
			if err := writeKind(path, group.version, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// groups are the groups and versions, each with its kinds.
var groups = []struct {
	version schema.GroupVersion
	kinds   []util.OpenAPIModelNamer
}{
	{v1alpha1.SchemeGroupVersion, []util.OpenAPIModelNamer{
		v1alpha1.Sandbox{}, v1alpha1.SandboxClaim{}, v1alpha1.SandboxSet{}, v1alpha1.SandboxTemplate{},
	}},
	{agentsv1beta1.SchemeGroupVersion, []util.OpenAPIModelNamer{agentsv1beta1.Sandbox{}}},
	{agentsv1alpha1.SchemeGroupVersion, []util.OpenAPIModelNamer{agentsv1alpha1.Sandbox{}}},
	{extensionsv1beta1.SchemeGroupVersion, []util.OpenAPIModelNamer{
		extensionsv1beta1.SandboxClaim{}, extensionsv1beta1.SandboxTemplate{}, extensionsv1beta1.SandboxWarmPool{},
	}},
	{extensionsv1alpha1.SchemeGroupVersion, []util.OpenAPIModelNamer{
		extensionsv1alpha1.SandboxClaim{}, extensionsv1alpha1.SandboxTemplate{}, extensionsv1alpha1.SandboxWarmPool{},
	}},
}

func writeKind(folder string, version schema.GroupVersion, object util.OpenAPIModelNamer) error {
	kind := reflect.TypeOf(object).Name()
	content, err := json.MarshalIndent(schemaOf(version.WithKind(kind), object.OpenAPIModelName()), "", "  ")
	if err != nil {
		return err
	}
	name := strings.ToLower(kind) + "_" + version.Version + ".json"
	return os.WriteFile(filepath.Join(folder, name), append(content, '\n'), 0o644)
}

// object is a JSON object.
type object = map[string]any

// schemaOf returns the schema of a kind, with all that it refers to.
func schemaOf(kind schema.GroupVersionKind, model string) object {
	w := &writer{
		known:       openapi.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) }),
		definitions: object{},
	}
	root := w.schema(w.known[model].Schema)
	properties := root["properties"].(object)
	properties["apiVersion"] = object{"type": "string", "enum": []string{kind.GroupVersion().String()}}
	properties["kind"] = object{"type": "string", "enum": []string{kind.Kind}}
	root["required"] = []string{"apiVersion", "kind", "metadata", "spec"}
	root["$schema"], root["title"], root["definitions"] = draft, kind.Kind, w.definitions
	return root
}

// writer makes JSON schemas of definitions.
type writer struct {
	known       map[string]common.OpenAPIDefinition
	definitions object // those that were referred to
}

// simple writes the keywords that hold no other schemas.
func simple(s spec.Schema, out object) {
	if len(s.Type) == 1 {
		out["type"] = s.Type[0]
	}
	if s.Format != "" && s.Format != "int-or-string" {
		out["format"] = s.Format
	}
	if len(s.Enum) > 0 {
		out["enum"] = s.Enum
	}
	if len(s.Required) > 0 {
		out["required"] = s.Required
	}
}

// schema returns what draft-07 says for a schema of OpenAPI.
func (w *writer) schema(s spec.Schema) object {
	out := object{}
	if s.Description != "" {
		out["description"] = s.Description
	}
	if ref := s.Ref.String(); ref != "" {
		return w.reference(ref, out)
	}
	if len(s.AllOf) == 1 && s.AllOf[0].Ref.String() != "" { // how a reference has a default
		return w.reference(s.AllOf[0].Ref.String(), out)
	}
	simple(s, out)
	for _, one := range s.OneOf {
		of, _ := out["oneOf"].([]object)
		out["oneOf"] = append(of, w.schema(one))
	}
	if s.Items != nil && s.Items.Schema != nil {
		out["items"] = w.schema(*s.Items.Schema)
	}
	switch {
	case len(s.Properties) > 0:
		properties := object{}
		for name, property := range s.Properties {
			properties[name] = w.schema(property)
		}
		out["properties"], out["additionalProperties"] = properties, false
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		out["additionalProperties"] = w.schema(*s.AdditionalProperties.Schema)
	}
	return out
}

// reference adds a reference to a schema, in a form in which what stands beside it counts.
func (w *writer) reference(ref string, out object) object {
	name := strings.TrimPrefix(ref, "#/definitions/")
	if name == (runtime.RawExtension{}).OpenAPIModelName() {
		out["type"] = "object" // of any fields
		return out
	}
	if _, done := w.definitions[name]; !done {
		w.definitions[name] = nil // one that refers to itself ends here
		w.definitions[name] = w.schema(w.known[name].Schema)
	}
	out["allOf"] = []object{{"$ref": ref}}
	return out
}
