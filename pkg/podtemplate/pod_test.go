// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

func sandboxOf(template string, claims ...string) *v1alpha1.Sandbox {
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "box", UID: "u"}}
	sandbox.Spec.Template = &runtime.RawExtension{Raw: []byte(template)}
	for _, claim := range claims {
		sandbox.Spec.VolumeClaimTemplates = append(sandbox.Spec.VolumeClaimTemplates, runtime.RawExtension{Raw: []byte(claim)})
	}
	return sandbox
}

const (
	boxOwner = `[{"apiVersion":"agents.kruise.io/v1alpha1","kind":"Sandbox","name":"box","uid":"u","controller":true,"blockOwnerDeletion":true}]`
	// boxAgent are the labels by which agent-sandbox knows the pod.
	boxAgent = `"agents.x-k8s.io/created-by":"unknown","agents.x-k8s.io/sandbox-name-hash":"70c67e32"`
	boxOnly  = `"annotations":{"agents.kruise.io/created-by":"sandbox"},
		"labels":{"agents.kruise.io/created-by":"sandbox","agents.kruise.io/sandbox-name":"box",` + boxAgent + `,"pod-template-hash":"rev"}`
	oneContainer = `"containers":[{"name":"c","image":"i"}]`
)

// object decodes JSON as the API machinery does.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	decoded := &unstructured.Unstructured{}
	if err := decoded.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return decoded.Object
}

func TestPod(t *testing.T) {
	pod := func(metadata, spec string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"ns","name":"box","ownerReferences":` + boxOwner + `,` + metadata + `},"spec":{` + spec + `}}`
	}
	const noToken = `,"automountServiceAccountToken":false`
	tests := map[string]struct {
		template string
		claims   []string
		want     string
	}{
		"plain": {
			template: `{"spec":{` + oneContainer + `}}`,
			want:     pod(boxOnly, oneContainer+noToken),
		},
		"metadata": {
			template: `{"metadata":{"name":"other","namespace":"other","uid":"x","finalizers":["example.com/f"],
				"labels":{"app":"x","agents.kruise.io/owner":"claim-uid"},"annotations":{"note":"n"}},"spec":{` + oneContainer + `}}`,
			want: pod(`"finalizers":["example.com/f"],
				"annotations":{"agents.kruise.io/created-by":"sandbox","note":"n",
					"sandlot.io/template-metadata":"{\"labels\":[\"agents.kruise.io/owner\",\"app\"],\"annotations\":[\"note\"]}"},
				"labels":{"agents.kruise.io/created-by":"sandbox","agents.kruise.io/sandbox-name":"box",`+boxAgent+`,"pod-template-hash":"rev",
					"app":"x","agents.kruise.io/owner":"claim-uid"}`, oneContainer+noToken),
		},
		"a template that says whose it is": {
			template: `{"metadata":{"labels":{"pod-template-hash":"x","agents.kruise.io/created-by":"me","agents.kruise.io/sandbox-name":"other"}},"spec":{` + oneContainer + `}}`,
			want: pod(`"annotations":{"agents.kruise.io/created-by":"sandbox",
					"sandlot.io/template-metadata":"{\"labels\":[\"agents.kruise.io/created-by\",\"agents.kruise.io/sandbox-name\",\"pod-template-hash\"]}"},
				"labels":{"agents.kruise.io/created-by":"sandbox","agents.kruise.io/sandbox-name":"box",`+boxAgent+`,"pod-template-hash":"rev"}`, oneContainer+noToken),
		},
		"asks for a token": {
			template: `{"spec":{"automountServiceAccountToken":true,` + oneContainer + `}}`,
			want:     pod(boxOnly, oneContainer+`,"automountServiceAccountToken":true`),
		},
		"token null": {
			template: `{"spec":{"automountServiceAccountToken":null,` + oneContainer + `}}`,
			want:     pod(boxOnly, oneContainer+noToken),
		},
		"fields of the future": {
			template: `{"spec":{"future":{"n":9007199254740993,"list":[1,2.5,"x",null]},` + oneContainer + `}}`,
			want:     pod(boxOnly, `"future":{"n":9007199254740993,"list":[1,2.5,"x",null]},`+oneContainer+noToken),
		},
		"empty strings that the API server refuses": {
			template: `{"spec":{"runtimeClassName":"","hostname":"","containers":[{"name":"c","image":"i","volumeMounts":[{"name":"v","mountPath":"/v","mountPropagation":""}]}]}}`,
			want:     pod(boxOnly, `"hostname":"","containers":[{"name":"c","image":"i","volumeMounts":[{"name":"v","mountPath":"/v"}]}]`+noToken),
		},
		"volumes": {
			template: `{"spec":{` + oneContainer + `,"volumes":[{"name":"tmp","emptyDir":{}},{"name":"data","emptyDir":{}}]}}`,
			claims:   []string{`{"metadata":{"name":"data"},"spec":{}}`, `{"metadata":{"name":"more"},"spec":{}}`},
			want: pod(boxOnly, oneContainer+noToken+`,"volumes":[{"name":"tmp","emptyDir":{}},
				{"name":"data","persistentVolumeClaim":{"claimName":"data-box"}},
				{"name":"more","persistentVolumeClaim":{"claimName":"more-box"}}]`),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sandbox := sandboxOf(test.template, test.claims...)
			before := sandbox.DeepCopy()
			got, err := podtemplate.Pod(sandbox, "rev")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(object(t, test.want), got.Object); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, sandbox); diff != "" {
				t.Errorf("the sandbox changed (-before +after):\n%s", diff)
			}
			got.DeepCopy() // panics where a value is of a type that no decoder makes
		})
	}
}

func TestPodOfALongName(t *testing.T) {
	sandbox := sandboxOf(`{"spec":{` + oneContainer + `}}`)
	sandbox.Name = strings.Repeat("a", 64)
	pod, err := podtemplate.Pod(sandbox, "rev")
	if err != nil {
		t.Fatal(err)
	}
	if name, ok := pod.GetLabels()[v1alpha1.LabelSandboxName]; ok {
		t.Errorf("label %s", name)
	}
}

// The label is the sandbox's, which its claim or user cannot change, and never that
// of a pod template.
func TestPodOfATemplate(t *testing.T) {
	const lying = `{"metadata":{"labels":{"agents.kruise.io/sandbox-template":"open"}},"spec":{` + oneContainer + `}}`
	for name, labels := range map[string]map[string]string{
		"of a template": {v1alpha1.LabelSandboxTemplate: "closed"},
		"of none":       nil,
	} {
		sandbox := sandboxOf(lying)
		sandbox.Labels = labels
		pod, err := podtemplate.Pod(sandbox, "rev")
		if err != nil {
			t.Fatal(err)
		}
		want, wanted := labels[v1alpha1.LabelSandboxTemplate]
		if got, ok := pod.GetLabels()[v1alpha1.LabelSandboxTemplate]; got != want || ok != wanted {
			t.Errorf("%s: label %q, %v", name, got, ok)
		}
		// Pods that were made before the label was there are as they should be.
		older := pod.GetLabels()
		delete(older, v1alpha1.LabelSandboxTemplate)
		if podtemplate.PodMetadataOutdated(older, "rev") {
			t.Errorf("%s: a pod without the label is outdated", name)
		}
	}
}

func TestPodWithRuntimes(t *testing.T) {
	sandbox := sandboxOf(`{"metadata":{"labels":{"app":"x","mine":"1"}},"spec":{`+oneContainer+`}}`,
		`{"metadata":{"name":"data"},"spec":{}}`)
	runtime := parse(t, `
metadata:
  labels: {app: other, side: car, agents.kruise.io/owner: me}
  annotations: {note: note}
spec:
  volumes: [{name: data, emptyDir: {}}, {name: tools, emptyDir: {}}]
`)
	template, err := podtemplate.Inject(sandbox.Spec.Template, runtime)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := podtemplate.PodWithRuntimes(sandbox, template, "rev")
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{
		"app": "x", "mine": "1", "side": "car", "pod-template-hash": "rev",
		v1alpha1.LabelCreatedBy: "sandbox", v1alpha1.LabelSandboxName: "box",
		v1alpha1.AgentLabelCreatedBy: "unknown", v1alpha1.AgentLabelNameHash: v1alpha1.NameHash("box"),
	}
	if diff := cmp.Diff(labels, pod.GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	annotations := map[string]string{
		"note": "note", v1alpha1.AnnotationCreatedBy: "sandbox", v1alpha1.AnnotationTemplateMetadata: `{"labels":["app","mine"]}`,
	}
	if diff := cmp.Diff(annotations, pod.GetAnnotations()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	volumes, _, err := unstructured.NestedSlice(pod.Object, "spec", "volumes")
	if err != nil || len(volumes) != 2 || volumes[0].(map[string]any)["persistentVolumeClaim"] == nil {
		t.Errorf("volumes %v, %v", volumes, err)
	}
}

func TestPodRefusals(t *testing.T) {
	for name, sandbox := range map[string]*v1alpha1.Sandbox{
		"no template":     {},
		"no object":       sandboxOf(`[]`),
		"null":            sandboxOf(`null`),
		"no spec":         sandboxOf(`{}`),
		"spec no object":  sandboxOf(`{"spec":1}`),
		"volumes no list": sandboxOf(`{"spec":{"volumes":{}}}`, `{"metadata":{"name":"data"}}`),
		"unnamed claim":   sandboxOf(`{"spec":{}}`, `{}`),
		"labels no map":   sandboxOf(`{"metadata":{"labels":[]},"spec":{}}`),
		"finalizers":      sandboxOf(`{"metadata":{"finalizers":{}},"spec":{}}`),
	} {
		if pod, err := podtemplate.Pod(sandbox, "rev"); err == nil {
			t.Errorf("%s: made %v", name, pod)
		}
	}
}

func TestVolumeClaims(t *testing.T) {
	claim := func(metadata, spec string) string {
		return `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"namespace":"ns","name":"data-box","ownerReferences":` + boxOwner + `,` + metadata + `},"spec":{` + spec + `}}`
	}
	const ours = `"agents.kruise.io/created-by":"sandbox","agents.kruise.io/sandbox-name":"box","agents.x-k8s.io/sandbox-name-hash":"70c67e32"`
	const labels = `"labels":{` + ours + `}`
	const request = `"resources":{"requests":{"storage":"1Gi"}}`
	tests := map[string]struct{ template, want string }{
		"defaults": {
			template: `{"metadata":{"name":"data"},"spec":{` + request + `}}`,
			want:     claim(labels, request+`,"accessModes":["ReadWriteOnce"],"volumeMode":"Filesystem"`),
		},
		"empty strings": {
			template: `{"metadata":{"name":"data"},"spec":{` + request + `,"volumeMode":"","storageClassName":""}}`,
			want:     claim(labels, request+`,"accessModes":["ReadWriteOnce"],"volumeMode":"Filesystem","storageClassName":""`),
		},
		"said otherwise": {
			template: `{"metadata":{"name":"data"},"spec":{` + request + `,"accessModes":["ReadWriteMany"],"volumeMode":"Block","future":1}}`,
			want:     claim(labels, request+`,"accessModes":["ReadWriteMany"],"volumeMode":"Block","future":1`),
		},
		"metadata": {
			template: `{"metadata":{"name":"data","namespace":"x","labels":{"a":"b"},"annotations":{"c":"d"}},"spec":{` + request + `}}`,
			want: claim(`"annotations":{"c":"d"},"labels":{"a":"b",`+ours+`}`,
				request+`,"accessModes":["ReadWriteOnce"],"volumeMode":"Filesystem"`),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := podtemplate.VolumeClaims(sandboxOf(`{}`, test.template))
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			if diff := cmp.Diff(object(t, test.want), got[0].Object); diff != "" {
				t.Errorf("claim (-want +got):\n%s", diff)
			}
		})
	}
	for _, template := range []string{`{}`, `{"metadata":{"name":"data"}}`, `{"metadata":{"name":1},"spec":{}}`, `[]`} {
		if got, err := podtemplate.VolumeClaims(sandboxOf(`{}`, template)); err == nil {
			t.Errorf("%s: made %v", template, got)
		}
	}
}

// What the template no longer wants goes, what others added stays.
func TestPodMetadataPatch(t *testing.T) {
	before, err := podtemplate.Pod(sandboxOf(`{"metadata":{"labels":{"a":"1","b":"2"},"annotations":{"x":"1"}},"spec":{}}`), "old")
	if err != nil {
		t.Fatal(err)
	}
	patch := func(template string, annotations map[string]string) map[string]any {
		raw, err := podtemplate.PodMetadataPatch(sandboxOf(template), "new", "pod-uid", annotations)
		if err != nil {
			t.Fatal(err)
		}
		var decoded map[string]any
		if err := json.Unmarshal(raw, &decoded); err != nil {
			t.Fatal(err)
		}
		return decoded
	}
	ours := map[string]any{
		"agents.x-k8s.io/created-by": "unknown", "agents.x-k8s.io/sandbox-name-hash": "70c67e32", "agents.x-k8s.io/warm-pool-sandbox": nil,
		"agents.kruise.io/created-by": "sandbox", "agents.kruise.io/sandbox-name": "box", "pod-template-hash": "new", "b": "3", "c": "4",
	}
	want := map[string]any{"metadata": map[string]any{
		"uid":    "pod-uid",
		"labels": ours,
		"ownerReferences": []any{map[string]any{
			"apiVersion": "agents.kruise.io/v1alpha1", "kind": "Sandbox", "name": "box", "uid": "u", "controller": true, "blockOwnerDeletion": true,
		}},
		"annotations": map[string]any{
			"agents.kruise.io/created-by": "sandbox", "sandlot.io/template-metadata": `{"labels":["b","c"]}`,
		},
	}}
	const template = `{"metadata":{"labels":{"b":"3","c":"4"}},"spec":{}}`
	if diff := cmp.Diff(want, patch(template, nil)); diff != "" {
		t.Errorf("nothing known (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, patch(template, map[string]string{v1alpha1.AnnotationTemplateMetadata: "{"})); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}
	ours["a"] = nil
	want["metadata"].(map[string]any)["annotations"].(map[string]any)["x"] = nil
	if diff := cmp.Diff(want, patch(template, before.GetAnnotations())); diff != "" {
		t.Errorf("with what was there (-want +got):\n%s", diff)
	}
	got := patch(`{"spec":{}}`, before.GetAnnotations())["metadata"].(map[string]any)["annotations"].(map[string]any)
	if value, ok := got[v1alpha1.AnnotationTemplateMetadata]; !ok || value != nil {
		t.Errorf("without metadata the list of it is %v, %v", value, ok)
	}
}

func TestPodMetadataOutdated(t *testing.T) {
	pod, err := podtemplate.Pod(sandboxOf(`{"spec":{}}`), "rev")
	if err != nil {
		t.Fatal(err)
	}
	labels := pod.GetLabels()
	if podtemplate.PodMetadataOutdated(labels, "rev") {
		t.Error("a new pod is outdated")
	}
	if !podtemplate.PodMetadataOutdated(labels, "other") {
		t.Error("a pod of another revision is not outdated")
	}
	delete(labels, v1alpha1.LabelCreatedBy)
	if !podtemplate.PodMetadataOutdated(labels, "rev") {
		t.Error("a pod that the cache would leave out is not outdated")
	}
}
