// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	agentsv1alpha1 "github.com/sandlot-io/sandlot/apis/agents/v1alpha1"
	agentsv1beta1 "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	extensionsv1alpha1 "github.com/sandlot-io/sandlot/apis/extensions/v1alpha1"
	extensionsv1beta1 "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
	"github.com/sandlot-io/sandlot/pkg/generated/openapi"
	"github.com/sandlot-io/sandlot/pkg/version"
)

const (
	openAPITitle = "Sandlot"
	// extensionKinds lists the kinds that a definition is of.
	extensionKinds = "x-kubernetes-group-version-kind"
)

// modelPrefixes begin the OpenAPI names of our kinds, and of those of agent-sandbox.
var modelPrefixes = []string{
	modelPrefix(v1alpha1.Sandbox{}),
	modelPrefix(agentsv1beta1.Sandbox{}), modelPrefix(agentsv1alpha1.Sandbox{}),
	modelPrefix(extensionsv1beta1.SandboxClaim{}), modelPrefix(extensionsv1alpha1.SandboxClaim{}),
}

// modelPrefix returns what comes before the name of a kind in its OpenAPI name.
func modelPrefix(kind util.OpenAPIModelNamer) string {
	name := kind.OpenAPIModelName()
	return name[:strings.LastIndex(name, ".")+1]
}

// isModel reports whether an OpenAPI name is that of one of our types.
func isModel(name string) bool {
	return slices.ContainsFunc(modelPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// openAPIConfigs returns the configuration of the OpenAPI v2 and v3 documents.
func openAPIConfigs() (*common.Config, *common.OpenAPIV3Config) {
	namer := apiopenapi.NewDefinitionNamer(scheme.Scheme)
	v2 := genericapiserver.DefaultOpenAPIConfig(GetOpenAPIDefinitions, namer)
	v2.GetDefinitionName = withoutInternal(namer.GetDefinitionName)
	v2.Info.Title = openAPITitle
	v2.Info.Version = version.Get()
	v2.PostProcessSpec = func(s *spec.Swagger) (*spec.Swagger, error) {
		for _, path := range s.Paths.Paths {
			if path.Patch != nil {
				path.Patch.Consumes = slices.DeleteFunc(path.Patch.Consumes, func(mediaType string) bool {
					return mediaType == string(types.StrategicMergePatchType)
				})
			}
		}
		return s, nil
	}
	v3 := genericapiserver.DefaultOpenAPIV3Config(GetOpenAPIDefinitions, namer)
	v3.GetDefinitionName = withoutInternal(namer.GetDefinitionName)
	v3.Info.Title = openAPITitle
	v3.Info.Version = version.Get()
	v3.PostProcessSpec = func(s *spec3.OpenAPI) (*spec3.OpenAPI, error) {
		for _, path := range s.Paths.Paths {
			if path.Patch != nil && path.Patch.RequestBody != nil {
				delete(path.Patch.RequestBody.Content, string(types.StrategicMergePatchType))
			}
		}
		return s, nil
	}
	return v2, v3
}

// withoutInternal takes out of what kinds a definition is of those of internal versions,
// which are no business of clients: here they are the stored types under other names.
func withoutInternal(names func(string) (string, spec.Extensions)) func(string) (string, spec.Extensions) {
	return func(name string) (string, spec.Extensions) {
		name, extensions := names(name)
		kinds, _ := extensions[extensionKinds].([]any)
		if kinds == nil {
			return name, extensions
		}
		return name, spec.Extensions{extensionKinds: slices.DeleteFunc(kinds, func(kind any) bool {
			fields, _ := kind.(map[string]any)
			return fields["version"] == runtime.APIVersionInternal
		})}
	}
}

// GetOpenAPIDefinitions returns the generated definitions with one change: where
// a field of our kinds holds raw JSON, its schema is put in place. The schemas of pod
// templates and volume claim templates are made from the Go types of Kubernetes (see
// podSchemas); all others are objects of unknown fields.
//
// The generated schema is a reference to RawExtension, an object without any
// fields. Server-side apply, which goes by the schema, would drop all that a
// pod template contains, and kubectl explain would show the story of
// RawExtension in place of the field's own description.
func GetOpenAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	raw := ref(runtime.RawExtension{}.OpenAPIModelName())
	definitions := openapi.GetOpenAPIDefinitions(ref)
	schemas := podSchemas{ref: ref, definitions: definitions}
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		if isModel(name) {
			definition := definitions[name]
			needs := map[string]bool{}
			schemas.inlineRaw(&definition.Schema, "", raw.String(), needs)
			definition.Dependencies = append(definition.Dependencies, slices.Sorted(maps.Keys(needs))...)
			definitions[name] = definition
		}
	}
	return definitions
}

// inlineRaw replaces references to raw in the schema of a field. field is the name of the field,
// and needs collects the definitions that the schema refers to.
func (p *podSchemas) inlineRaw(schema *spec.Schema, field, raw string, needs map[string]bool) {
	if schema.Ref.String() == raw {
		description := schema.Description
		*schema = unknownObject()
		if model, ok := rawModels[field]; ok {
			*schema = p.refTo(p.define(model), needs)
		}
		schema.Description = description
		return
	}
	for name, property := range schema.Properties {
		p.inlineRaw(&property, name, raw, needs)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		p.inlineRaw(schema.Items.Schema, field, raw, needs)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		p.inlineRaw(schema.AdditionalProperties.Schema, field, raw, needs)
	}
}
