// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import "net/http"

// outgoing returns the request as it goes to the sandbox: without what is for the gateway.
func outgoing(r *http.Request, to destination) (*http.Request, error) {
	out := r.Clone(r.Context())
	for _, name := range []string{headerSandboxID, headerSandboxPort, headerTrafficToken, headerAPIKey, headerRealIP} {
		out.Header.Del(name)
	}
	if to.port != RuntimePort {
		out.Header.Del(headerAccessToken)
	}
	out.URL.Scheme, out.URL.Host = "", "" // of a request in absolute form; the host is in out.Host
	if to.form != byPath {
		return out, nil
	}
	// All sandboxes and the API share the host: its cookies are not this sandbox's.
	out.Header.Del("Cookie")
	var err error
	out.URL, err = replacePath(out.URL, to.rest)
	return out, err
}

// shared are headers of an answer that would have an effect on all that share the host.
var shared = []string{
	"Alt-Svc", "Clear-Site-Data", "Nel", "Public-Key-Pins", "Report-To", "Reporting-Endpoints",
	"Service-Worker-Allowed", "Set-Cookie", "Strict-Transport-Security",
}

// isolated writes an answer of a sandbox that shares its host with others, so that a browser
// keeps it apart from them.
type isolated struct {
	http.ResponseWriter
	answered bool
}

// Header implements http.ResponseWriter. Answers that switch protocols are written without
// WriteHeader, so it cleans what was set before, each time.
func (w *isolated) Header() http.Header {
	header := w.ResponseWriter.Header()
	for _, name := range shared {
		delete(header, name)
	}
	return header
}

// WriteHeader implements http.ResponseWriter.
func (w *isolated) WriteHeader(code int) {
	header := w.Header()
	if code >= http.StatusOK && !w.answered {
		w.answered = true
		header.Add("Content-Security-Policy", "sandbox")
		header.Set("X-Content-Type-Options", "nosniff")
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (w *isolated) Write(data []byte) (int, error) {
	if !w.answered {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(data)
}

// Unwrap is for http.ResponseController.
func (w *isolated) Unwrap() http.ResponseWriter { return w.ResponseWriter }
