// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// TestInformationalResponses: those of a sandbox go no further, and the headers of the server itself stay,
// whatever the final response is.
func TestInformationalResponses(t *testing.T) {
	s := newStreet(t, nil)
	s.wrap = func(w http.ResponseWriter) http.ResponseWriter {
		w.Header().Set("Audit-Id", "1")
		w.Header().Set("Vary", "Cookie")
		return sandboxproxy.IsolateResponse(w)
	}
	s.box("a", "127.9.0.45", func(w http.ResponseWriter, r *http.Request) {
		for _, code := range []int{http.StatusProcessing, http.StatusEarlyHints, http.StatusEarlyHints, 199, 110, 111, 112, 113} {
			w.Header().Set("Link", "</style.css>")
			w.Header().Set("Set-Cookie", "a=b")
			w.Header().Set("Audit-Id", "of the sandbox")
			w.WriteHeader(code)
		}
		clear(w.Header())
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		if r.URL.Path == "/breaks" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "hello")
	})
	for _, http2 := range []bool{false, true} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!http2)
		protocols.SetUnencryptedHTTP2(http2)
		transport := &http.Transport{Protocols: protocols}
		defer transport.CloseIdleConnections()
		for path, code := range map[string]int{"/": http.StatusOK, "/breaks": http.StatusBadGateway} {
			for _, contentType := range []string{"text/plain", "application/grpc"} {
				r := s.request("a", "POST", path, strings.NewReader("body"))
				r.Header.Set("Content-Type", contentType)
				r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
					if code != http.StatusContinue {
						t.Errorf("HTTP/2 %t: %d with %v", http2, code, header)
					}
					return nil
				}}))
				resp, text := s.do(&http.Client{Transport: transport}, r)
				if resp.StatusCode != code || fmt.Sprint(resp.Header["Audit-Id"], resp.Header["Vary"]) != "[1] [Cookie]" {
					t.Errorf("HTTP/2 %t, %s of %s: %d %s with %v", http2, path, contentType, resp.StatusCode, text, resp.Header)
				}
				if resp.Header.Get("Set-Cookie")+resp.Header.Get("Link") != "" {
					t.Errorf("HTTP/2 %t: headers of an informational response are in the final one: %v", http2, resp.Header)
				}
			}
		}
	}
}

// TestTrailers: what no header of a sandbox may do, no trailer does, announced or not.
func TestTrailers(t *testing.T) {
	s := newStreet(t, nil)
	s.box("a", "127.9.0.46", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		prefix := http.TrailerPrefix
		if r.URL.Path == "/announced" {
			prefix = ""
			w.Header().Set("Trailer", "Set-Cookie, Clear-Site-Data, X-Stays")
		}
		_, _ = io.WriteString(w, "hello")
		_ = http.NewResponseController(w).Flush()
		w.Header()[prefix+"Set-Cookie"] = []string{"a=b; Domain=example.com"}
		w.Header()[prefix+"Clear-Site-Data"] = []string{"*"}
		w.Header()[prefix+"X-Stays"] = []string{"1"}
	})
	for name, test := range map[string]struct {
		wrap func(http.ResponseWriter) http.ResponseWriter
		want http.Header
	}{
		"isolated":  {sandboxproxy.IsolateResponse, http.Header{"X-Stays": {"1"}}},
		"host only": {sandboxproxy.HostOnlyCookies, http.Header{"X-Stays": {"1"}, "Set-Cookie": {"a=b"}}},
	} {
		s.wrap = test.wrap
		for _, http2 := range []bool{false, true} {
			protocols := new(http.Protocols)
			protocols.SetHTTP1(!http2)
			protocols.SetUnencryptedHTTP2(http2)
			transport := &http.Transport{Protocols: protocols}
			defer transport.CloseIdleConnections()
			for _, path := range []string{"/announced", "/late"} {
				for _, contentType := range []string{"text/plain", "application/grpc"} {
					r := s.request("a", "GET", path, nil)
					r.Header.Set("Content-Type", contentType)
					r.Header.Set("Te", "trailers")
					resp, _ := s.do(&http.Client{Transport: transport}, r)
					for key, values := range resp.Trailer {
						if len(values) == 0 {
							delete(resp.Trailer, key) // it was announced, and did not come
						}
					}
					if diff := cmp.Diff(test.want, resp.Trailer); diff != "" {
						t.Errorf("%s, HTTP/2 %t, %s of %s (-want +got):\n%s", name, http2, path, contentType, diff)
					}
				}
			}
		}
	}
}
