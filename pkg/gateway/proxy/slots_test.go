// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

func private(r *routes.Route) { r.Private = true }

// TestRequestsWithoutATokenKeepNoneOut: whatever a private sandbox gets without its token, and however long
// that takes, requests with the token get through.
func TestRequestsWithoutATokenKeepNoneOut(t *testing.T) {
	const slots = 2
	limit := func(_ *world, o *proxy.Options) { o.PerSandbox, o.MaxForwardedRequests = slots, 100 }
	t.Run("while the token is read", func(t *testing.T) {
		reading, goOn := make(chan struct{}, 100), make(chan struct{})
		w := newWorld(t, func(w *world, o *proxy.Options) {
			limit(w, o)
			o.Token = func(context.Context, routes.Route) (string, error) {
				reading <- struct{}{}
				<-goOn
				return "token", nil
			}
		})
		id, port := w.add(private), listen(t, echo)
		var asking sync.WaitGroup
		ask := func(token string, code int) {
			asking.Go(func() {
				if response, body := w.get(t, id, port, "E2b-Traffic-Access-Token", token); response.StatusCode != code {
					t.Errorf("token %s: %d %s, want %d", token, response.StatusCode, body, code)
				}
			})
			<-reading
		}
		for range 10 * slots {
			ask("wrong", http.StatusForbidden)
		}
		ask(mapping.TrafficToken("token"), http.StatusOK)
		close(goOn)
		asking.Wait()
	})
	hang := func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			_, _ = io.WriteString(rw, "begins")
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		}
	}
	preflight := []string{"Origin", "https://a.example", "Access-Control-Request-Method", "PUT"}
	for name, test := range map[string]struct {
		method  string
		headers []string
		port    int // 0 is one of the user's
		token   func(id string) []string
	}{
		"preflights": {"OPTIONS", preflight, 0, func(id string) []string {
			return []string{"E2b-Traffic-Access-Token", mapping.TrafficToken("token of " + id)}
		}},
		"the runtime":      {"GET", nil, proxy.RuntimePort, func(id string) []string { return []string{"X-Access-Token", "token of " + id} }},
		"wrong tokens":     {"GET", []string{"X-Access-Token", "wrong"}, proxy.RuntimePort, func(id string) []string { return []string{"X-Access-Token", "token of " + id} }},
		"preflights of it": {"OPTIONS", preflight, proxy.RuntimePort, func(id string) []string { return []string{"X-Access-Token", "token of " + id} }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, limit)
			w.listenAsRuntime(t, hang)
			id, port := w.add(private), test.port
			if port == 0 {
				port = listen(t, hang)
			}
			ask := func(method, path string, headers []string) *http.Response {
				r := w.request(t, method, path, nil)
				forms["headers"](r, id, port)
				for i := 0; i+1 < len(headers); i += 2 {
					r.Header.Set(headers[i], headers[i+1])
				}
				response, err := http.DefaultTransport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = response.Body.Close() })
				return response
			}
			for range slots {
				if response := ask(test.method, "/hang", test.headers); response.StatusCode != http.StatusOK {
					t.Fatalf("without a token: %d", response.StatusCode)
				}
			}
			if response := ask(test.method, "/", test.headers); response.StatusCode != http.StatusTooManyRequests {
				t.Errorf("one more without a token: %d", response.StatusCode)
			}
			for range slots {
				if response := ask("GET", "/hang", test.token(id)); response.StatusCode != http.StatusOK {
					t.Errorf("with the token: %d", response.StatusCode)
				}
			}
			if response := ask("GET", "/", test.token(id)); response.StatusCode != http.StatusTooManyRequests {
				t.Errorf("one more with the token: %d", response.StatusCode)
			}
		})
	}
}

// TestTokenChecksAreBounded: requests whose token is checked take no slot of the sandbox, so their number is
// bounded apart.
func TestTokenChecksAreBounded(t *testing.T) {
	reading, goOn := make(chan struct{}, 100), make(chan struct{})
	w := newWorld(t, func(_ *world, o *proxy.Options) {
		o.Token = func(context.Context, routes.Route) (string, error) {
			reading <- struct{}{}
			<-goOn
			return "token", nil
		}
		o.MaxForwardedRequests = 100
	})
	id, port := w.add(private), listen(t, echo)
	var asking sync.WaitGroup
	const ofASource = 32 // half of all
	for range ofASource {
		asking.Go(func() { _, _ = w.get(t, id, port, "E2b-Traffic-Access-Token", "wrong") })
		<-reading
	}
	response, body := w.get(t, id, port, "E2b-Traffic-Access-Token", "wrong")
	wantProblem(t, response, body, http.StatusTooManyRequests, "tokens are checked", id)
	response, body = w.get(t, id, port)
	wantProblem(t, response, body, http.StatusForbidden, "is private", id)
	close(goOn)
	asking.Wait()
}

// TestPreflightOfAPrivateSandboxHasNoTrailers: they would tell as much as a body.
func TestPreflightOfAPrivateSandboxHasNoTrailers(t *testing.T) {
	w := newWorld(t, nil)
	id, port := w.add(private), listen(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Trailer", "X-Secret")
		_, _ = io.WriteString(rw, "hello")
		_ = http.NewResponseController(rw).Flush()
		rw.Header().Set("X-Secret", "announced")
		rw.Header().Set(http.TrailerPrefix+"X-Late", "not announced")
	})
	for form := range forms {
		r := w.request(t, http.MethodOptions, "/", nil)
		forms[form](r, id, port)
		r.Header.Set("Origin", "https://a.example")
		r.Header.Set("Access-Control-Request-Method", "PUT")
		if response, body := do(t, r); response.StatusCode != http.StatusOK || len(response.Trailer) > 0 || body != "" {
			t.Errorf("%s: %d %q with the trailers %v", form, response.StatusCode, body, response.Trailer)
		}
	}
}
