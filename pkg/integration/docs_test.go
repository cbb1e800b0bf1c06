// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const repository = "../.."

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestDocumentedObjectsAreAccepted creates, as a dry run that knows every field,
// each of our objects in the docs and in the examples.
func TestDocumentedObjectsAreAccepted(t *testing.T) {
	s := start(t)
	s.Stock(t, s.Set(t, namespace, "python", 20), 0, 20) // what the examples claim from
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	documents := documented(t)
	if len(documents) < 3 {
		t.Fatalf("found objects in %d places only", len(documents))
	}
	for place, document := range documents {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Errorf("%s: %v", place, err)
			continue
		}
		gv := object.GroupVersionKind().GroupVersion()
		if !slices.Contains([]string{v1alpha1.GroupName, v1alpha1.AgentsGroup, v1alpha1.ExtensionsGroup}, gv.Group) {
			continue // a status, or another API's
		}
		plural := map[string]string{"Sandbox": "sandboxes"}[object.GetKind()]
		if plural == "" {
			plural = strings.ToLower(object.GetKind()) + "s"
		}
		in := namespace
		if object.GetKind() != "SandboxClaim" {
			in = "empty" // where nothing of that name exists
		}
		_, err := client.Resource(gv.WithResource(plural)).Namespace(in).Create(t.Context(), object,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			t.Errorf("%s: %v", place, err)
		}
	}
}

// documented returns the YAML documents of the docs and examples by their place.
func documented(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(file, text string) {
		for i, document := range strings.Split(text, "\n---\n") {
			all[fmt.Sprintf("%s, document %d (%.60q)", file, i+1, document)] = document
		}
	}
	for _, pattern := range []string{"README.md", "docs/*.md", "artifacts/example/*.yaml", "artifacts/example/*/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files like %s: %v", pattern, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, ".yaml") {
				add(file, string(content))
				continue
			}
			for _, block := range yamlBlock.FindAllSubmatch(content, -1) {
				add(file, string(block[1]))
			}
		}
	}
	return all
}
