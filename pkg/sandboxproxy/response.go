// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"net/http"
	"slices"
	"strings"
)

// hostWideHeaders are response headers that a browser applies to the whole host.
var hostWideHeaders = []string{
	"Alt-Svc", "Clear-Site-Data", "Nel", "Public-Key-Pins", "Report-To", "Reporting-Endpoints",
	"Service-Worker-Allowed", "Set-Cookie", "Strict-Transport-Security",
}

// IsolateResponse returns a writer for the response of a sandbox that shares its host with other
// sandboxes or with an API server. It removes hostWideHeaders that the sandbox sets, and adds
// "Content-Security-Policy: sandbox" and "X-Content-Type-Options: nosniff".
func IsolateResponse(w http.ResponseWriter) http.ResponseWriter {
	own := w.Header().Clone() // such as Strict-Transport-Security of the server itself
	return &responseFilter{ResponseWriter: w, filter: func(header http.Header) {
		for _, name := range hostWideHeaders {
			if delete(header, name); own[name] != nil {
				header[name] = slices.Clone(own[name])
			}
		}
	}, finish: func(header http.Header) {
		header.Add("Content-Security-Policy", "sandbox")
		header.Set("X-Content-Type-Options", "nosniff")
	}}
}

// HostOnlyCookies returns a writer for the response of a sandbox that has its own host. It removes the
// Domain attribute of cookies, so a browser sends them to that host only, and the header
// Clear-Site-Data, which clears the cookies of all hosts of the domain.
func HostOnlyCookies(w http.ResponseWriter) http.ResponseWriter {
	return &responseFilter{ResponseWriter: w, filter: func(header http.Header) {
		delete(header, "Clear-Site-Data")
		for i, cookie := range header["Set-Cookie"] {
			header["Set-Cookie"][i] = withoutDomain(cookie)
		}
	}, finish: func(http.Header) {}}
}

// UncachedResponse returns a writer for the response of a sandbox whose URL does not name it, so that
// no cache keeps it for the URL. Many ignore Vary.
func UncachedResponse(w http.ResponseWriter) http.ResponseWriter {
	return &responseFilter{ResponseWriter: w, filter: func(header http.Header) {
		header["Cache-Control"] = []string{"no-store"}
	}, finish: func(http.Header) {}}
}

// withoutDomain returns a cookie without its Domain attribute. Browsers ignore the case of names
// of attributes, and white space around them.
func withoutDomain(cookie string) string {
	parts := strings.Split(cookie, ";")
	attributes := slices.DeleteFunc(parts[1:], func(attribute string) bool {
		name, _, _ := strings.Cut(attribute, "=")
		return strings.EqualFold(strings.TrimSpace(name), "Domain")
	})
	return strings.Join(append(parts[:1], attributes...), ";")
}

// responseFilter changes the headers of a response before they are written, and its trailers.
type responseFilter struct {
	http.ResponseWriter
	// filter is called with the headers of every response, also informational ones, and with trailers. It
	// must be idempotent. finish is called once, before the headers of the final response are written.
	filter, finish func(http.Header)
	wroteHeader    bool
}

// Header implements http.ResponseWriter. It filters on every call, because a response that switches
// protocols is written without WriteHeader, and trailers are added later.
func (w *responseFilter) Header() http.Header {
	header := w.ResponseWriter.Header()
	w.filter(header)
	for key := range header {
		if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok {
			trailer := http.Header{name: header[key]}
			delete(header, key)
			if w.filter(trailer); trailer[name] != nil {
				header[key] = trailer[name]
			}
		}
	}
	return header
}

// WriteHeader implements http.ResponseWriter.
func (w *responseFilter) WriteHeader(code int) {
	header := w.Header()
	if code >= http.StatusOK && !w.wroteHeader {
		w.wroteHeader = true
		w.finish(header)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (w *responseFilter) Write(data []byte) (int, error) {
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(data)
}

// Unwrap is for http.ResponseController.
func (w *responseFilter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
