// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

func TestThreeFormsLeadToThePort(t *testing.T) {
	w := newWorld(t, nil)
	id, port := w.add(nil), listen(t, echo)
	for name, address := range forms {
		t.Run(name, func(t *testing.T) {
			r := w.request(t, http.MethodPost, "/a%2Fb/../c?q=1%2F2", strings.NewReader("hello"))
			address(r, id, port)
			for key, value := range map[string]string{
				"X-API-Key": "e2b_secret", "X-Access-Token": "of the runtime", "E2b-Traffic-Access-Token": "t", "X-Real-Ip": "1.2.3.4",
				"Authorization": "Basic dXNlcjo=", "Cookie": "c=d", "X-Mine": "stays",
			} {
				r.Header.Set(key, value)
			}
			response, body := do(t, r)
			var got echoed
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("%d %s: %v", response.StatusCode, body, err)
			}
			if got.Method != http.MethodPost || got.URI != "/a%2Fb/../c?q=1%2F2" || got.Body != "hello" || got.Host != hostOf(r) {
				t.Errorf("the sandbox got %+v", got)
			}
			for _, gone := range []string{"X-Api-Key", "X-Access-Token", "E2b-Traffic-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port", "X-Real-Ip"} {
				if value := got.Header.Get(gone); value != "" {
					t.Errorf("the sandbox got %s: %s", gone, value)
				}
			}
			cookie := "c=d"
			if name != "host" {
				cookie = ""
			}
			if got.Header.Get("Authorization") == "" || got.Header.Get("X-Mine") != "stays" || got.Header.Get("Cookie") != cookie {
				t.Errorf("the sandbox got %v", got.Header)
			}
		})
	}
}

func hostOf(r *http.Request) string {
	if r.Host != "" {
		return r.Host
	}
	return r.URL.Host
}

// TestAnswersOnASharedHostAreKeptApart: one sandbox cannot act on the pages of another.
func TestAnswersOnASharedHostAreKeptApart(t *testing.T) {
	w := newWorld(t, nil)
	id, port := w.add(nil), listen(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "a=b; DOMAIN =example.com;domain; Path=/")
		w.Header().Set("Clear-Site-Data", "*")
		w.Header().Set("Content-Security-Policy", "img-src *")
		w.Header().Set("Vary", "Accept")
		w.Header().Set("Location", "https://example.org/")
		w.WriteHeader(http.StatusFound)
	})
	for name, address := range forms {
		r := w.request(t, http.MethodGet, "/", nil)
		address(r, id, port)
		response, _ := do(t, r)
		if response.StatusCode != http.StatusFound || response.Header.Get("Location") != "https://example.org/" {
			t.Errorf("%s: a redirect is followed or lost: %v", name, response)
		}
		if vary := fmt.Sprint(response.Header.Values("Vary")); vary != "[Accept E2b-Sandbox-Id, E2b-Sandbox-Port]" && vary != "[E2b-Sandbox-Id, E2b-Sandbox-Port Accept]" {
			t.Errorf("%s: varies by %s", name, vary)
		}
		is := fmt.Sprint(response.Header.Values("Content-Security-Policy"), response.Header.Get("Set-Cookie"), response.Header.Get("Clear-Site-Data"), response.Header.Get("X-Content-Type-Options"))
		if want := map[bool]string{true: "[img-src * sandbox]nosniff", false: "[img-src *]a=b;Path=/"}[name != "host"]; strings.ReplaceAll(is, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s: got %s, want %s", name, is, want)
		}
	}
}

func TestTheTokenOfTheRuntimeGoesToItsPortOnly(t *testing.T) {
	w := newWorld(t, nil)
	w.listenAsRuntime(t, echo)
	id := w.add(func(r *routes.Route) { r.Private = true })
	response, body := w.get(t, id, proxy.RuntimePort, "X-Access-Token", "x", "X-Api-Key", "y")
	if response.StatusCode != http.StatusOK || !strings.Contains(body, `"X-Access-Token":["x"]`) || strings.Contains(body, "X-Api-Key") {
		t.Errorf("got %d %s", response.StatusCode, body)
	}
}

func TestErrorsAreJSON(t *testing.T) {
	w := newWorld(t, nil)
	id := w.add(nil)
	open := listen(t, echo)
	var closed int
	t.Run("a port that was open", func(t *testing.T) { closed = listen(t, echo) })
	breaks := listen(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })

	check := func(id string, port int, code int, says string) {
		t.Helper()
		response, body := w.get(t, id, port)
		about := id
		if code == http.StatusBadRequest {
			about = ""
		}
		wantProblem(t, response, body, code, says, about)
	}
	check(id, closed, http.StatusBadGateway, "not open")
	check(id, breaks, http.StatusBadGateway, "connection")
	check("team-a--eaaaaaaaaaaaaa", open, http.StatusBadGateway, "not found")
	check("nonsense", open, http.StatusBadRequest, "no id")
	check(id, 0, http.StatusBadRequest, "no port")
	check(w.add(func(r *routes.Route) { r.State = routes.Other }), open, http.StatusBadGateway, "not running")
	check(w.add(func(r *routes.Route) { r.State = routes.Paused }), open, http.StatusBadGateway, "not running")
	if n := w.resumes(); n != 0 {
		t.Errorf("%d sandboxes were resumed that had not asked for it", n)
	}
	stale := w.add(func(r *routes.Route) { r.State = routes.Paused })
	w.change(stale, func(r *routes.Route) { r.State = routes.Running }) // and it has no address
	check(stale, open, http.StatusBadGateway, "not running")

	w.lock.Lock()
	w.failure = fmt.Errorf("%w: %w", routes.ErrUnavailable, errors.New("10.0.0.1 refused"))
	w.lock.Unlock()
	response, body := w.get(t, id, open)
	wantProblem(t, response, body, http.StatusServiceUnavailable, "try again", id)
	if strings.Contains(body, "10.0.0.1") {
		t.Errorf("the answer tells of the inside: %s", body)
	}
}

func TestTheAPIIsNotTouched(t *testing.T) {
	w := newWorld(t, nil)
	for _, path := range []string{"/sandboxes", "/kruise/api/sandboxes", "/health"} {
		if response, _ := do(t, w.request(t, http.MethodGet, path, nil)); response.StatusCode != http.StatusTeapot {
			t.Errorf("%s: got %d", path, response.StatusCode)
		}
	}
}

func TestPrivateSandboxes(t *testing.T) {
	w := newWorld(t, nil)
	w.listenAsRuntime(t, echo)
	port := listen(t, echo)
	id := w.add(func(r *routes.Route) { r.Private, r.AutoResume = true, true })
	token := mapping.TrafficToken("token of " + id)
	if got := mapping.TrafficToken("secret"); got != "4957a99cf0ca3559f91f9161836b23a4b49842d5302fd4ad405568a6e80b63a7" {
		t.Errorf("got the token %s", got)
	}
	for name, test := range map[string]struct {
		method  string
		headers []string
		port    int
		want    int
	}{
		"with the token":              {"GET", []string{"e2b-traffic-access-token", token}, port, 200},
		"without":                     {"GET", nil, port, 403},
		"a wrong one":                 {"GET", []string{"e2b-traffic-access-token", token[1:] + "0"}, port, 403},
		"the start of it":             {"GET", []string{"e2b-traffic-access-token", token[:10]}, port, 403},
		"the runtime's own":           {"GET", []string{"e2b-traffic-access-token", "token of " + id}, port, 403},
		"in the wrong header":         {"GET", []string{"X-Access-Token", token}, port, 403},
		"a preflight":                 {"OPTIONS", []string{"Origin", "https://a.example", "Access-Control-Request-Method", "PUT"}, port, 200},
		"options without an origin":   {"OPTIONS", []string{"Access-Control-Request-Method", "PUT"}, port, 403},
		"options without a method":    {"OPTIONS", []string{"Origin", "https://a.example"}, port, 403},
		"a preflight that upgrades":   {"OPTIONS", []string{"Origin", "https://a.example", "Access-Control-Request-Method", "PUT", "Upgrade", "websocket", "Connection", "Upgrade"}, port, 403},
		"a request like a preflight":  {"PUT", []string{"Origin", "https://a.example", "Access-Control-Request-Method", "PUT"}, port, 403},
		"the runtime judges for self": {"GET", nil, proxy.RuntimePort, 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.request(t, test.method, "/", nil)
			forms["headers"](r, id, test.port)
			for i := 0; i+1 < len(test.headers); i += 2 {
				r.Header.Set(test.headers[i], test.headers[i+1])
			}
			response, body := do(t, r)
			switch {
			case test.want == http.StatusForbidden:
				wantProblem(t, response, body, http.StatusForbidden, "private", id)
			case response.StatusCode != test.want:
				t.Errorf("got %d %s, want %d", response.StatusCode, body, test.want)
			case test.method == http.MethodOptions && (len(body) > 0 || response.Header.Get("Content-Type") != ""):
				t.Errorf("a preflight tells %v %s", response.Header, body)
			}
		})
	}
	w.change(id, func(r *routes.Route) { r.State, w.running[r.UID] = routes.Paused, false })
	port = listen(t, echo) // no connection to it is open
	r := w.request(t, http.MethodOptions, "/", nil)
	forms["headers"](r, id, port)
	r.Header.Set("Origin", "https://a.example")
	r.Header.Set("Access-Control-Request-Method", "PUT")
	response, body := do(t, r)
	wantProblem(t, response, body, http.StatusBadGateway, "not running", id)
	if w.resumes() != 0 {
		t.Error("a preflight resumes a private sandbox")
	}
	if response, body := w.get(t, id, port); response.StatusCode != http.StatusForbidden || w.resumes() != 0 {
		t.Errorf("who may not come resumes a sandbox: %d %s", response.StatusCode, body)
	}
	// Anybody may resume one that is not private, so a browser's preflight does.
	w.change(id, func(r *routes.Route) { r.Private = false })
	if response, body := do(t, r.Clone(t.Context())); response.StatusCode != http.StatusOK || w.resumes() != 1 {
		t.Errorf("a preflight does not resume a sandbox: %d %s", response.StatusCode, body)
	}
}
