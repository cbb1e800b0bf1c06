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

const elementsHead = `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"Sandbox","metadata":{"name":"a","labels":{`

// TestManyElements: an apply with too many keys and items of lists does not reach the handlers, which
// would compute who owns them. Nor does a long status that the server would not take over.
func TestManyElements(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	kinds := Kinds{}
	kinds.Add(v1alpha1.SchemeGroupVersion, "sandboxes", v1alpha1.SchemeGroupVersion.WithKind("Sandbox"))
	const head = elementsHead
	const block = "apiVersion: agents.kruise.io/v1alpha1\nkind: Sandbox\nmetadata:\n  name: a\n"
	const flow = "apiVersion: agents.kruise.io/v1alpha1\nkind: Sandbox\nmetadata: {name: a}\nspec: {}\n"
	const jsonType, yamlType, apply = "application/json", "application/yaml", string(types.ApplyYAMLPatchType)
	const merge, jsonPatch = string(types.MergePatchType), string(types.JSONPatchType)
	labels := labelsOf(maxElements, `"k%d":""`, ",")
	longStatus := `,"status":{"x":{` + labels + `}},"spec":{"status":[1]}}`
	for name, tc := range map[string]struct {
		verb, contentType, body, want string // want is the body that the handlers get
	}{
		"apply":                    {"patch", apply, head + labels + `}}}`, ""},
		"apply of a few":           {"patch", apply, head + labelsOf(maxElements-10, `"k%d":""`, ",") + `}}}`, "same"},
		"apply of one long text":   {"patch", apply, head + `},"annotations":{"a":"` + strings.Repeat(",:[-?&", maxElements) + `"}}}`, "same"},
		"apply of YAML":            {"patch", apply, block + "  labels:\n" + labelsOf(maxElements, `    k%d: ""`, "\n"), ""},
		"apply of text in YAML":    {"patch", apply, block + "  annotations:\n    a: |\n" + labelsOf(maxElements, `      - k%d:`, "\n"), "same"},
		"apply of aliases":         {"patch", apply, flow + "status:\n  a: &a {" + labelsOf(900, "k%d: b", ", ") + "}\n" + labelsOf(20, "  b%d: *a", "\n"), ""},
		"apply of nested lists":    {"patch", apply, head + `}},"spec":{"x":[` + strings.TrimSuffix(strings.Repeat(strings.Repeat("[", 100)+strings.Repeat("]", 100)+",", 101), ",") + `]}}`, ""},
		"apply of a subresource":   {"patch/scale", apply, head + labels + `}}}`, ""},
		"apply of a status":        {"patch/status", apply, head + `}}` + longStatus, ""},
		"merge patch":              {"patch", merge, head + labels + `}}}`, ""},
		"JSON patch":               {"patch", jsonPatch, `[{"op":"add","path":"/metadata/labels","value":{"a":"",` + labels + `}}]`, ""},
		"long JSON patch":          {"patch", jsonPatch, `[` + labelsOf(5000, `{"op":"add","path":"/metadata/labels/a%d","value":"b"}`, ",") + `]`, "same"},
		"JSON patch of a few":      {"patch", jsonPatch, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, "same"},
		"merge patch of a status":  {"patch/status", merge, head + labels + `}}}`, "same"},
		"JSON patch of a status":   {"patch/status", jsonPatch, `[{"op":"add","path":"/metadata/labels","value":{` + labels + `}}]`, "same"},
		"create with status":       {"create", jsonType, head + `}}` + longStatus, head + `}},"status":{},"spec":{"status":[1]}}`},
		"create of unknown length": {"create/", jsonType, head + `}}` + longStatus, head + `}},"status":{},"spec":{"status":[1]}}`},
		"create with two statuses": {"create", jsonType, `{"status":1,` + (head + `}}` + longStatus)[1:], `{"status":{},` + head[1:] + `}},"status":{},"spec":{"status":[1]}}`},
		"create without type":      {"create", "", head + `}}` + longStatus, head + `}},"status":{},"spec":{"status":[1]}}`},
		"create of YAML":           {"create", yamlType, block + "  labels:\n" + labelsOf(maxElements, `    k%d: ""`, "\n"), ""},
		"create of many":           {"create", jsonType, head + labels + `}}}`, ""},
		"update of many":           {"update", jsonType, head + labels + `}}}`, head + labels + `}}}`},
		"create with some status":  {"create", jsonType, head + `}},"status":{"x":{"y":"` + strings.Repeat("x", shortBody) + `"}}}`, "same"},
		"create of a few":          {"create", jsonType, head + labelsOf(maxElements-10, `"k%d":""`, ",") + `}}}`, "same"},
		"create of what is wrong":  {"create", jsonType, head + labels, "same"},
		"update with status":       {"update", jsonType, head + `}}` + longStatus, head + `}},"status":{},"spec":{"status":[1]}}`},
		"update of a status":       {"update/status", jsonType, head + `}}` + longStatus, "same"},
		"call of a proxy":          {"create/proxy", jsonType, head + labels + `}}}`, "same"},
	} {
		t.Run(name, func(t *testing.T) {
			verb, subresource, _ := strings.Cut(tc.verb, "/")
			got := ""
			handler := WithPatchRules(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				body, err := io.ReadAll(req.Body)
				if err != nil {
					t.Error(err)
				}
				if req.ContentLength >= 0 && req.ContentLength != int64(len(body)) {
					t.Errorf("the length of the body is %d, and said to be %d", len(body), req.ContentLength)
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
			want := tc.want
			if want == "same" {
				want = tc.body
			}
			if got != want {
				t.Errorf("%d, %.300s; %d of %d bytes went on: %.300s", answer.Code, answer.Body, len(got), len(tc.body), got)
			}
			if want == "" && (answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "keys and items of lists")) {
				t.Errorf("%d, %.300s", answer.Code, answer.Body)
			}
		})
	}
}

// TestManyDecodedElements: what is created or updated, and what an object becomes by a patch, does
// not decode with too many keys and items of lists.
func TestManyDecodedElements(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	negotiated := NewSerializer(serializer.NewCodecFactory(scheme), scheme)
	const claimHead = `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"a"},`
	sandboxes := func(n int) string {
		return claimHead + `"status":{"sandboxes":[` + labelsOf(n, `{"name":"a-%d","uid":"b","podIPs":["1.1.1.1","1::1"]}`, ",") + `]}}`
	}
	const flow = "apiVersion: agents.kruise.io/v1alpha1\nkind: Sandbox\nmetadata:\n  name: a\n  labels: &a {"
	for name, tc := range map[string]struct {
		mediaType, body string
		into            runtime.Object
		refused         bool
	}{
		"few":                  {"application/json", elementsHead + labelsOf(maxElements-10, `"k%d":""`, ",") + `}}}`, &v1alpha1.Sandbox{}, false},
		"many":                 {"application/json", elementsHead + labelsOf(maxDecodedElements, `"k%d":""`, ",") + `}}}`, &v1alpha1.Sandbox{}, true},
		"many in YAML":         {"application/yaml", elementsHead + labelsOf(maxDecodedElements, `"k%d":""`, ",") + `}}}`, &v1alpha1.Sandbox{}, true},
		"many managed fields":  {"application/json", elementsHead + `},"managedFields":[{"fieldsV1":{` + labelsOf(maxDecodedElements, `"f:k%d":{}`, ",") + `}}]}}`, &v1alpha1.Sandbox{}, false},
		"aliases in YAML":      {"application/yaml", flow + labelsOf(900, "k%d: b", ", ") + "}\nspec:\n  template:\n    a: [" + strings.TrimSuffix(strings.Repeat("*a,", 100), ",") + "]\n", &v1alpha1.Sandbox{}, true},
		"the largest status":   {"application/json", sandboxes(10_000), &v1alpha1.SandboxClaim{}, false},
		"too large a status":   {"application/json", sandboxes(12_000), &v1alpha1.SandboxClaim{}, true},
		"release of very many": {"application/json", `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaimRelease","spec":{"sandboxNames":[` + labelsOf(10_000, `"a-%d"`, ",") + `]}}`, &v1alpha1.SandboxClaimRelease{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			info, ok := runtime.SerializerInfoForMediaType(negotiated.SupportedMediaTypes(), tc.mediaType)
			if !ok {
				t.Fatal(tc.mediaType)
			}
			serializer := info.StrictSerializer
			_, _, err := negotiated.DecoderToVersion(serializer, v1alpha1.SchemeGroupVersion).Decode([]byte(tc.body), nil, tc.into)
			if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), "keys and items of lists") {
				t.Errorf("%.300v", err)
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
