// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// elsewhere is a namespace that is not the default one.
const elsewhere = "agents"

// renderUser renders kustomizations of a user's, each a folder by its name, in which %s is
// the way to artifacts/deploy. The one that is rendered is "top".
func renderUser(t *testing.T, kustomizations map[string]string) manifests {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	for name, content := range kustomizations {
		folder := filepath.Join(own, name)
		to, err := filepath.Rel(folder, here)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		content = strings.ReplaceAll(content, "%s", to)
		if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return render(t, filepath.Join(own, "top"))
}

// TestOtherNamespace: "namespace:" of a user's kustomization moves all that is in the
// namespace of the install, and whatever says where that is, and nothing else.
func TestOtherNamespace(t *testing.T) {
	const choices = "components: [%s/components/agent-sandbox, %s/components/dry-runs, %s/components/restricted]\n"
	for _, overlay := range overlays {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			kustomization := "resources: [%s/" + overlay + "]\n" + choices
			checkMoved(t,
				renderUser(t, map[string]string{"top": kustomization}),
				renderUser(t, map[string]string{"top": "namespace: " + elsewhere + "\n" + kustomization}))
		})
	}
	// The keys of the E2B API have a namespace of their own, which stays.
	t.Run("default with "+e2b, func(t *testing.T) {
		t.Parallel()
		checkMoved(t, renderWith(t, "default", e2b), renderUser(t, map[string]string{
			"install": "namespace: " + elsewhere + "\nresources: [%s/default]\ncomponents: [%s/components/e2b-gateway]\n",
			"top":     "resources: [../install]\ncomponents: [%s/components/e2b-keys]\n",
		}))
	})
}

// checkMoved holds the objects of an install elsewhere against those of the default one.
func checkMoved(t *testing.T, original, moved manifests) {
	t.Helper()
	before, after := byName(t, original), byName(t, moved)
	if len(before) != len(after) {
		t.Errorf("%d objects have become %d", len(before), len(after))
	}
	for name, object := range before {
		other, ok := after[name]
		if !ok {
			t.Errorf("%s has gone", name)
			continue
		}
		for _, problem := range movedWrongly("", object, other) {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

// byName is the content of objects by a name that does not depend on the namespace.
func byName(t *testing.T, objects manifests) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		kind := object.GetObjectKind().GroupVersionKind().Kind
		if slices.Contains(unknownToKustomize, kind) && object.GetNamespace() == elsewhere {
			delete(content["metadata"].(map[string]any), "namespace")
			object.SetNamespace("")
		}
		key := strings.Join([]string{kind, inNamespace(object.GetNamespace()), inNamespace(object.GetName())}, " ")
		if _, twice := all[key]; twice {
			t.Fatalf("two objects are %s", key)
		}
		all[key] = content
	}
	return all
}

// unknownToKustomize are kinds in no namespace of which the kustomize of kubectl does not know
// that. It gives them one, which kube-apiserver drops.
var unknownToKustomize = []string{
	"FlowSchema", "PriorityLevelConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}

func inNamespace(name string) string {
	if name == elsewhere {
		return namespace
	}
	return name
}

// movedWrongly compares values at a path. What differs is the name of the namespace, whole,
// and nothing that has the name in it is left.
func movedWrongly(path string, before, after any) []string {
	switch before := before.(type) {
	case map[string]any:
		other, _ := after.(map[string]any)
		if len(before) != len(other) {
			return []string{fmt.Sprintf("%s: %v has become %v", path, before, after)}
		}
		var problems []string
		for key, value := range before {
			problems = append(problems, movedWrongly(path+"."+key, value, other[key])...)
		}
		return problems
	case []any:
		other, _ := after.([]any)
		if len(before) != len(other) {
			return []string{fmt.Sprintf("%s: %v has become %v", path, before, after)}
		}
		var problems []string
		for i, value := range before {
			problems = append(problems, movedWrongly(fmt.Sprintf("%s[%d]", path, i), value, other[i])...)
		}
		return problems
	}
	a, b := fmt.Sprint(before), fmt.Sprint(after)
	switch {
	case a == b && strings.Contains(a, namespace) && !isClassName(path, a):
		return []string{fmt.Sprintf("%s is still %s", path, a)}
	case a != b && (a != namespace || b != elsewhere):
		return []string{fmt.Sprintf("%s: %s has become %s", path, a, b)}
	}
	return nil
}

// isClassName: objects of the cluster have the same name, the PriorityClass, a FlowSchema and
// a PriorityLevelConfiguration. The policy and the quota of the PriorityClass name it.
func isClassName(path, value string) bool {
	switch path {
	case ".metadata.name", ".spec.template.spec.priorityClassName", ".spec.priorityLevelConfiguration.name",
		".spec.scopeSelector.matchExpressions[0].values[0]":
		return value == namespace
	case ".spec.matchConditions[0].expression":
		return strings.HasSuffix(value, "object.spec.priorityClassName == "+strconv.Quote(namespace))
	case ".spec.validations[0].message":
		return strings.HasPrefix(value, "PriorityClass "+namespace+" ")
	}
	return false
}

// TestE2BInOtherNamespaceIsNoAccident: with the keys in the kustomization that says where the
// install is, kustomize fails rather than put all Secrets there into the gateway's hands.
func TestE2BInOtherNamespaceIsNoAccident(t *testing.T) {
	folder := t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	to, err := filepath.Rel(folder, here)
	if err != nil {
		t.Fatal(err)
	}
	content := fmt.Sprintf("namespace: %[2]s\nresources: [%[1]s/default]\ncomponents: [%[1]s/components/e2b]\n", to, elsewhere)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := kustomize(t, folder)
	if err == nil || !bytes.Contains(out, []byte("ID conflict")) {
		t.Errorf("got %v:\n%s", err, out)
	}
}
