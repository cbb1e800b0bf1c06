// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package road

import (
	"net/http"
	"slices"
	"strings"
)

// ofHost are headers of a response that a browser applies to everything of the host.
var ofHost = []string{
	"Alt-Svc", "Clear-Site-Data", "Nel", "Public-Key-Pins", "Report-To", "Reporting-Endpoints",
	"Service-Worker-Allowed", "Set-Cookie", "Strict-Transport-Security",
}

// Isolated returns a writer for the response of a sandbox that shares its host with others, or
// with an API server. A browser keeps what comes through it apart from the rest of the host.
func Isolated(w http.ResponseWriter) http.ResponseWriter {
	own := w.Header().Clone() // such as Strict-Transport-Security of the server itself
	return &responseFilter{ResponseWriter: w, clean: func(header http.Header) {
		for _, name := range ofHost {
			if delete(header, name); own[name] != nil {
				header[name] = slices.Clone(own[name])
			}
		}
	}, final: func(header http.Header) {
		header.Add("Content-Security-Policy", "sandbox")
		header.Set("X-Content-Type-Options", "nosniff")
	}}
}

// WithOwnCookies returns a writer for the response of a sandbox that has a host of its own below
// a domain that it shares with others. A browser sends the cookies to that host only.
func WithOwnCookies(w http.ResponseWriter) http.ResponseWriter {
	return &responseFilter{ResponseWriter: w, clean: func(header http.Header) {
		for i, cookie := range header["Set-Cookie"] {
			header["Set-Cookie"][i] = withoutDomain(cookie)
		}
	}, final: func(http.Header) {}}
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

// responseFilter changes the headers of a response before they are written.
type responseFilter struct {
	http.ResponseWriter
	// clean is for all headers, those of informational responses too, and may be called often.
	// final is called once, for the final response.
	clean, final func(http.Header)
	answered     bool
}

// Header implements http.ResponseWriter. Responses that switch protocols are written without
// WriteHeader, so it cleans what was set before, each time.
func (w *responseFilter) Header() http.Header {
	header := w.ResponseWriter.Header()
	w.clean(header)
	return header
}

// WriteHeader implements http.ResponseWriter.
func (w *responseFilter) WriteHeader(code int) {
	header := w.Header()
	if code >= http.StatusOK && !w.answered {
		w.answered = true
		w.final(header)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (w *responseFilter) Write(data []byte) (int, error) {
	if !w.answered {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(data)
}

// Unwrap is for http.ResponseController.
func (w *responseFilter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
