// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// answer is what the gateway has answered.
type answer struct {
	status int
	header http.Header
	text   string
}

// field returns a field of the JSON of an answer.
func (a answer) field(t *testing.T, name string) any {
	t.Helper()
	var body map[string]any
	if err := json.Unmarshal([]byte(a.text), &body); err != nil {
		t.Fatalf("%v: %s", err, a.text)
	}
	return body[name]
}

// id is the id of the sandbox in an answer.
func (a answer) id(t *testing.T) string {
	t.Helper()
	id, ok := a.field(t, "sandboxID").(string)
	if !ok {
		t.Fatalf("%d without a sandbox: %s", a.status, a.text)
	}
	return id
}

// failed requires an error as all errors are: JSON with the status as integer code.
func (a answer) failed(t *testing.T, status int) {
	t.Helper()
	var body struct {
		Code    *int
		Message string
	}
	err := json.Unmarshal([]byte(a.text), &body)
	if err != nil || a.status != status || body.Code == nil || *body.Code != status || body.Message == "" ||
		!strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
		t.Errorf("want an error %d, got %d of type %q, %v: %s", status, a.status, a.header.Get("Content-Type"), err, a.text)
	}
}

// call makes a request with the key of the team. route is method and path; a # in it is
// the id.
func (g *gateway) call(t *testing.T, route, id, body string) answer {
	t.Helper()
	return g.callAs(t, g.key, route, id, body)
}

func (g *gateway) callAs(t *testing.T, key, route, id, body string) answer {
	t.Helper()
	method, path, _ := strings.Cut(strings.ReplaceAll(route, "#", id), " ")
	req, err := http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("X-API-KEY", key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return do(t, req)
}

func do(t *testing.T, req *http.Request) answer {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(req) // follows no redirect
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: resp.StatusCode, header: resp.Header, text: string(text)}
}

// newKey makes a key of the team, so that limits of keys are met by who means to.
func (g *gateway) newKey(t *testing.T, name string) string {
	t.Helper()
	made := g.call(t, "POST /api-keys", "", `{"name":"`+name+`"}`)
	key, ok := made.field(t, "key").(string)
	if made.status != http.StatusCreated || !ok {
		t.Fatalf("making a key: %d %s", made.status, made.text)
	}
	return key
}
