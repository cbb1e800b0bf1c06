// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// TestIsolateResponse checks that a sandbox sets no header that a browser applies to the whole host,
// also not with an informational response, and that the server's own stay.
func TestIsolateResponse(t *testing.T) {
	hostile := func(header http.Header) {
		for _, name := range []string{
			"Alt-Svc", "Clear-Site-Data", "Nel", "Public-Key-Pins", "Report-To", "Reporting-Endpoints",
			"Service-Worker-Allowed", "Set-Cookie", "Strict-Transport-Security",
		} {
			header.Add(name, "of the sandbox")
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=1")
		w.Header()["Date"], w.Header()["Content-Type"] = nil, nil
		w = sandboxproxy.IsolateResponse(w)
		hostile(w.Header())
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		hostile(w.Header())
		_, _ = w.Write(nil)
	}))
	defer server.Close()
	var early textproto.MIMEHeader
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
		early = header
		return nil
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	want := http.Header{"Strict-Transport-Security": {"max-age=1"}, "Link": {"</style.css>"}}
	if diff := cmp.Diff(want, http.Header(early)); diff != "" {
		t.Errorf("headers of the informational response (-want +got):\n%s", diff)
	}
	want = http.Header{
		"Strict-Transport-Security": {"max-age=1"}, "Content-Security-Policy": {"sandbox"}, "X-Content-Type-Options": {"nosniff"}, "Content-Length": {"0"},
	}
	if diff := cmp.Diff(want, resp.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// TestHostOnlyCookies checks that cookies of a sandbox are for its own host, and that it clears those of no other.
func TestHostOnlyCookies(t *testing.T) {
	for cookie, want := range map[string]string{
		"a=b":                               "a=b",
		"a=b; Domain=example.com":           "a=b",
		"a=b; domain = example.com; Secure": "a=b; Secure",
		"a=b;DOMAIN;Path=/":                 "a=b;Path=/",
		"domain=b; Max-Age=1":               "domain=b; Max-Age=1",
		"a=b; Domains=x":                    "a=b; Domains=x",
	} {
		recorder := httptest.NewRecorder()
		w := sandboxproxy.HostOnlyCookies(recorder)
		w.Header().Add("Set-Cookie", cookie)
		w.Header().Add("Clear-Site-Data", "*")
		w.WriteHeader(http.StatusOK)
		if got := recorder.Header(); got.Get("Set-Cookie") != want || got["Clear-Site-Data"] != nil {
			t.Errorf("%s: %v, want %s and no Clear-Site-Data", cookie, got, want)
		}
	}
}
