// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const artifacts = "../../artifacts"

// schemas returns those that are checked in, by the names that tools make of a kind.
func schemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	folder := filepath.Join(artifacts, "schema")
	all := map[string]*jsonschema.Schema{}
	for pattern, count := range map[string]int{"*.json": 4, "*/*.json": 8} {
		files, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil || len(files) != count {
			t.Fatalf("there are %v: %v", files, err)
		}
		for _, file := range files {
			name, err := filepath.Rel(folder, file)
			if err != nil {
				t.Fatal(err)
			}
			if all[filepath.ToSlash(name)], err = jsonschema.NewCompiler().Compile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// validate returns what its schema says of an object, and reports whether there is one.
func validate(t *testing.T, all map[string]*jsonschema.Schema, document []byte) (known bool, err error) {
	t.Helper()
	object := map[string]any{}
	if err := sigsyaml.Unmarshal(document, &object); err != nil {
		t.Fatal(err)
	}
	group, version, _ := strings.Cut(object["apiVersion"].(string), "/")
	name := strings.ToLower(object["kind"].(string)) + "_" + version + ".json"
	switch group {
	case v1alpha1.GroupName:
		name = strings.ToLower(object["kind"].(string)) + "_v1alpha1.json" // also for a version that there is not
	case v1alpha1.AgentsGroup, v1alpha1.ExtensionsGroup:
		name = group + "/" + name
	default:
		return false, nil
	}
	schema := all[name]
	if schema == nil {
		t.Fatalf("there is no schema of %v", object["kind"])
	}
	return true, schema.Validate(object)
}

// Every example is valid by its schema.
func TestExamplesAreValid(t *testing.T) {
	all := schemas(t)
	valid := 0
	for _, pattern := range []string{"*.yaml", "*/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(artifacts, "example", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
				known, err := validate(t, all, document)
				if err != nil {
					t.Errorf("%s: %v", file, err)
				}
				if known {
					valid++
				}
			}
		}
	}
	if valid < 9 {
		t.Errorf("there are %d examples", valid)
	}
}

// What the server would refuse for its form, the schemas do.
func TestMistakesAreFound(t *testing.T) {
	all := schemas(t)
	for name, tc := range map[string]struct {
		document string
		valid    bool
	}{
		"claim":                    {`{apiVersion: agents.kruise.io/v1alpha1, kind: SandboxClaim, metadata: {name: a}, spec: {templateName: a, claimTimeout: 60s}}`, true},
		"typo":                     {`{apiVersion: agents.kruise.io/v1alpha1, kind: SandboxClaim, metadata: {name: a}, spec: {templatName: a}}`, false},
		"number":                   {`{apiVersion: agents.kruise.io/v1alpha1, kind: SandboxClaim, metadata: {name: a}, spec: {templateName: a, replicas: "2"}}`, false},
		"duration":                 {`{apiVersion: agents.kruise.io/v1alpha1, kind: SandboxClaim, metadata: {name: a}, spec: {templateName: a, claimTimeout: 60}}`, false},
		"no spec":                  {`{apiVersion: agents.kruise.io/v1alpha1, kind: SandboxClaim, metadata: {name: a}}`, false},
		"version":                  {`{apiVersion: agents.kruise.io/v1, kind: SandboxClaim, metadata: {name: a}, spec: {templateName: a}}`, false},
		"deep typo":                {`{apiVersion: agents.kruise.io/v1alpha1, kind: SandboxSet, metadata: {name: a}, spec: {replicas: 1, templateRef: {nam: a}}}`, false},
		"percentage":               {`{apiVersion: agents.kruise.io/v1alpha1, kind: SandboxSet, metadata: {name: a}, spec: {replicas: 1, scaleStrategy: {maxUnavailable: 20%}}}`, true},
		"number too":               {`{apiVersion: agents.kruise.io/v1alpha1, kind: SandboxSet, metadata: {name: a}, spec: {replicas: 1, scaleStrategy: {maxUnavailable: 2}}}`, true},
		"quantity":                 {`{apiVersion: agents.kruise.io/v1alpha1, kind: SandboxClaim, metadata: {name: a}, spec: {templateName: a, inplaceUpdate: {resources: {requests: {cpu: 2}}}}}`, true},
		"metadata":                 {`{apiVersion: agents.kruise.io/v1alpha1, kind: Sandbox, metadata: {nam: a}, spec: {template: {}}}`, false},
		"policy":                   {`{apiVersion: agents.kruise.io/v1alpha1, kind: SandboxTemplate, metadata: {name: a}, spec: {template: {}, networkPolicy: {ingress: [{ports: [{port: http}]}]}}}`, true},
		"agent-sandbox":            {`{apiVersion: extensions.agents.x-k8s.io/v1beta1, kind: SandboxClaim, metadata: {name: a}, spec: {warmPoolRef: {name: a}}}`, true},
		"older form":               {`{apiVersion: extensions.agents.x-k8s.io/v1beta1, kind: SandboxClaim, metadata: {name: a}, spec: {sandboxTemplateRef: {name: a}, warmpool: none}}`, true},
		"older version":            {`{apiVersion: extensions.agents.x-k8s.io/v1alpha1, kind: SandboxClaim, metadata: {name: a}, spec: {sandboxTemplateRef: {name: a}}}`, true},
		"current in older version": {`{apiVersion: extensions.agents.x-k8s.io/v1alpha1, kind: SandboxClaim, metadata: {name: a}, spec: {warmPoolRef: {name: a}}}`, false},
		"words of the other group": {`{apiVersion: extensions.agents.x-k8s.io/v1beta1, kind: SandboxClaim, metadata: {name: a}, spec: {warmPoolRef: {name: a}, replicas: 2}}`, false},
		"mode":                     {`{apiVersion: agents.x-k8s.io/v1beta1, kind: Sandbox, metadata: {name: a}, spec: {podTemplate: {spec: {}}, operatingMode: Paused}}`, false},
		"pool":                     {`{apiVersion: extensions.agents.x-k8s.io/v1beta1, kind: SandboxWarmPool, metadata: {name: a}, spec: {sandboxTemplateRef: {name: a}}}`, true},
		"older pool":               {`{apiVersion: extensions.agents.x-k8s.io/v1alpha1, kind: SandboxWarmPool, metadata: {name: a}, spec: {sandboxTemplateRef: {name: a}}}`, false},
	} {
		document, err := yaml.ToJSON([]byte(tc.document))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := validate(t, all, document); (err == nil) != tc.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
