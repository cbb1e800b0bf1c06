// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

//go:embed openapi.yaml
var document []byte

// api is the document with all references put in their places.
type api struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]map[string]any `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	Responses map[string]struct {
		Content map[string]struct {
			Schema any `json:"schema"`
		} `json:"content"`
	} `json:"responses"`
}

func readDocument(t *testing.T) *api {
	t.Helper()
	a := &api{}
	if err := yaml.Unmarshal(document, a); err != nil {
		t.Fatal(err)
	}
	return a
}

// inline puts schemas in the places of references to them.
func (a *api) inline(schema any) any {
	switch s := schema.(type) {
	case map[string]any:
		if ref, ok := s["$ref"].(string); ok {
			return a.inline(a.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")])
		}
		all := map[string]any{}
		for key, value := range s {
			all[key] = a.inline(value)
		}
		return all
	case []any:
		all := []any{}
		for _, value := range s {
			all = append(all, a.inline(value))
		}
		return all
	}
	return schema
}

// check returns what is wrong with an answer.
func (a *api) check(method, path string, code int, body []byte) error {
	op, ok := a.Paths[path][strings.ToLower(method)]
	if !ok {
		return fmt.Errorf("%s %s is not in the document", method, path)
	}
	response, ok := op.Responses[fmt.Sprint(code)]
	if !ok {
		if code == 401 || code == 503 { // of every route
			response.Content = a.Paths["/sandboxes"]["post"].Responses["400"].Content
		} else {
			return fmt.Errorf("%s %s has no answer %d in the document", method, path, code)
		}
	}
	content, ok := response.Content["application/json"]
	if !ok {
		if len(body) > 0 {
			return fmt.Errorf("%s %s: the answer %d has a body: %s", method, path, code, body)
		}
		return nil
	}
	text, err := json.Marshal(a.inline(content.Schema))
	if err != nil {
		return err
	}
	schema := &spec.Schema{}
	if err := json.Unmarshal(text, schema); err != nil {
		return err
	}
	var data any
	if err := json.Unmarshal(body, &data); err != nil {
		return fmt.Errorf("%s %s: the answer %d is no JSON: %s", method, path, code, body)
	}
	if err := validate.NewSchemaValidator(schema, nil, "", strfmt.Default).Validate(data).AsError(); err != nil {
		return fmt.Errorf("%s %s: the answer %d, %s: %w", method, path, code, body, err)
	}
	return nil
}

// TestDocumentHasAllRoutes that are served, and no others.
func TestDocumentHasAllRoutes(t *testing.T) {
	var served, written []string
	for _, route := range e2b.Endpoints() {
		if route.Unserved == "" {
			served = append(served, route.Method+" "+route.Path)
		}
	}
	for path, operations := range readDocument(t).Paths {
		for method := range operations {
			written = append(written, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(written)
	if d := cmp.Diff(served, written); d != "" {
		t.Errorf("served -, written +:\n%s", d)
	}
}

// TestDocumentHasAllFields of bodies that are Go types.
func TestDocumentHasAllFields(t *testing.T) {
	a := readDocument(t)
	for name, kind := range map[string]reflect.Type{
		"NewSandbox": reflect.TypeFor[mapping.CreateRequest](), "Made": reflect.TypeFor[mapping.SandboxResponse](),
		"Info": reflect.TypeFor[mapping.Info](), "Template": reflect.TypeFor[mapping.Template](),
		"VolumeMount": reflect.TypeFor[mapping.VolumeMount](), "Alias": reflect.TypeFor[mapping.Alias](),
	} {
		var fields, written []string
		for field := range kind.Fields() {
			tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			fields = append(fields, tag)
		}
		for property := range a.Components.Schemas[name]["properties"].(map[string]any) {
			written = append(written, property)
		}
		slices.Sort(fields)
		slices.Sort(written)
		if d := cmp.Diff(fields, written); d != "" {
			t.Errorf("%s: Go -, document +:\n%s", name, d)
		}
	}
}
