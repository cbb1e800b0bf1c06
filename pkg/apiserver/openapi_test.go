// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

func TestEveryFieldIsDescribed(t *testing.T) {
	checked := 0
	eachSchema(t, func(t *testing.T, name string, schema spec.Schema) {
		if schema.Description == "" {
			t.Errorf("%s has no description", name)
		}
		for property, s := range schema.Properties {
			checked++
			if strings.TrimSpace(s.Description) == "" {
				t.Errorf("%s.%s has no description", name, property)
			}
		}
	})
	if checked < 100 {
		t.Errorf("found only %d fields: is the prefix %q right?", checked, modelPrefix)
	}
}

func TestRawJSONKeepsItsFields(t *testing.T) {
	raw := runtime.RawExtension{}.OpenAPIModelName()
	kept := map[string]bool{}
	eachSchema(t, func(t *testing.T, name string, schema spec.Schema) {
		for property, s := range schema.Properties {
			for _, part := range []*spec.Schema{&s, items(s)} {
				if part == nil {
					continue
				}
				if strings.Contains(part.Ref.String(), raw) {
					t.Errorf("%s.%s refers to %s", name, property, raw)
				}
				if keep, _ := part.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); keep {
					kept[name+"."+property] = part.Type.Contains("object")
				}
			}
		}
	})
	for _, field := range []string{"SandboxSpec.template", "SandboxSetSpec.patch", "SandboxTemplateSpec.template", "SandboxClaimSpec.volumeClaimTemplates"} {
		if !kept[modelPrefix+field] {
			t.Errorf("%s is not an object of unknown fields", field)
		}
	}
}

func items(s spec.Schema) *spec.Schema {
	if s.Items == nil {
		return nil
	}
	return s.Items.Schema
}

// eachSchema calls f with the schemas of our group.
func eachSchema(t *testing.T, f func(t *testing.T, name string, schema spec.Schema)) {
	t.Helper()
	ref := func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) }
	for name, definition := range GetOpenAPIDefinitions(ref) {
		if strings.HasPrefix(name, modelPrefix) {
			f(t, name, definition.Schema)
		}
	}
}
