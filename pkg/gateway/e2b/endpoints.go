// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"strings"
)

// Endpoint is one path and method of the API.
type Endpoint struct {
	// Method and Path are as in http.ServeMux.
	Method, Path string
	// Unserved is what the 501 says is not served; empty for an endpoint that is served.
	Unserved string

	serve func(*call) error
	// waits is set if a request may wait for a sandbox. It limits itself; all others have
	// requestTimeout.
	waits bool
	// isPublic is set if a request needs no API key.
	isPublic bool
}

// Endpoints returns all endpoints. Each is served below mapping.APIPrefix too.
func Endpoints() []Endpoint {
	endpoints := []Endpoint{
		{Method: http.MethodGet, Path: "/health", isPublic: true},
		{Method: http.MethodPost, Path: "/sandboxes", serve: createSandbox, waits: true},
		{Method: http.MethodPost, Path: "/v2/sandboxes", serve: createSandbox, waits: true},
		{Method: http.MethodGet, Path: "/sandboxes", serve: listSandboxes},
		{Method: http.MethodGet, Path: "/v2/sandboxes", serve: listSandboxPage},
		{Method: http.MethodGet, Path: "/sandboxes/{id}", serve: getSandbox},
		{Method: http.MethodDelete, Path: "/sandboxes/{id}", serve: deleteSandbox},
		{Method: http.MethodPost, Path: "/sandboxes/{id}/timeout", serve: setTimeout},
		{Method: http.MethodPost, Path: "/sandboxes/{id}/refreshes", serve: refresh},
		{Method: http.MethodPost, Path: "/sandboxes/{id}/pause", serve: pause, waits: true},
		{Method: http.MethodPost, Path: "/sandboxes/{id}/resume", serve: resume, waits: true},
		{Method: http.MethodPost, Path: "/sandboxes/{id}/connect", serve: connect, waits: true},
		{Method: http.MethodPost, Path: "/v2/sandboxes/{id}/connect", serve: connect, waits: true},
		{Method: http.MethodGet, Path: "/templates", serve: listTemplates},
		{Method: http.MethodGet, Path: "/templates/{id}", serve: getTemplate},
		{Method: http.MethodDelete, Path: "/templates/{id}", serve: deleteTemplate},
		{Method: http.MethodGet, Path: "/templates/aliases/{alias}", serve: getAlias},
		{Method: http.MethodGet, Path: "/teams", serve: listTeams},
		{Method: http.MethodGet, Path: "/api-keys", serve: listKeys},
		{Method: http.MethodPost, Path: "/api-keys", serve: createKey},
		{Method: http.MethodDelete, Path: "/api-keys/{id}", serve: deleteKey},
	}
	return append(endpoints, unserved()...)
}

// unserved returns the endpoints of E2B and of OpenKruise Agents that are not served. They are
// answered with 501, because SDKs take 404 for an object that does not exist.
func unserved() []Endpoint {
	var endpoints []Endpoint
	for _, u := range []struct{ what, endpoint string }{
		{"a snapshot of a sandbox", "POST /sandboxes/{id}/snapshots"},
		{"a snapshot of a sandbox", "POST /sandboxes/{id}/checkpoint"},
		{"a list of snapshots", "GET /snapshots"},
		{"a fork of a sandbox", "POST /sandboxes/{id}/fork"},
		{"a change of the network of a sandbox", "PUT /sandboxes/{id}/network"},
		{"metrics of a sandbox", "GET /sandboxes/{id}/metrics"},
		{"metrics of sandboxes", "GET /sandboxes/metrics"},
		{"logs of a sandbox", "GET /sandboxes/{id}/logs"},
		{"logs of a sandbox", "GET /v2/sandboxes/{id}/logs"},
		{"a traffic access token", "POST /sandboxes/{id}/traffic-access-token"},
		{"a list of volumes", "GET /volumes"},
		{"a volume", "POST /volumes"},
		{"a volume", "GET /volumes/{id}"},
		{"a volume", "DELETE /volumes/{id}"},
		{"a build of a template", "POST /templates"},
		{"a build of a template", "POST /v2/templates"},
		{"a build of a template", "POST /v3/templates"},
		{"a build of a template", "POST /templates/{id}"},
		{"a build of a template", "POST /templates/{id}/builds/{build}"},
		{"a build of a template", "POST /v2/templates/{id}/builds/{build}"},
		{"a change of a template", "PATCH /templates/{id}"},
		{"a change of a template", "PATCH /v2/templates/{id}"},
		{"a list of templates by pages", "GET /v2/templates"},
		// A wildcard, because ServeMux panics on more exact patterns that overlap with
		// GET /templates/aliases/{alias}.
		{"tags, files, and the status and logs of builds of a template", "GET /templates/{id}/{what...}"},
		{"a tag of a template", "POST /templates/tags"},
		{"a tag of a template", "DELETE /templates/tags"},
		{"a list of secrets", "GET /secrets"},
		{"a secret", "POST /secrets"},
		{"a secret", "GET /secrets/{id}"},
		{"a secret", "POST /secrets/{id}"},
		{"a secret", "DELETE /secrets/{id}"},
		{"metrics of a team", "GET /teams/{id}/metrics"},
		{"metrics of a team", "GET /teams/{id}/metrics/max"},
		{"a list of keys of another format", "GET /api-keys/compatible"},
		{"a browser's address", "GET /browser/{id}/json/version"},
	} {
		method, path, _ := strings.Cut(u.endpoint, " ")
		endpoints = append(endpoints, Endpoint{Method: method, Path: path, Unserved: u.what})
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		// SDKs send the token of a volume here, and no API key.
		endpoints = append(endpoints, Endpoint{Method: method, Path: "/volumecontent/{path...}", Unserved: "the content of a volume", isPublic: true})
	}
	return endpoints
}
