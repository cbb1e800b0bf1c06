// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestFilesystem(t *testing.T) {
	c := newEnvd(t)
	const multipart = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/data/in/a.txt\"\r\n\r\none\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"b.txt\"\r\n\r\nthree\r\n--b--\r\n"
	const fs = "filesystem.Filesystem/"
	for _, step := range []struct {
		do, kind, body string // do is method and path of HTTP, or a procedure
		status         int
		want           string // is in the answer
	}{
		{"POST /files", "multipart/form-data; boundary=b", multipart, 200, `{"name":"b.txt","path":"/home/user/b.txt","type":"file"}`},
		{"GET /files?path=/data/in/a.txt&username=user", "", "", 200, "one"},
		{"GET /files?path=b.txt", "", "", 200, "three"},
		{"GET /files?path=/data", "", "", 404, `"code":404`},
		{"GET /files?path=/none", "", "", 404, `"code":404`},
		{"POST /files?path=/data", "application/octet-stream", "x", 400, `"code":400`},
		{fs + "Stat", "", `{"path":"/data/in/a.txt"}`, 200, `"type":"FILE_TYPE_FILE","path":"/data/in/a.txt","size":"3","mode":420`},
		{fs + "Stat", "", `{"path":"/data"}`, 200, `"FILE_TYPE_DIRECTORY"`},
		{fs + "Stat", "", `{"path":"/none"}`, 404, `"not_found"`},
		{fs + "MakeDir", "", `{"path":"/data/out"}`, 200, `"name":"out"`},
		{fs + "MakeDir", "", `{"path":"/data/out"}`, 409, `"already_exists"`},
		{fs + "MakeDir", "", `{"path":"/data/in/a.txt"}`, 400, `"invalid_argument"`},
		{fs + "ListDir", "", `{"path":"/data","depth":1}`, 200, `"path":"/data/out"`},
		{fs + "ListDir", "", `{"path":"/data","depth":2}`, 200, `"path":"/data/in/a.txt"`},
		{fs + "ListDir", "", `{"path":"/none"}`, 404, `"not_found"`},
		{fs + "ListDir", "", `{"path":"b.txt"}`, 400, `"invalid_argument"`},
		{fs + "Move", "", `{"source":"/data/in","destination":"/moved/in"}`, 200, `"path":"/moved/in"`},
		{fs + "Move", "", `{"source":"/data/in","destination":"/again"}`, 404, `"not_found"`},
		{"GET /files?path=/moved/in/a.txt", "", "", 200, "one"},
		{fs + "Remove", "", `{"path":"/moved"}`, 200, `{}`},
		{fs + "Remove", "", `{"path":"/moved"}`, 404, `"not_found"`},
		{"GET /files?path=/moved/in/a.txt", "", "", 404, ""},
		{fs + "Stat", "", `{`, 400, `"invalid_argument"`},
		{"GET /metrics", "", "", 200, `"cpu_count":1`},
		{"GET /envs", "", "", 200, `{"MODE":"test"}`},
	} {
		method, path, ok := strings.Cut(step.do, " ")
		if !ok {
			method, path, step.kind = http.MethodPost, "/"+step.do, "application/json"
		}
		if status, body := c.do(t, method, path, step.kind, step.body); status != step.status || !strings.Contains(body, step.want) {
			t.Errorf("%s %s: %d %s", step.do, step.body, status, body)
		}
	}
}

func TestAccess(t *testing.T) {
	c := newEnvd(t)
	if status, _ := c.do(t, http.MethodPost, "/files?path=/a&username=user", "application/octet-stream", "x"); status != http.StatusOK {
		t.Fatal(status)
	}
	sign := func(path, operation, expiration string) string {
		text := path + ":" + operation + ":user:" + token
		query := url.Values{"path": {path}, "username": {"user"}}
		if expiration != "" {
			text += ":" + expiration
			query.Set("signature_expiration", expiration)
		}
		sum := sha256.Sum256([]byte(text))
		query.Set("signature", "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
		return "/files?" + query.Encode()
	}
	in := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }
	for name, try := range map[string]struct {
		method, path, token, body string
		want                      int
	}{
		"health":                     {"GET", "/health", "", "", 204},
		"init without a token":       {"POST", "/init", "", `{}`, 401},
		"init with another token":    {"POST", "/init", "", `{"accessToken":"x"}`, 401},
		"init with the token":        {"POST", "/init", "", `{"accessToken":"` + token + `","envVars":{"MODE":"test"}}`, 204},
		"metrics without a token":    {"GET", "/metrics", "", "", 401},
		"metrics with another token": {"GET", "/metrics", "x", "", 401},
		"metrics":                    {"GET", "/metrics", token, "", 200},
		"list without a token":       {"POST", "/process.Process/List", "", "{}", 401},
		"start without a token":      {"POST", "/process.Process/Start", "", "", 401},
		"stat without a token":       {"POST", "/filesystem.Filesystem/Stat", "", "{}", 401},
		"a file without a token":     {"GET", "/files?path=/a", "", "", 401},
		"a file by signature":        {"GET", sign("/a", "read", ""), "", "", 200},
		"a file by one that ends":    {"GET", sign("/a", "read", in(time.Hour)), "", "", 200},
		"a file by one that ended":   {"GET", sign("/a", "read", in(-time.Hour)), "", "", 401},
		"a file by one for writes":   {"GET", sign("/a", "write", ""), "", "", 401},
		"an unknown path":            {"GET", "/none", token, "", 404},
	} {
		t.Run(name, func(t *testing.T) {
			caller := &client{base: c.base, token: try.token}
			if status, body := caller.do(t, try.method, try.path, "application/json", try.body); status != try.want {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

// A call of /init that comes late changes nothing.
func TestInitTimestamps(t *testing.T) {
	c := newEnvd(t)
	for _, step := range []struct{ at, mode, want string }{
		{"2026-01-01T00:00:02Z", "a", "a"},
		{"2026-01-01T00:00:01Z", "b", "a"},
		{"2026-01-01T00:00:02Z", "c", "a"},
		{"2026-01-01T00:00:03Z", "d", "d"},
	} {
		resp := c.open(t, http.MethodPost, "/init", "application/json", fmt.Sprintf(`{"accessToken":%q,"timestamp":%q,"envVars":{"MODE":%q}}`, token, step.at, step.mode))
		if resp.StatusCode != http.StatusNoContent || resp.Header.Get("X-Envd-Version") == "" {
			t.Errorf("%+v: %s %v", step, resp.Status, resp.Header)
		}
		if _, env := c.do(t, http.MethodGet, "/envs", "", ""); env != `{"MODE":"`+step.want+`"}` {
			t.Errorf("after %+v it is %s", step, env)
		}
	}
}
