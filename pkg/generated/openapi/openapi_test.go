// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// ownModels begin the names of our models.
var ownModels = []string{"io.kruise.agents.v1alpha1.", "io.x-k8s.agents."}

func isOwn(name string) bool {
	return slices.ContainsFunc(ownModels, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// kubectl explain shows these texts, and nothing else tells a user what a field
// does.
func TestEverythingIsDescribed(t *testing.T) {
	own := 0
	for name, definition := range GetOpenAPIDefinitions(spec.MustCreateRef) {
		if !isOwn(name) {
			continue
		}
		own++
		if definition.Schema.Description == "" {
			t.Errorf("%s has no description", name)
		}
		for field, schema := range definition.Schema.Properties {
			if schema.Description == "" {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
	if own == 0 {
		t.Errorf("no definitions with prefixes %s", ownModels)
	}
}

// A type that is referred to and not generated breaks the server's OpenAPI.
func TestReferencesFromOwnModelsResolve(t *testing.T) {
	definitions := GetOpenAPIDefinitions(spec.MustCreateRef)
	seen := map[string]bool{}
	var visit func(name, from string)
	visit = func(name, from string) {
		if seen[name] {
			return
		}
		seen[name] = true
		definition, ok := definitions[name]
		if !ok {
			t.Errorf("%s, referred to by %s, is not defined", name, from)
			return
		}
		for _, dependency := range definition.Dependencies {
			visit(dependency, name)
		}
	}
	for name := range definitions {
		if isOwn(name) {
			visit(name, "")
		}
	}
	visit("io.k8s.api.autoscaling.v1.Scale", "the scale subresource")
}
