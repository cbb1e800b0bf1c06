// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// A client that would rather have protobuf gets it in our group. In those of agent-sandbox it gets JSON
// if it takes that, and an error before anything is done if it does not.
func TestMediaTypes(t *testing.T) {
	server := testutil.Start(t)
	client, err := rest.HTTPClientFor(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	const protobuf = "application/vnd.kubernetes.protobuf"
	const poolsPath = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxwarmpools"
	server.Set(t, "default", "pool", 1)
	for name, tc := range map[string]struct {
		method, path, accept string
		want                 int
		contentType          string
	}{
		"namespace controller": {http.MethodDelete, claimsPath, protobuf + ",application/json", http.StatusOK, protobuf},
		"garbage collector": {
			http.MethodGet, setsPath, protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
			http.StatusOK, protobuf,
		},
		"table": {
			http.MethodGet, setsPath, protobuf + ";as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
			http.StatusOK, contentJSON,
		},
		"scale":             {http.MethodGet, setsPath + "/pool/scale", protobuf + ", */*", http.StatusOK, protobuf},
		"typed client":      {http.MethodGet, setsPath + "/pool", protobuf + ",application/json", http.StatusOK, protobuf},
		"any":               {http.MethodGet, setsPath + "/pool", "*/*", http.StatusOK, contentJSON},
		"an error":          {http.MethodGet, setsPath + "/none", protobuf + ",application/json", http.StatusNotFound, protobuf},
		"CBOR or death":     {http.MethodDelete, setsPath + "/pool", "application/cbor", http.StatusNotAcceptable, contentJSON},
		"another group":     {http.MethodGet, poolsPath + "/pool", protobuf + ",application/json", http.StatusOK, contentJSON},
		"all of another":    {http.MethodDelete, strings.Replace(poolsPath, "sandboxwarmpools", "sandboxclaims", 1), protobuf + ",application/json", http.StatusOK, contentJSON},
		"protobuf or death": {http.MethodDelete, poolsPath + "/pool", protobuf, http.StatusNotAcceptable, protobuf},
		"YAML":              {http.MethodGet, setsPath + "/pool", contentYAML, http.StatusOK, contentYAML},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, server.Config.Host+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", tc.accept)
			response, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != tc.want || response.Header.Get("Content-Type") != tc.contentType {
				t.Errorf("got %d, %q, %v, want %d: %s", response.StatusCode, response.Header.Get("Content-Type"), err, tc.want, body)
			}
		})
	}
}
