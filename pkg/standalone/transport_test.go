// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

func TestFinishing(t *testing.T) {
	cases := map[string]struct {
		query   string
		wantErr error
	}{
		"a request is finished": {},
		"a watch is not":        {query: "?watch=true", wantErr: context.Canceled},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				cancel() // the request is on its way
				if tc.wantErr != nil {
					<-req.Context().Done()
				}
			}))
			defer server.Close()
			client, err := rest.HTTPClientFor(finishing(&rest.Config{Host: server.URL}))
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+tc.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if !errors.Is(err, tc.wantErr) {
				t.Errorf("got %v, want %v", err, tc.wantErr)
			}
			if err == nil {
				resp.Body.Close()
			}
		})
	}
}
