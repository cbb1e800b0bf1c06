// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
)

// Access is what /init has set.
type Access interface {
	// Token is the access token; empty means that none is needed.
	Token() string
	// Env is the environment of processes.
	Env() map[string]string
}

// Envd is a double of envd except for /init.
type Envd struct {
	// Files are those that it has.
	Files *Files

	access    Access
	mux       *http.ServeMux
	processes processes
}

// New returns an envd without files.
func New(access Access) *Envd {
	e := &Envd{Files: NewFiles(), access: access, mux: http.NewServeMux()}
	e.processes.running = map[int]*process{}
	for pattern, serve := range map[string]http.HandlerFunc{
		"GET /health":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"GET /files":   e.signed("read", e.download),
		"POST /files":  e.signed("write", e.upload),
		"GET /metrics": e.guarded(e.metrics),
		"GET /envs":    e.guarded(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, e.access.Env()) }),

		"POST /process.Process/Start":      e.guarded(e.start),
		"POST /process.Process/List":       e.guarded(unary(e.list)),
		"POST /process.Process/SendSignal": e.guarded(unary(e.sendSignal)),

		"POST /filesystem.Filesystem/Stat":    e.guarded(unary(e.stat)),
		"POST /filesystem.Filesystem/MakeDir": e.guarded(unary(e.makeDir)),
		"POST /filesystem.Filesystem/ListDir": e.guarded(unary(e.listDir)),
		"POST /filesystem.Filesystem/Remove":  e.guarded(unary(e.remove)),
		"POST /filesystem.Filesystem/Move":    e.guarded(unary(e.move)),
	} {
		e.mux.HandleFunc(pattern, serve)
	}
	return e
}

// ServeHTTP implements http.Handler.
func (e *Envd) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.mux.ServeHTTP(w, r) }

// guarded serves who has the access token.
func (e *Envd) guarded(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !e.allowed(r) {
			writeError(w, http.StatusUnauthorized, "unauthenticated", "the access token is missing or wrong")
			return
		}
		serve(w, r)
	}
}

func (e *Envd) allowed(r *http.Request) bool {
	token := e.access.Token()
	return token == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Access-Token")), []byte(token)) == 1
}

// metrics are always the same.
func (e *Envd) metrics(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"ts": 1, "cpu_count": 1, "cpu_used_pct": 1, "mem_total": 1 << 30, "mem_used": 1 << 20, "disk_total": 1 << 30, "disk_used": 1 << 20,
	})
}

// writeError answers as both of envd's protocols do: code is connect's word for it.
func writeError(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, map[string]any{"code": code, "message": message})
}

func writeJSON(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content) // or the client is gone
}
