// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// models-schema prints the project's OpenAPI definitions as one OpenAPI v2
// document. hack/update-codegen.sh feeds it to the generator of the apply
// configurations.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sandlot-io/sandlot/pkg/generated/openapi"
)

func main() {
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "models-schema:", err)
		os.Exit(1)
	}
}

func write(out io.Writer) error {
	definitions := openapi.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef(refTo(name))
	})
	schemas := make(spec.Definitions, len(definitions))
	for name, definition := range definitions {
		schema := v2Schema(definition)
		openRaw(&schema)
		schemas[name] = schema
	}
	return json.NewEncoder(out).Encode(&spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "Sandlot", Version: "unversioned"}},
		Definitions: schemas,
	}})
}

// v2Schema prefers the v2 form of types such as IntOrString, which v3 describes
// with means that v2 does not have.
func v2Schema(definition common.OpenAPIDefinition) spec.Schema {
	if schema, ok := definition.Schema.Extensions[common.ExtensionV2Schema].(spec.Schema); ok {
		return schema
	}
	return definition.Schema
}

// openRaw makes fields of raw JSON objects of unknown fields, as the server's
// OpenAPI has them. By default the generator takes them for atomic, and what it
// extracts from an object would hold the fields of other managers too.
func openRaw(schema *spec.Schema) {
	if schema.Ref.String() == refTo(runtime.RawExtension{}.OpenAPIModelName()) {
		*schema = *new(spec.Schema).Typed("object", "").WithDescription(schema.Description)
		schema.AddExtension("x-kubernetes-preserve-unknown-fields", true)
		return
	}
	for name, property := range schema.Properties {
		openRaw(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		openRaw(schema.Items.Schema)
	}
}

func refTo(name string) string {
	return "#/definitions/" + name
}
