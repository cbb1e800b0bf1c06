// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Before /init has set a token, no one is served. GET /envs is neither 401 nor 403 then, by which
// the probe of package sandboxproxy knows a runtime that was restarted, and 401 afterwards.
func TestWithoutToken(t *testing.T) {
	b := startBox(t)
	for _, step := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/health", "", 204},
		{"GET", "/metrics", "", 503},
		{"GET", "/envs", "", 503},
		{"GET", "/none", "", 503},
		{"GET", "/files?path=/etc/hostname", "", 503},
		{"GET", "/files?path=/etc/hostname&signature=v1_x", "", 503},
		{"GET", signedURL("/etc/hostname", "read", "", ""), "", 503},
		{"POST", "/files?path=/tmp/never", "x", 503},
		{"POST", "/process.Process/List", "{}", 503},
		{"POST", "/process.Process/Start", "{}", 503},
		{"POST", "/filesystem.Filesystem/Stat", `{"path":"/"}`, 503},
		{"POST", "/init", "{}", 401},
		{"POST", "/init", `{"envVars":{"LD_PRELOAD":"/tmp/mine.so"}}`, 401},
		{"POST", "/init", "", 400},
		{"POST", "/init", "{", 400},
		{"POST", "/init", `{"accessToken":"` + strings.Repeat("x", 5<<10) + `"}`, 400},
		{"POST", "/init", `{"accessToken":"x","envVars":{"A=":"b"}}`, 400},
		{"POST", "/init", `{"accessToken":"x","envVars":{"A":"` + strings.Repeat("x", 300<<10) + `"}}`, 400},
		{"POST", "/init", `{"accessToken":"x","junk":"` + strings.Repeat("x", 600<<10) + `"}`, 400},
		{"POST", "/init", `{"accessToken":"x","volumeMounts":[{}]}`, 400},
		{"POST", "/init", `{"accessToken":"x","volumeMounts":[ [] ]}`, 400},
		{"POST", "/init", `{"accessToken":"x","volumeMounts":{}}`, 400},
		{"GET", "/metrics", "", 503},
		{"POST", "/init", `{"accessToken":"first","volumeMounts":[ ]}`, 204},
		{"POST", "/init", `{"accessToken":"first","volumeMounts":null}`, 204},
		{"POST", "/init", `{"accessToken":"second"}`, 401},
		{"POST", "/init", `{}`, 401},
		{"POST", "/init", `{"accessToken":"first"}`, 204},
		{"GET", "/metrics", "", 401},
		{"GET", "/envs", "", 401},
	} {
		if status, body := b.do(t, step.method, step.path, step.body, "Content-Type: application/json"); status != step.want {
			t.Errorf("%s %s %.60s: %d %s", step.method, step.path, step.body, status, body)
		}
	}
}

func signedURL(path, operation, user, until string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	query := url.Values{"path": {path}}
	if user != "" {
		query.Set("username", user)
	}
	if until != "" {
		text += ":" + until
		query.Set("signature_expiration", until)
	}
	sum := sha256.Sum256([]byte(text))
	query.Set("signature", "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
	return "/files?" + query.Encode()
}

func TestAccess(t *testing.T) {
	b := newBox(t)
	file := filepath.Join(t.TempDir(), "a")
	if status, body := b.do(t, "POST", "/files?path="+file, "content", "Content-Type: application/octet-stream"); status != 200 {
		t.Fatal(status, body)
	}
	in := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }
	b.token = ""
	stranger := &http.Request{Header: http.Header{}}
	stranger.SetBasicAuth("no-such-user", "")
	for name, try := range map[string]struct {
		method, path, token string
		want                int
	}{
		"health":                           {"GET", "/health", "", 204},
		"metrics":                          {"GET", "/metrics", token, 200},
		"without a token":                  {"GET", "/metrics", "", 401},
		"with another token":               {"GET", "/metrics", token + "x", 401},
		"an unknown path":                  {"GET", "/none", token, 404},
		"a file as another user":           {"GET", "/files?path=" + file, token, 401},
		"a file":                           {"GET", "/files?path=" + file, token, 200},
		"a file without a token":           {"GET", "/files?path=" + file, "", 401},
		"by signature":                     {"GET", signedURL(file, "read", "", ""), "", 200},
		"by a signature with a user":       {"GET", signedURL(file, "read", "user", ""), "", 200},
		"by one that ends":                 {"GET", signedURL(file, "read", "", in(time.Hour)), "", 200},
		"by one that has ended":            {"GET", signedURL(file, "read", "", in(-time.Hour)), "", 401},
		"by one for writes":                {"GET", signedURL(file, "write", "", ""), "", 401},
		"by one of another file":           {"GET", signedURL(file, "read", "", "") + "&path=x", "", 200}, // the first counts
		"by signature, as another user":    {"GET", signedURL(file, "read", "", ""), "", 200},             // whom it ignores
		"by signature and another token":   {"GET", signedURL(file, "read", "", ""), "x", 401},
		"a signature is for files only":    {"GET", strings.Replace(signedURL(file, "read", "", ""), "/files", "/envs", 1), "", 401},
		"a read signature does not upload": {"POST", signedURL(file, "read", "", ""), "", 401},
	} {
		t.Run(name, func(t *testing.T) {
			caller := *b
			caller.token = try.token
			var headers []string
			if strings.Contains(name, "as another user") {
				headers = []string{"Authorization: " + stranger.Header.Get("Authorization")}
			}
			if status, body := caller.do(t, try.method, try.path, "", headers...); status != try.want {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

// Pages of any origin may call, with the token that they have, but not initialize the runtime.
func TestBrowsers(t *testing.T) {
	b := startBox(t)
	for _, try := range []struct {
		method, path, origin string
		status               int
	}{
		{"OPTIONS", "/process.Process/Start", "*", 204},
		{"OPTIONS", "/init", "", 503},
		{"POST", "/init", "", 403},
		{"GET", "/metrics", "*", 503}, // so the call has set no token
	} {
		req, err := http.NewRequestWithContext(t.Context(), try.method, b.base+try.path, strings.NewReader(`{"accessToken":"page"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://page.example")
		req.Header.Set("Access-Control-Request-Method", "POST")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("Access-Control-Allow-Origin"); resp.StatusCode != try.status || got != try.origin {
			t.Errorf("%s %s: %s, origin %q", try.method, try.path, resp.Status, got)
		}
	}
}

// Variables add up. A call that comes late changes nothing.
func TestInitAgain(t *testing.T) {
	b := newBox(t)
	for _, step := range []struct{ fields, want string }{
		{`"envVars":{"A":"1"}`, `{"A":"1","MODE":"the-secret"}`},
		{`"timestamp":"2026-01-01T00:00:02Z","envVars":{"A":"2"}`, `{"A":"2","MODE":"the-secret"}`},
		{`"timestamp":"2026-01-01T00:00:01Z","envVars":{"A":"3"}`, `{"A":"2","MODE":"the-secret"}`},
		{`"timestamp":"2026-01-01T00:00:02Z","envVars":{"A":"3"}`, `{"A":"2","MODE":"the-secret"}`},
		{`"timestamp":"2026-01-01T00:00:03Z","envVars":{"A":"4"},"defaultWorkdir":"/usr"`, `{"A":"4","MODE":"the-secret"}`},
	} {
		if status, body := b.do(t, "POST", "/init", `{"accessToken":"`+token+`",`+step.fields+`}`); status != http.StatusNoContent {
			t.Errorf("%d %s", status, body)
		}
		if _, body := b.do(t, "GET", "/envs", ""); body != step.want {
			t.Errorf("after %s: %s", step.fields, body)
		}
	}
	request := script("pwd; echo $A")
	request.Process.Cwd = nil
	if e := b.start(t.Context(), t, as("", request)).wait(t); e.stdout != "/usr\n4\n" {
		t.Errorf("%q", e.stdout)
	}
}

// Nothing that is secret is in what the program writes.
func TestNoSecretsInLogs(t *testing.T) {
	b := newBox(t)
	if got := b.sh(t, "", "echo $MODE"); got != secret {
		t.Errorf("%q", got)
	}
	b.do(t, "POST", "/init", `{"accessToken":"`+token+`","envVars":"`+secret+`"}`)
	b.Stop(t)
	if out := b.Stdout.String() + b.Stderr.String(); strings.Contains(out, token) || strings.Contains(out, secret) {
		t.Errorf("it wrote %s", out)
	}
}
