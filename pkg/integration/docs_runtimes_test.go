// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// TestDocumentedRuntimes puts the runtimes of the documentation into a pod.
func TestDocumentedRuntimes(t *testing.T) {
	found := 0
	for place, text := range documented(t) {
		if !strings.Contains(text, "kind: ConfigMap") || !strings.Contains(text, "sandbox-injection-config") {
			continue
		}
		var config corev1.ConfigMap
		if err := yaml.UnmarshalStrict([]byte(text), &config); err != nil {
			t.Errorf("%s: %v", place, err)
		}
		for name, entry := range config.Data {
			found++
			runtime, err := podtemplate.ParseRuntime(entry)
			if err != nil {
				t.Errorf("%s: %s: %v", place, name, err)
				continue
			}
			pod := podOf(`{"name":"mine","image":"i"}`)
			plain, err := podtemplate.Inject(pod)
			if err != nil {
				t.Fatal(err)
			}
			got, err := podtemplate.Inject(pod, runtime)
			if err != nil {
				t.Errorf("%s: %s: %v", place, name, err)
			} else if bytes.Equal(got.Raw, plain.Raw) || !bytes.Contains(got.Raw, []byte("49983")) {
				t.Errorf("%s: %s comes out as %s", place, name, got.Raw)
			}
		}
	}
	if found == 0 {
		t.Error("no runtime is documented")
	}
}
