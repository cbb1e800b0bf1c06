// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
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
			got, err := podtemplate.Inject(podOf(`{"name":"mine","image":"i"}`), runtime)
			if err != nil || !strings.Contains(string(got.Raw), `"name":"`+name+`"`) || !strings.Contains(string(got.Raw), "/mnt/envd") {
				t.Errorf("%s: %s comes out as %s, %v", place, name, got, err)
			}
		}
	}
	if found == 0 {
		t.Error("no runtime is documented")
	}
}
