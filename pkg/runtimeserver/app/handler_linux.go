// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/access"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/files"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/filesystempb/filesystempbconnect"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/process"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb/processpbconnect"
)

const (
	// EnvdVersion is the version of envd whose protocol this is.
	EnvdVersion = "0.6.1"

	initPath    = "/init"
	tokenHeader = "X-Access-Token"
	// statusNoToken is the answer to all but /health and /init before there is a token. It is
	// neither 401 nor 403: the gateway takes these for an answer of a runtime that has its token,
	// and lets clients connect to it, /init included.
	statusNoToken = http.StatusServiceUnavailable
	// maxMessageBytes and maxInitBytes bound the bodies of calls. Uploads are bounded by the disk.
	maxMessageBytes = 8 << 20
	maxInitBytes    = 512 << 10
	// A body of /init of more than initWithoutSlot bytes needs one of largeInits slots, of which a source
	// of clients may have largeInitsOfSource: who sends it is only known when it is decoded.
	initWithoutSlot                = 4 << 10
	largeInits, largeInitsOfSource = 8, 2
	// initTimeout is how long the body of /init may take, and stall how long a body may take
	// to continue, in either direction.
	initTimeout = 10 * time.Second
	stall       = time.Minute
)

// handler is all that the program serves.
type handler struct {
	access  *access.State
	clock   clock.PassiveClock
	metrics *meter
	mux     *http.ServeMux
	// initOverTLS refuses /init in clear text.
	initOverTLS bool
	largeInits  *fairness.Sources
}

func newHandler(a *access.State, p *process.Service, f *files.Service, c clock.PassiveClock) *handler {
	h := &handler{access: a, clock: c, metrics: newMeter(c), mux: http.NewServeMux(), largeInits: fairness.NewSources(largeInits, largeInitsOfSource)}
	options := []connect.HandlerOption{connect.WithReadMaxBytes(maxMessageBytes)}
	for _, register := range []func() (string, http.Handler){
		func() (string, http.Handler) { return processpbconnect.NewProcessHandler(p, options...) },
		func() (string, http.Handler) { return filesystempbconnect.NewFilesystemHandler(f, options...) },
	} {
		path, serve := register()
		h.mux.Handle(path, h.guarded(serve))
	}
	h.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	h.mux.HandleFunc("POST "+initPath, h.init)
	h.mux.Handle("GET /files", h.signed("read", f.Download))
	h.mux.Handle("POST /files", h.signed("write", f.Upload))
	h.mux.Handle("GET /metrics", h.guarded(http.HandlerFunc(h.serveMetrics)))
	h.mux.Handle("GET /envs", h.guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, a.Env()) })))
	h.mux.Handle("/", h.guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "not_found", "this runtime does not serve "+r.Method+" "+r.URL.Path)
	})))
	return h
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	now := h.clock.Now()
	// Errors: every connection of the server has deadlines. They are those of this request, also
	// for an answer without a body, and for a body that no one reads.
	_ = control.SetWriteDeadline(now.Add(stall))
	if r.ContentLength != 0 {
		_ = control.SetReadDeadline(now.Add(stall))
	}
	if r.URL.Path != initPath { // which has a limit for all of its body
		r.Body = &impatientBody{ReadCloser: r.Body, control: control, clock: h.clock}
	}
	if r.URL.Path != initPath && allowBrowsers(w.Header(), r) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	h.mux.ServeHTTP(&impatientWriter{ResponseWriter: w, control: control, clock: h.clock}, r)
}

// allowBrowsers lets pages of any origin call, and reports whether that is all that was asked
// for. What a page needs is the token, which no browser sends by itself.
func allowBrowsers(answer http.Header, r *http.Request) (preflight bool) {
	if r.Header.Get("Origin") == "" {
		return false
	}
	answer.Set("Access-Control-Allow-Origin", "*")
	answer.Set("Access-Control-Expose-Headers", "*")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	answer.Set("Access-Control-Allow-Methods", "GET, POST")
	answer.Set("Access-Control-Allow-Headers", "*, Authorization")
	answer.Set("Access-Control-Max-Age", "7200")
	return true
}

// impatientWriter ends the connection of a client that takes nothing for a while, so that it
// holds no one up.
type impatientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	clock   clock.PassiveClock
}

func (w *impatientWriter) Write(p []byte) (int, error) {
	_ = w.control.SetWriteDeadline(w.clock.Now().Add(stall)) // every connection of the server has one
	return w.ResponseWriter.Write(p)
}

// FlushError sends what was written.
func (w *impatientWriter) FlushError() error {
	_ = w.control.SetWriteDeadline(w.clock.Now().Add(stall)) // as above
	return w.control.Flush()
}

// Flush implements http.Flusher.
func (w *impatientWriter) Flush() { _ = w.FlushError() } // the next write fails too

// Unwrap is for http.ResponseController.
func (w *impatientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// impatientBody does the same for a body that does not come.
type impatientBody struct {
	io.ReadCloser
	control *http.ResponseController
	clock   clock.PassiveClock
}

func (b *impatientBody) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(b.clock.Now().Add(stall)) // as above
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.control.SetReadDeadline(time.Time{}) // the server reads on, to see if the client is still there
	}
	return n, err
}

// guarded serves who has the access token.
func (h *handler) guarded(serve http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch err := h.access.Check(r.Header.Get(tokenHeader)); {
		case errors.Is(err, access.ErrNoToken):
			writeError(w, statusNoToken, "unavailable", err.Error())
		case err != nil:
			writeError(w, http.StatusUnauthorized, "unauthenticated", err.Error())
		default:
			serve.ServeHTTP(w, r)
		}
	})
}

// signed serves who has the access token, or a URL that was signed with it for the
// operation read or write. A wrong token is not made good by a signature.
func (h *handler) signed(operation string, serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get(tokenHeader)
		err := h.access.Check(token)
		switch {
		case errors.Is(err, access.ErrNoToken):
			writeJSON(w, statusNoToken, map[string]any{"code": statusNoToken, "message": err.Error()})
			return
		case err != nil && (token != "" || !h.access.Signed(r.URL.Query(), operation)):
			writeJSON(w, http.StatusUnauthorized, map[string]any{"code": http.StatusUnauthorized, "message": err.Error() + ", and so is the signature"})
			return
		case err != nil:
			// The signature is for the user of the URL alone, so that its holder may choose no other.
			r.Header.Del("Authorization")
		}
		serve(w, r)
	})
}

// init is POST /init.
func (h *handler) init(w http.ResponseWriter, r *http.Request) {
	if h.initOverTLS && r.TLS == nil {
		writeError(w, http.StatusForbidden, "permission_denied", "this runtime is initialized over TLS only")
		return
	}
	if r.Header.Get("Origin") != "" {
		// A browser sends this without asking first, and a page that reaches the port could set
		// the token without seeing the answer.
		writeError(w, http.StatusForbidden, "permission_denied", "no page of a browser may initialize this runtime")
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(h.clock.Now().Add(initTimeout)) // every connection of the server has one
	body := &initBody{Reader: http.MaxBytesReader(w, r.Body, maxInitBytes), left: initWithoutSlot}
	body.take = func() (func(), bool) {
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 { // the client is known
			return func() {}, true
		}
		return h.largeInits.Take(fairness.Source(r.RemoteAddr))
	}
	defer body.done()
	var request access.Request
	err := json.NewDecoder(body).Decode(&request)
	if errors.Is(err, errNoSlot) {
		writeError(w, http.StatusServiceUnavailable, "unavailable", err.Error())
		return
	}
	if err != nil {
		// The error may repeat what was sent.
		writeError(w, http.StatusBadRequest, "invalid_argument", "the body is no JSON of /init, or is too large")
		return
	}
	_ = control.SetReadDeadline(time.Time{}) // as above
	w.Header().Set("X-Envd-Version", EnvdVersion)
	switch err := h.access.Init(request); {
	case errors.Is(err, access.ErrToken):
		writeError(w, http.StatusUnauthorized, "unauthenticated", err.Error())
	case err != nil:
		writeError(w, http.StatusBadRequest, "invalid_argument", err.Error())
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// errNoSlot is a large body of /init that gets no slot.
var errNoSlot = errors.New("too many large requests to /init arrive, try again")

// initBody is a body of /init. It takes a slot before more than left bytes are read of it.
type initBody struct {
	io.Reader
	left int
	take func() (release func(), ok bool)
	// release releases the slot; nil if there is none.
	release func()
}

// Read implements io.Reader.
func (b *initBody) Read(p []byte) (int, error) {
	if b.release != nil {
		return b.Reader.Read(p)
	}
	if b.left == 0 {
		release, ok := b.take()
		if !ok {
			return 0, errNoSlot
		}
		b.release = release
		return b.Reader.Read(p)
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// done releases the slot, if there is one.
func (b *initBody) done() {
	if b.release != nil {
		b.release()
	}
}

func (h *handler) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, h.metrics.read())
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
