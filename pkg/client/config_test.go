// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/scheme"
)

// TestMediaTypes: a client accepts protobuf and JSON, whichever the server has, and sends JSON. A program
// may set other media types.
func TestMediaTypes(t *testing.T) {
	const js, protobuf = runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	for name, tc := range map[string]struct {
		config       rest.Config
		answer       string
		accept, sent string
	}{
		"a server":       {answer: protobuf, accept: protobuf + "," + js, sent: js},
		"an older one":   {answer: js, accept: protobuf + "," + js, sent: js},
		"JSON is chosen": {config: rest.Config{ContentConfig: rest.ContentConfig{ContentType: js}}, answer: js, accept: js, sent: js},
		"all protobuf":   {config: rest.Config{ContentConfig: rest.ContentConfig{ContentType: protobuf}}, answer: protobuf, accept: protobuf, sent: protobuf},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if accept, sent := r.Header.Get("Accept"), r.Header.Get("Content-Type"); accept != tc.accept && accept != tc.accept+", */*" || sent != tc.sent {
					t.Errorf("accepts %q and sends %q, want %q and %q", accept, sent, tc.accept, tc.sent)
				}
				info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), tc.answer)
				w.Header().Set("Content-Type", tc.answer)
				claim := &v1alpha1.SandboxClaim{
					TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxClaim"}, ObjectMeta: metav1.ObjectMeta{Name: "made"},
				}
				if err := info.Serializer.Encode(claim, w); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			config := tc.config
			config.Host = server.URL
			client, err := NewForConfig(&config)
			if err != nil {
				t.Fatal(err)
			}
			made, err := client.AgentsV1alpha1().SandboxClaims("default").Create(t.Context(), &v1alpha1.SandboxClaim{}, metav1.CreateOptions{})
			if err != nil || made.Name != "made" {
				t.Errorf("got %v, %v", made, err)
			}
		})
	}
}
