// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"strings"
)

// isPreflight reports whether a browser asks whether it may send a request. It has no way to
// show a token when it does.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != "" && r.Header.Get("Upgrade") == "" &&
		r.ContentLength == 0 && len(r.TransferEncoding) == 0
}

// asked is what of the headers of a preflight goes to a private sandbox. Anybody can make one
// up, and many servers answer any method as they answer GET.
func asked(header http.Header) http.Header {
	kept := http.Header{}
	for name, values := range header {
		if name == "Origin" || strings.HasPrefix(name, "Access-Control-Request-") {
			kept[name] = values
		}
	}
	return kept
}

// bare writes of the answer of a private sandbox to a preflight what is the answer to that:
// no body, and no headers but those of it.
type bare struct {
	http.ResponseWriter
	answered bool
	// ours says that the gateway itself answers, which may say all.
	ours bool
}

// ours says of a writer that the gateway itself answers, not the sandbox.
func ours(w http.ResponseWriter) {
	for {
		switch wrapping := w.(type) {
		case *bare:
			wrapping.ours = true
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = wrapping.Unwrap()
		default:
			return
		}
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *bare) WriteHeader(code int) {
	header := w.Header()
	for name := range header {
		if !w.ours && !strings.HasPrefix(name, "Access-Control-") && name != "Vary" && name != "Allow" {
			delete(header, name)
		}
	}
	w.answered = w.answered || code >= http.StatusOK
	w.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (w *bare) Write(data []byte) (int, error) {
	if !w.answered {
		w.WriteHeader(http.StatusOK)
	}
	if w.ours {
		return w.ResponseWriter.Write(data)
	}
	return len(data), nil
}

// Unwrap is for http.ResponseController.
func (w *bare) Unwrap() http.ResponseWriter { return w.ResponseWriter }
