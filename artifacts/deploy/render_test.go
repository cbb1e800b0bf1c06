// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const namespace = "sandlot-system"

// overlays are what people apply.
var overlays = []string{"default", "single", "small", "external-etcd"}

// findKubectl returns the kubectl that KUBECTL names, or the pinned one.
var findKubectl = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("KUBECTL"); path != "" {
		return exec.LookPath(path)
	}
	return findTool("kubectl")
})

// findTool returns the pinned program of a name, which is built if it is missing.
func findTool(name string) (string, error) {
	out, err := exec.Command(filepath.Join("..", "..", "hack", "tool.sh"), name).Output()
	if err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// manifests are the objects of an overlay.
type manifests []client.Object

// kustomize returns the documents of a kustomization, or what kubectl says against it, which
// includes warnings, with an error.
func kustomize(t *testing.T, folder string) ([]byte, error) {
	t.Helper()
	kubectl, err := findKubectl()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(kubectl, "kustomize", folder)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		return stderr.Bytes(), fmt.Errorf("kubectl kustomize %s: %w\n%s", folder, err, &stderr)
	}
	return out, nil
}

// render returns what "kubectl apply -k" would send.
func render(t *testing.T, overlay string) manifests {
	t.Helper()
	out, err := kustomize(t, overlay)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, overlay, out)
}

// decode reads documents. Unknown fields are errors.
func decode(t *testing.T, what string, documents []byte) manifests {
	t.Helper()
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	var objects manifests
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(documents)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if runtime.IsNotRegisteredError(err) { // APIService is in no library that we use
			other := &unstructured.Unstructured{}
			err = yaml.UnmarshalStrict(document, &other.Object)
			object = other
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", what, err, document)
		}
		objects = append(objects, object.(client.Object))
	}
}

// of returns the objects of one type.
func of[T client.Object](objects manifests) []T {
	var found []T
	for _, object := range objects {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// get returns the object of a type and a name, or nil.
func get[T client.Object](objects manifests, name string) (found T) {
	for _, object := range of[T](objects) {
		if object.GetName() == name {
			return object
		}
	}
	return found
}

// workload is what makes pods.
type workload struct {
	client.Object
	replicas int32
	selector map[string]string
	template corev1.PodTemplateSpec
	claims   []corev1.PersistentVolumeClaim
}

func (w workload) String() string { return fmt.Sprintf("%T %s", w.Object, w.GetName()) }

// workloads by name. There is none of the same name twice.
func workloads(objects manifests) map[string]workload {
	all := map[string]workload{}
	for _, d := range of[*appsv1.Deployment](objects) {
		all[d.Name] = workload{d, *d.Spec.Replicas, d.Spec.Selector.MatchLabels, d.Spec.Template, nil}
	}
	for _, s := range of[*appsv1.StatefulSet](objects) {
		all[s.Name] = workload{s, *s.Spec.Replicas, s.Spec.Selector.MatchLabels, s.Spec.Template, s.Spec.VolumeClaimTemplates}
	}
	return all
}

// args are the arguments of a workload's only container, with what it takes from
// its environment filled in.
func args(t *testing.T, objects manifests, w workload) []string {
	t.Helper()
	container := w.template.Spec.Containers[0]
	var replace []string
	for _, env := range container.Env {
		value := env.Value
		switch from := env.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.name":
			value = w.GetName() + "-0"
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
			value = w.GetNamespace()
		case from.ConfigMapKeyRef != nil:
			config := get[*corev1.ConfigMap](objects, from.ConfigMapKeyRef.Name)
			if config == nil {
				t.Fatalf("%s: no ConfigMap %s", w, from.ConfigMapKeyRef.Name)
			}
			value = config.Data[from.ConfigMapKeyRef.Key]
		default:
			t.Fatalf("%s: the test does not know where %s comes from", w, env.Name)
		}
		if value == "" {
			t.Errorf("%s: variable %s is empty", w, env.Name)
		}
		replace = append(replace, "$("+env.Name+")", value)
	}
	filled := make([]string, 0, len(container.Args))
	for _, arg := range container.Args {
		arg = strings.NewReplacer(replace...).Replace(arg)
		if strings.Contains(arg, "$(") {
			t.Errorf("%s: %s names a variable that is not there", w, arg)
		}
		filled = append(filled, arg)
	}
	return filled
}

// each runs a test on every overlay, and on one with the gateway of the E2B API.
func each(t *testing.T, test func(t *testing.T, objects manifests)) {
	for _, overlay := range overlays {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			test(t, render(t, overlay))
		})
	}
	t.Run("default with "+e2b, func(t *testing.T) {
		t.Parallel()
		test(t, renderWith(t, "default", e2b))
	})
}
