// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"net/http"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

// TestPrivateSandboxIsResumedByItsToken: a request to the agent-runtime of a private sandbox resumes it only
// with the access token.
func TestPrivateSandboxIsResumedByItsToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.listenAsRuntime(t, echo)
	id := w.add(func(r *routes.Route) { r.Private, r.AutoResume, r.State = true, true, routes.Paused })
	for _, token := range []string{"", "another"} {
		if response, body := w.get(t, id, proxy.RuntimePort, "X-Access-Token", token); w.resumes() != 0 {
			t.Errorf("resumed by token %q: %d %s", token, response.StatusCode, body)
		}
	}
	if response, body := w.get(t, id, proxy.RuntimePort, "X-Access-Token", "token of "+id); w.resumes() != 1 || response.StatusCode != http.StatusOK {
		t.Errorf("%d resumes by the access token: %d %s", w.resumes(), response.StatusCode, body)
	}
}

// TestInitIsNotForwarded: clients do not initialize agent-runtimes.
func TestInitIsNotForwarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.listenAsRuntime(t, echo)
	id := w.add(nil)
	for path, code := range map[string]int{
		"/init": 403, "//init": 403, "/init/": 403, "/./init": 403, "/a/../init": 403, "/%69nit": 403, "/init?a=b": 403,
		"/initial": 200, "/a/init": 200, "/": 200,
	} {
		for name, form := range forms {
			r := w.request(t, http.MethodPost, path, nil)
			form(r, id, proxy.RuntimePort)
			if response, body := do(t, r); response.StatusCode != code {
				t.Errorf("%s, %s: %d %s, want %d", path, name, response.StatusCode, body, code)
			}
		}
	}
	port := listen(t, echo)
	r := w.request(t, http.MethodPost, "/init", nil)
	forms["headers"](r, id, port)
	if response, body := do(t, r); response.StatusCode != http.StatusOK {
		t.Errorf("another port: %d %s", response.StatusCode, body)
	}
}
