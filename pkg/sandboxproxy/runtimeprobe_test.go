// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// TestRestartedRuntime: nothing reaches an agent-runtime that was restarted and has no token, although the
// sandbox is said to be reachable. It is reached again when it has a token.
func TestRestartedRuntime(t *testing.T) {
	s := newStreet(t, nil)
	s.probePath = "/base/envs"
	var hasToken atomic.Bool
	var probes, served atomic.Int64
	box := s.box("a", "127.9.0.41", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == s.probePath:
			probes.Add(1)
			if r.Method != http.MethodGet || len(r.Header.Values("X-Access-Token")) > 0 || r.ContentLength != 0 {
				t.Errorf("the probe is %s with %v", r.Method, r.Header)
			}
			if hasToken.Load() {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) // is not read
			return
		case r.Header.Get("Upgrade") != "":
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "test")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
		served.Add(1)
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	http2 := &http.Transport{Protocols: protocols}
	defer http2.CloseIdleConnections()
	for name, request := range map[string]func() (*http.Client, *http.Request){
		"GET": func() (*http.Client, *http.Request) { return http.DefaultClient, s.request("a", "GET", "/", nil) },
		"POST": func() (*http.Client, *http.Request) {
			return http.DefaultClient, s.request("a", "POST", "/init", strings.NewReader("{}"))
		},
		"gRPC": func() (*http.Client, *http.Request) {
			r := s.request("a", "POST", "/", strings.NewReader("message"))
			r.Header.Set("Content-Type", "application/grpc")
			return &http.Client{Transport: http2}, r
		},
		"upgrade": func() (*http.Client, *http.Request) {
			r := s.request("a", "GET", "/", nil)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "test")
			return http.DefaultClient, r
		},
	} {
		t.Run(name, func(t *testing.T) {
			do := func() int {
				client, r := request()
				resp, err := client.Do(r)
				return status(t, resp, err)
			}
			restart := func() { // closes what is kept, too
				hasToken.Store(false)
				box.CloseClientConnections()
			}
			hasToken.Store(true)
			if code := do(); code != http.StatusOK && code != http.StatusSwitchingProtocols {
				t.Fatalf("a runtime with a token answers %d", code)
			}
			restart()
			before := served.Load()
			// A request that cannot be repeated may fail by the end of the connection that was kept.
			for i := range 3 {
				if code := do(); code != http.StatusGone && (i > 0 || code != http.StatusBadGateway) {
					t.Errorf("a runtime without a token answers %d, want %d for %v", code, http.StatusGone, sandboxproxy.ErrNotRunning)
				}
			}
			if n := served.Load(); n != before {
				t.Errorf("a runtime without a token got %d requests", n-before)
			}
			hasToken.Store(true)
			probed := probes.Load()
			for range 3 {
				if code := do(); code != http.StatusOK && code != http.StatusSwitchingProtocols {
					t.Errorf("a runtime that has its token again answers %d", code)
				}
			}
			if n := probes.Load() - probed; name == "GET" && n > 1 {
				t.Errorf("%d probes for a connection that is kept", n)
			}
			box.CloseClientConnections()
		})
	}
}

// status is the code of a response, whose body ends or, where it is a tunnel, is closed.
func status(t *testing.T, resp *http.Response, err error) int {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		_, _ = io.Copy(io.Discard, resp.Body) // only the code counts
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
