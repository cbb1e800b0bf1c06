// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/testutil/e2bsdk"
)

// anyKey takes each key for one of a team.
type anyKey struct{ e2b.Keys }

// Authenticate implements e2b.Keys.
func (anyKey) Authenticate(context.Context, string) (apikeys.Caller, error) {
	return apikeys.Caller{Team: "team"}, nil
}

// Check implements e2b.Keys.
func (anyKey) Check(context.Context, apikeys.Caller) error { return nil }

// TestRoutesOfSDKs: each request that an SDK can make is served, or answered 501 with what
// is not served.
func TestRoutesOfSDKs(t *testing.T) {
	sdks, err := e2bsdk.Install()
	if errors.Is(err, e2bsdk.ErrNoNPM) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	all, err := sdks.Routes()
	if err != nil {
		t.Fatal(err)
	}
	for _, sdk := range []string{"e2b", "e2b-2-50", "e2b-2-49-1", "e2b-2-49", "e2b-2-46-1", "e2b-2-46", "e2b-2-45", "e2b-2-8", "e2b-1-13"} {
		if !slices.ContainsFunc(all[sdk], func(route string) bool { return strings.HasSuffix(route, "/sandboxes") }) {
			t.Errorf("no create of %s is recognized", sdk)
		}
	}
	for _, route := range []string{"GET /secrets/{secretID}", "GET /templates/aliases/{alias}", "PUT /volumecontent/{volumeID}/file", "POST /v2/sandboxes", "PATCH /v2/templates/{templateID}"} {
		if !slices.Contains(all["e2b"], route) {
			t.Errorf("%s of the newest SDK is not recognized", route)
		}
	}
	// What is served would reach for a cluster, so only the rest is asked for.
	served := http.NewServeMux()
	for _, route := range e2b.Endpoints() {
		if route.Unserved == "" {
			served.HandleFunc(route.Method+" "+route.Path, func(http.ResponseWriter, *http.Request) {})
		}
	}
	api := e2b.New(e2b.Options{Keys: anyKey{}, Allow: func(apikeys.Caller) (bool, time.Duration) { return true, 0 }, MaxAPIRequests: 1})
	parameter := regexp.MustCompile(`\{[^}]*\}`)
	for sdk, routes := range all {
		for _, route := range routes {
			method, path, _ := strings.Cut(route, " ")
			r := httptest.NewRequest(method, parameter.ReplaceAllString(path, "x"), http.NoBody)
			if !strings.HasPrefix(path, "/volumecontent/") { // which has a token of the volume alone
				r.Header.Set("X-API-Key", "any")
			}
			if _, pattern := served.Handler(r); pattern != "" {
				continue
			}
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			a := &answer{w.Code, w.Header(), w.Body.Bytes()}
			var e e2b.Error
			if a.into(t, &e); a.code != http.StatusNotImplemented || e.Code != a.code || e.Message == "" {
				t.Errorf("%s: %s is answered %d: %s", sdk, route, a.code, a.body)
			}
		}
	}
}
