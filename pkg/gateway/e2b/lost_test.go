// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	versioned "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// newAPI returns an E2B API over a server that answers as the API server, and a key of team.
func newAPI(t *testing.T, handler http.HandlerFunc, wrap func(http.RoundTripper) http.RoundTripper) (api *e2b.API, key string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return newAPIOf(t, &rest.Config{Host: server.URL, WrapTransport: wrap})
}

// newAPIOf returns an E2B API over an API server, and a key of team.
func newAPIOf(t *testing.T, config *rest.Config) (api *e2b.API, key string) {
	t.Helper()
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := apikeys.OpenFile(t.TempDir(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	all := apikeys.New(kept)
	_, key, err = all.Issue(t.Context(), apikeys.Request{Team: "team", Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return e2b.New(e2b.Options{
		Keys: all, Clients: func(string) (versioned.Interface, error) { return client, nil },
		Allow:  func(apikeys.Caller) (bool, time.Duration) { return true, 0 },
		Limits: mapping.Limits{MaxTimeout: 3600}, EnvdVersion: "0.4.0", MaxAPIRequests: 10, Clock: clock.RealClock{},
	}), key
}

// code returns the code of the answer to a request of an API.
func code(t *testing.T, api *e2b.API, key, method, path, body string) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("X-API-Key", key)
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w.Code
}

const (
	sandboxID = "team--eaaaaaaaaaaaaa"
	// sandboxJSON is the sandbox of that id.
	sandboxJSON = `{"metadata":{"name":"box","namespace":"team","uid":"1","resourceVersion":"1","annotations":{"sandlot.io/claimed-by":"system:serviceaccount:team:sandlot-e2b"},"labels":{"agents.kruise.io/sandbox-id":"team--eaaaaaaaaaaaaa","agents.kruise.io/claim-name":"eaaaaaaaaaaaaa"}}}`
)

// brokenBody is an answer that is cut off.
type brokenBody struct{ io.ReadCloser }

// Read implements io.Reader.
func (brokenBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestLostConnections: a read whose connection is lost is sent again, a few times.
func TestLostConnections(t *testing.T) {
	handler := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxSet","metadata":{"name":"set","namespace":"team"}}`)
	}
	for name, lost := range map[string]error{
		"reset": syscall.ECONNRESET, "end": io.EOF, "HTTP/2": errors.New("http2: client connection lost"), "cut off": io.ErrUnexpectedEOF,
	} {
		for _, tc := range []struct {
			lost, want int
		}{{e2b.MaxRetries, http.StatusOK}, {e2b.MaxRetries + 1, http.StatusServiceUnavailable}} {
			var sent atomic.Int32
			api, key := newAPI(t, handler, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					broken := int(sent.Add(1)) <= tc.lost
					if broken && name != "cut off" {
						return nil, lost
					}
					resp, err := next.RoundTrip(r)
					if broken && err == nil {
						resp.Body = brokenBody{resp.Body}
					}
					return resp, err
				})
			})
			if got := code(t, api, key, "GET", "/templates/set", ""); got != tc.want || sent.Load() != e2b.MaxRetries+1 {
				t.Errorf("%s, %d times: %d after %d requests, want %d", name, tc.lost, got, sent.Load(), tc.want)
			}
		}
	}
}

// TestLostWrites: a write whose response is lost is sent again, and has its effect once. A sandbox that is
// gone then was deleted.
func TestLostWrites(t *testing.T) {
	w := newWorld(t)
	key := w.key("team")
	w.pool("team", "base", 1)
	id := w.create(key, `{"templateID":"base"}`)
	for _, tc := range []struct {
		lost, method, call, body string
	}{
		{"PATCH", "POST", "/timeout", `{"timeout":600}`},
		{"PATCH", "POST", "/connect", `{"timeout":900}`},
		{"PATCH", "POST", "/pause", ``},
		{"PATCH", "POST", "/resume", ``},
		{"DELETE", "DELETE", "", ``},
	} {
		var lost atomic.Bool
		after := func(r *http.Request) error {
			if r.Method == tc.lost && !lost.Swap(true) {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		w.after.Store(&after)
		if a := w.ask(key, tc.method, "/sandboxes/"+id+tc.call, "/sandboxes/{id}"+tc.call, tc.body); a.code >= 300 || !lost.Load() {
			t.Errorf("%s %s: %d %s", tc.method, tc.call, a.code, a.body)
		}
	}
}

// TestUnansweredWrites: of a write that was not answered it is not known whether it had an effect.
func TestUnansweredWrites(t *testing.T) {
	w := newWorld(t)
	key := w.key("team")
	w.pool("team", "base", 2)
	id := w.create(key, `{"templateID":"base"}`)
	before := func(r *http.Request) error {
		if r.Method == http.MethodGet {
			return nil
		}
		return errors.New("in the test")
	}
	w.before.Store(&before)
	for _, tc := range []struct{ method, path, route, body string }{
		{"POST", "/sandboxes/" + id + "/timeout", "/sandboxes/{id}/timeout", `{"timeout":600}`},
		{"DELETE", "/sandboxes/" + id, "/sandboxes/{id}", ``},
	} {
		a := w.want(http.StatusServiceUnavailable, key, tc.method, tc.path, tc.route, tc.body)
		if !strings.Contains(string(a.body), "not known whether") || a.header.Get("Retry-After") == "" {
			t.Errorf("%s %s: %s", tc.method, tc.path, a.body)
		}
	}
}

// TestBusyAPIServer: a request that the API server is too busy for is answered so at once, and repeated by
// the client.
func TestBusyAPIServer(t *testing.T) {
	for _, tc := range []struct{ method, path string }{{"GET", "/templates/set"}, {"DELETE", "/sandboxes/" + sandboxID}} {
		var sent atomic.Int32
		api, key := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && tc.method != http.MethodGet {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxList","items":[`+sandboxJSON+`]}`)
				return
			}
			sent.Add(1)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}, nil)
		if got := code(t, api, key, tc.method, tc.path, ""); got != http.StatusTooManyRequests || sent.Load() != 1 {
			t.Errorf("%s: %d after %d requests", tc.method, got, sent.Load())
		}
	}
}

// TestAPIServerThatHangs: a request ends although neither the API server answers nor the client goes away.
func TestAPIServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, key := newAPIOf(t, &rest.Config{WrapTransport: func(http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
		}})
		for _, tc := range []struct{ method, path, body string }{
			{"GET", "/sandboxes/" + sandboxID, ""}, {"GET", "/v2/sandboxes", ""}, {"DELETE", "/sandboxes/" + sandboxID, ""}, {"POST", "/sandboxes/" + sandboxID + "/timeout", `{"timeout":60}`},
			{"POST", "/sandboxes/" + sandboxID + "/pause", ""}, {"POST", "/sandboxes/" + sandboxID + "/resume", `{"timeout":60}`}, {"POST", "/sandboxes/" + sandboxID + "/connect", `{"timeout":60}`},
		} {
			if got := code(t, api, key, tc.method, tc.path, tc.body); got != http.StatusServiceUnavailable {
				t.Errorf("%s %s: %d", tc.method, tc.path, got)
			}
		}
	})
}

// TestSandboxesOfOneID: an id means the sandbox that was claimed last, or in the same second and changed last, as
// it does for the proxy.
func TestSandboxesOfOneID(t *testing.T) {
	claimed := func(name, at string) string {
		return strings.Replace(strings.Replace(sandboxJSON, `"box"`, `"`+name+`"`, 1), `"annotations":{`, `"annotations":{"agents.kruise.io/claim-timestamp":"`+at+`",`, 1)
	}
	early, late := claimed("early", "2026-01-01T00:00:00Z"), strings.Replace(claimed("late", "2026-01-01T00:00:01Z"), `"resourceVersion":"1"`, `"resourceVersion":"10"`, 1)
	before := strings.Replace(claimed("before", "2026-01-01T00:00:01Z"), `"resourceVersion":"1"`, `"resourceVersion":"9"`, 1)
	for _, items := range []string{early + "," + late, late + "," + early, before + "," + late, late + "," + before} {
		deleted := ""
		api, key := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				deleted = path.Base(r.URL.Path)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxList","items":[`+items+`]}`)
		}, nil)
		if got := code(t, api, key, "DELETE", "/sandboxes/"+sandboxID, ""); got != http.StatusNoContent || deleted != "late" {
			t.Errorf("%d, and sandbox %q is deleted", got, deleted)
		}
	}
}

// TestBusySandbox: a request for a sandbox that others change all the time is to be repeated by the client, which
// takes a 409 for its success.
func TestBusySandbox(t *testing.T) {
	sent := 0
	api, key := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodDelete {
			sent++
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Conflict","code":409}`)
			return
		}
		_, _ = io.WriteString(w, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxList","items":[`+sandboxJSON+`]}`)
	}, nil)
	if got := code(t, api, key, "DELETE", "/sandboxes/"+sandboxID, ""); got != http.StatusServiceUnavailable || sent < 2 {
		t.Errorf("%d after %d tries", got, sent)
	}
}

// TestSandboxAmongMany: however many sandboxes have the label of a claim, a request for the sandbox
// of that claim reads few of them at a time, has a slot of lists from the second page on, and
// comes to an end.
func TestSandboxAmongMany(t *testing.T) {
	var api *e2b.API
	reads := 0
	var key string
	api, key = newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		reads++
		if limit := r.URL.Query().Get("limit"); limit != "16" || e2b.SmallPage != 16 {
			t.Errorf("read %d has the limit %q", reads, limit)
		}
		if lists := api.Lists(); lists != min(reads-1, 1) {
			t.Errorf("read %d has %d slots of lists", reads, lists)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxList","metadata":{"continue":"more"},"items":[]}`)
	}, nil)
	if got := code(t, api, key, "GET", "/sandboxes/"+sandboxID, ""); got != http.StatusConflict || reads != e2b.MaxPages {
		t.Errorf("%d after %d reads", got, reads)
	}
	if lists := api.Lists(); lists != 0 {
		t.Errorf("%d slots of lists are still taken", lists)
	}
}
