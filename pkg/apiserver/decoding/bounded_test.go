// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestBoundedMessages: whatever long text a body has, and wherever, the message of the error
// is of bounded size, for bodies as for patches.
func TestBoundedMessages(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	negotiated := NewSerializer(codecs, scheme)
	kind := v1alpha1.SchemeGroupVersion.WithKind("Sandbox")
	kinds := Kinds{}
	kinds.Add(v1alpha1.SchemeGroupVersion, "sandboxes", kind)
	long := strings.Repeat("x", 1<<20)
	for name, fields := range map[string]string{
		"key of an element": `"spec":{"template":{"spec":{"containers":[{"name":"` + long + `"},{"name":"` + long + `"}]}}}`,
		"element of a set":  `"spec":{"template":{"metadata":{"finalizers":["` + long + `","` + long + `"]}}}`,
		"key of a map":      `"metadata":{"labels":{"` + long + `":5}}`,
		"name of a field":   `"spec":{"` + long + `":5}`,
		"many fields":       `"spec":{"` + strings.Join(strings.Split(strings.Repeat("y", 90), ""), strings.Repeat("z", 1<<10)+`":1,"`) + `":1}`,
		"time":              `"spec":{"shutdownTime":"` + long + `"}`,
		"value":             `"spec":{"paused":"` + long + `"}`,
		"version":           `"metadata":{"resourceVersion":"` + long + `"}`,
	} {
		body := `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"Sandbox",` + fields + `}`
		said := 0
		strict := negotiated.SupportedMediaTypes()[0].StrictSerializer
		_, _, err := negotiated.DecoderToVersion(strict, v1alpha1.SchemeGroupVersion).Decode([]byte(body), &kind, nil)
		if err != nil {
			said++
			if len(err.Error()) > 2*maxMessage {
				t.Errorf("%s: a body is answered with %d bytes", name, len(err.Error()))
			}
		}
		for _, patch := range []types.PatchType{types.ApplyYAMLPatchType, types.MergePatchType} {
			handler := WithPatchRules(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
				PatchOptions{Scheme: scheme, Codecs: codecs, Kinds: kinds, MaxBytes: 4 << 20})
			req := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(), &request.RequestInfo{
				IsResourceRequest: true, Verb: "patch", APIGroup: kind.Group, APIVersion: kind.Version, Resource: "sandboxes",
			}), http.MethodPatch, "/", strings.NewReader(body))
			req.Header.Set("Content-Type", string(patch))
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, req)
			if answer.Code >= http.StatusBadRequest {
				said++
			}
			if answer.Body.Len() > 4*maxMessage {
				t.Errorf("%s: %s is answered with %d bytes", name, patch, answer.Body.Len())
			}
		}
		if said == 0 {
			t.Errorf("%s: is taken", name)
		}
	}
}
