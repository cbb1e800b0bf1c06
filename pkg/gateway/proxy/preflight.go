// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"strings"
)

// isPreflight reports whether a request is a CORS preflight of a browser, which cannot have a token.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != "" && r.Header.Get("Upgrade") == "" &&
		r.ContentLength == 0 && len(r.TransferEncoding) == 0
}

// preflightHeaders returns the headers of a preflight that a private sandbox gets. Any client can send a
// preflight, and many servers answer any method as they answer GET.
func preflightHeaders(header http.Header) http.Header {
	kept := http.Header{}
	for name, values := range header {
		if name == "Origin" || strings.HasPrefix(name, "Access-Control-Request-") {
			kept[name] = values
		}
	}
	return kept
}

// preflightWriter writes the response of a private sandbox to a preflight. It drops the body and all
// headers but CORS, Vary and Allow.
type preflightWriter struct {
	http.ResponseWriter
	wroteHeader bool
	// isGatewayResponse is true for a response of the gateway itself, which is written in full.
	isGatewayResponse bool
}

// markGatewayResponse marks the response of a writer as one of the gateway itself, not of the sandbox.
func markGatewayResponse(w http.ResponseWriter) {
	for {
		switch wrapping := w.(type) {
		case *preflightWriter:
			wrapping.isGatewayResponse = true
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = wrapping.Unwrap()
		default:
			return
		}
	}
}

// Header implements http.ResponseWriter. Trailers are added after the headers were written.
func (w *preflightWriter) Header() http.Header {
	header := w.ResponseWriter.Header()
	if w.wroteHeader {
		w.filter(header)
	}
	return header
}

// filter drops all headers that a preflight does not get.
func (w *preflightWriter) filter(header http.Header) {
	for name := range header {
		if !w.isGatewayResponse && !strings.HasPrefix(name, "Access-Control-") && name != "Vary" && name != "Allow" {
			delete(header, name)
		}
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *preflightWriter) WriteHeader(code int) {
	w.filter(w.Header())
	w.wroteHeader = w.wroteHeader || code >= http.StatusOK
	w.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (w *preflightWriter) Write(data []byte) (int, error) {
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	if w.isGatewayResponse {
		return w.ResponseWriter.Write(data)
	}
	return len(data), nil
}

// Unwrap is for http.ResponseController.
func (w *preflightWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
