// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

const missing = "default--eaaaaaaaaaaaaa"

// TestErrors: each is JSON with an integer code, by which SDKs judge it.
func TestErrors(t *testing.T) {
	t.Parallel()
	g := start(t)
	pool := g.pool(t, "empty", 0)
	for route, want := range map[string]int{
		// Paths that do not exist.
		"GET /":                                                    404,
		"GET /none":                                                404,
		"POST /v9/sandboxes":                                       404,
		"GET /sandboxes/a/b/c":                                     404,
		"GET /sandboxes/../sandboxes":                              404,
		"GET //sandboxes":                                          404,
		"GET /kruise/api/none":                                     404,
		"PATCH /sandboxes/" + missing:                              405,
		"PUT /sandboxes":                                           405,
		"GET /sandboxes/" + missing:                                404,
		"DELETE /sandboxes/" + missing:                             404,
		"POST /sandboxes/" + missing:                               405,
		"GET /sandboxes/x":                                         404,
		"GET /sandboxes/other--e2222222222a":                       404,
		"POST /sandboxes/" + missing + "/pause":                    404,
		"POST /sandboxes/" + missing + "/connect":                  404,
		"POST /v2/sandboxes/" + missing + "/connect":               404,
		"POST /sandboxes/" + missing + "/resume":                   404,
		"POST /sandboxes/" + missing + "/timeout {\"timeout\":60}": 404,
		// What is wrong with a request.
		"POST /sandboxes {":                                                    400,
		"POST /sandboxes []":                                                   400,
		"POST /sandboxes {}":                                                   400,
		`POST /sandboxes {"templateID":"none"}`:                                400,
		`POST /sandboxes {"templateID":"empty","timeout":0}`:                   400,
		`POST /sandboxes {"templateID":"empty","timeout":99999999}`:            400,
		`POST /sandboxes {"templateID":"empty","metadata":{"a b":"c"}}`:        400,
		`POST /sandboxes {"templateID":"empty","autoResume":{"enabled":true}}`: 400,
		"POST /sandboxes/" + missing + "/timeout":                              400,
		"GET /v2/sandboxes?limit=0":                                            400,
		"GET /v2/sandboxes?limit=101":                                          400,
		"GET /v2/sandboxes?state=gone":                                         400,
		"GET /v2/sandboxes?nextToken=x":                                        400,
		"GET /v2/sandboxes?metadata=%25zz":                                     400,
		// What is not served.
		"POST /sandboxes/" + missing + "/snapshots":                            501,
		"POST /sandboxes/" + missing + "/fork":                                 501,
		"PUT /sandboxes/" + missing + "/network":                               501,
		"GET /sandboxes/" + missing + "/metrics":                               501,
		"GET /sandboxes/" + missing + "/logs":                                  501,
		"GET /volumes":                                                         501,
		"POST /volumes {}":                                                     501,
		"GET /snapshots":                                                       501,
		"POST /v3/templates {}":                                                501,
		`POST /sandboxes {"templateID":"empty","mcp":{"a":{}}}`:                501,
		`POST /sandboxes {"templateID":"empty","iam":{"a":1}}`:                 501,
		`POST /sandboxes {"templateID":"empty","network":{"denyOut":["0/0"]}}`: 501,
	} {
		t.Run(route, func(t *testing.T) {
			method, rest, _ := strings.Cut(route, " ")
			path, body, _ := strings.Cut(rest, " ")
			g.call(t, method+" "+path, "", body).failed(t, want)
		})
	}

	t.Run("empty pool", func(t *testing.T) {
		short := g.call(t, "POST /v2/sandboxes", "", `{"templateID":"`+pool+`"}`)
		short.failed(t, http.StatusTooManyRequests)
		if after, err := strconv.Atoi(short.header.Get("Retry-After")); err != nil || after < 1 {
			t.Errorf("Retry-After is %q", short.header.Get("Retry-After"))
		}
	})
	t.Run("keys", func(t *testing.T) {
		for name, key := range map[string]string{"none": "", "unknown": "e2b_" + strings.Repeat("0", 64), "short": g.key[:40], "other case": strings.ToUpper(g.key)} {
			for _, route := range []string{"GET /v2/sandboxes", "POST /sandboxes", "GET /sandboxes/" + missing, "GET /none"} {
				t.Run(name+" "+route, func(t *testing.T) { g.callAs(t, key, route, "", "").failed(t, http.StatusUnauthorized) })
			}
		}
	})
}

// TestIdempotency: a create that is repeated with its key makes no second sandbox.
func TestIdempotency(t *testing.T) {
	t.Parallel()
	g := start(t)
	pool := g.pool(t, "pool", 2)
	create := func(key, body string) answer {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/v2/sandboxes", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-API-KEY", g.key)
		req.Header.Set("Idempotency-Key", key)
		return do(t, req)
	}
	body := `{"templateID":"` + pool + `"}`
	first, again, other := create("one", body), create("one", body), create("two", body)
	if first.status != http.StatusCreated || first.text != again.text || first.id(t) == other.id(t) {
		t.Errorf("%s\n%s\n%s", first.text, again.text, other.text)
	}
	create("one", `{"templateID":"`+pool+`","timeout":999}`).failed(t, http.StatusConflict)
}
