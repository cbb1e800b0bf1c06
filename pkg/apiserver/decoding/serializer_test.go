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
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// TestNoCBOR: with the feature gate CBORServingAndStorage the generic server adds CBOR to the
// formats and to the types of patches. It is refused, because quantities in it are not checked.
func TestNoCBOR(t *testing.T) {
	scheme := registrytest.NewScheme()
	codecs := serializer.NewCodecFactory(scheme, serializer.WithSerializer(cbor.NewSerializerInfo))
	has := func(s runtime.NegotiatedSerializer) bool {
		_, ok := runtime.SerializerInfoForMediaType(s.SupportedMediaTypes(), runtime.ContentTypeCBOR)
		return ok
	}
	served := NewSerializer(codecs, scheme)
	if !has(codecs) || has(served) {
		t.Errorf("CBOR: the feature gate adds it: %v; it is served: %v", has(codecs), has(served))
	}

	handler := WithPatchRules(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
		PatchOptions{Scheme: scheme, Codecs: served})
	for contentType, want := range map[string]int{
		"application/apply-patch+cbor":           http.StatusUnsupportedMediaType,
		"application/strategic-merge-patch+json": http.StatusUnsupportedMediaType,
		"application/apply-patch+yaml;=":         http.StatusUnsupportedMediaType,
		"":                                       http.StatusUnsupportedMediaType,
		"application/merge-patch+json":           http.StatusOK,
		"application/merge-patch+json; a=b":      http.StatusOK,
	} {
		req := httptest.NewRequest(http.MethodPatch, "/", strings.NewReader("{}"))
		req.Header.Set("Content-Type", contentType)
		req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{
			IsResourceRequest: true, Verb: "patch", APIGroup: "agents.kruise.io", APIVersion: "v1alpha1", Resource: "sandboxclaims",
		}))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", contentType, w.Code, want)
		}
	}
}
