// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// labelsOf are many labels in the syntax of JSON, or of YAML in blocks.
func labelsOf(n int, format, separator string) string {
	labels := make([]string, n)
	for i := range labels {
		labels[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(labels, separator)
}

// TestManyElements: a patch or a new object with too many keys and items of lists does not reach the
// handlers, which would compute who owns them.
func TestManyElements(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	kinds := Kinds{}
	kinds.Add(v1alpha1.SchemeGroupVersion, "sandboxes", v1alpha1.SchemeGroupVersion.WithKind("Sandbox"))
	const head = `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"Sandbox","metadata":{"name":"a","labels":{`
	const block = "apiVersion: agents.kruise.io/v1alpha1\nkind: Sandbox\nmetadata:\n  name: a\n"
	const flow = "apiVersion: agents.kruise.io/v1alpha1\nkind: Sandbox\nmetadata: {name: a}\nspec: {}\n"
	labels := labelsOf(maxElements, `"k%d":""`, ",")
	apply, merge, jsonPatch := string(types.ApplyYAMLPatchType), string(types.MergePatchType), string(types.JSONPatchType)
	for name, tc := range map[string]struct {
		verb, contentType, body string
		want                    int
	}{
		"apply":                   {"patch", apply, head + labels + `}}}`, http.StatusBadRequest},
		"apply of a few":          {"patch", apply, head + labelsOf(maxElements-10, `"k%d":""`, ",") + `}}}`, http.StatusOK},
		"apply of one long text":  {"patch", apply, head + `},"annotations":{"a":"` + strings.Repeat(",:[-?&", maxElements) + `"}}}`, http.StatusOK},
		"apply of YAML":           {"patch", apply, block + "  labels:\n" + labelsOf(maxElements, `    k%d: ""`, "\n"), http.StatusBadRequest},
		"apply of text in YAML":   {"patch", apply, block + "  annotations:\n    a: |\n" + labelsOf(maxElements, `      - k%d:`, "\n"), http.StatusOK},
		"apply of aliases":        {"patch", apply, flow + "status:\n  a: &a {" + labelsOf(900, "k%d: b", ", ") + "}\n" + labelsOf(20, "  b%d: *a", "\n"), http.StatusBadRequest},
		"apply of nested lists":   {"patch", apply, head + `}},"spec":{"x":[` + strings.TrimSuffix(strings.Repeat(strings.Repeat("[", 100)+strings.Repeat("]", 100)+",", 101), ",") + `]}}`, http.StatusBadRequest},
		"apply of a subresource":  {"patch/scale", apply, head + labels + `}}}`, http.StatusBadRequest},
		"merge patch":             {"patch", merge, head + labels + `}}}`, http.StatusBadRequest},
		"JSON patch":              {"patch", jsonPatch, `[{"op":"add","path":"/metadata/labels","value":{"a":"",` + labels + `}}]`, http.StatusBadRequest},
		"long JSON patch":         {"patch", jsonPatch, `[` + labelsOf(5000, `{"op":"add","path":"/metadata/labels/a%d","value":"b"}`, ",") + `]`, http.StatusOK},
		"JSON patch of a few":     {"patch", jsonPatch, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, http.StatusOK},
		"create":                  {"create", "application/json", head + labels + `}}}`, http.StatusBadRequest},
		"create of YAML":          {"create", "application/yaml", block + "  labels:\n" + labelsOf(maxElements, `    k%d: ""`, "\n"), http.StatusBadRequest},
		"create of a release":     {"create/release", "application/json", head + labels + `}}}`, http.StatusOK},
		"merge patch of a status": {"patch/status", merge, head + labels + `}}}`, http.StatusOK},
		"JSON patch of a status":  {"patch/status", jsonPatch, `[{"op":"add","path":"/metadata/labels","value":{` + labels + `}}]`, http.StatusOK},
		"create in chunks":        {"create/", "application/json", head + labels + `}}}`, http.StatusBadRequest},
		"create of a few":         {"create", "application/json", head + labelsOf(maxElements-10, `"k%d":""`, ",") + `}}}`, http.StatusOK},
		"create of what is wrong": {"create", "application/json", head + labels, http.StatusOK},
		"call of a proxy":         {"create/proxy", "application/json", head + labels + `}}}`, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			verb, subresource, _ := strings.Cut(tc.verb, "/")
			got := ""
			handler := WithPatchRules(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				body, err := io.ReadAll(req.Body)
				if err != nil {
					t.Error(err)
				}
				got = string(body)
			}), PatchOptions{Scheme: scheme, Codecs: codecs, Kinds: kinds, MaxBytes: 4 << 20})
			req := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(), &request.RequestInfo{
				IsResourceRequest: true, Verb: verb, APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "sandboxes", Subresource: subresource,
			}), http.MethodPost, "/", strings.NewReader(tc.body))
			if tc.verb == "create/" {
				req.ContentLength = -1
			}
			req.Header.Set("Content-Type", tc.contentType)
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, req)
			if answer.Code != tc.want || answer.Code == http.StatusOK && got != tc.body {
				t.Errorf("%d, %.300s; %d of %d bytes went on", answer.Code, answer.Body, len(got), len(tc.body))
			}
			if answer.Code != http.StatusOK && !strings.Contains(answer.Body.String(), "keys and items of lists") {
				t.Errorf("%.300s", answer.Body)
			}
		})
	}
}

// TestLargeManagedFieldsAreDropped: managedFields in a body that are too large count as none.
func TestLargeManagedFieldsAreDropped(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	negotiated := NewSerializer(serializer.NewCodecFactory(scheme), scheme)
	decoder := negotiated.DecoderToVersion(negotiated.SupportedMediaTypes()[0].StrictSerializer, v1alpha1.SchemeGroupVersion)
	for bytes, want := range map[int]int{100: 1, base.MaxManagedFields: 0} {
		body := `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"Sandbox","metadata":{"name":"a","managedFields":[{"manager":"m","fieldsType":"FieldsV1","fieldsV1":{"f:` + strings.Repeat("x", bytes) + `":{}}}]}}`
		obj, _, err := decoder.Decode([]byte(body), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if object := obj.(metav1.Object); len(object.GetManagedFields()) != want || object.GetName() != "a" {
			t.Errorf("%d bytes: %d entries are left, want %d", bytes, len(object.GetManagedFields()), want)
		}
	}
}
