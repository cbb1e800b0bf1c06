// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
)

const (
	anID    = "team-a--eaaaaaaaaaaaaa"
	another = "b--e--ebbbbbbbbbbbbb"
)

// parsed is a request as the server reads it.
func parsed(t *testing.T, lines ...string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.Join(lines, "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDestinations(t *testing.T) {
	to := func(form form, id string, port int, rest string) destination {
		return destination{form: form, id: id, port: port, rest: rest}
	}
	longest := strings.Repeat("n", 40) + "--eaaaaaaaaaaaaa"
	for name, test := range map[string]struct {
		domains []string
		lines   []string
		// want is the zero value for a request that is the API's. bad is one for a sandbox
		// that is refused.
		want destination
		bad  bool
	}{
		"host":                        {lines: []string{"GET /x HTTP/1.1", "Host: 3000-" + anID + ".example.com"}, want: to(byHost, anID, 3000, "")},
		"host of a domain":            {domains: []string{"Example.com."}, lines: []string{"GET /x HTTP/1.1", "Host: 3000-" + anID + ".example.com"}, want: to(byHost, anID, 3000, "")},
		"host of the longest id":      {lines: []string{"GET / HTTP/1.1", "Host: 65535-" + longest + ".example.com"}, want: to(byHost, longest, 65535, "")},
		"host, upper case":            {lines: []string{"GET / HTTP/1.1", "Host: 3000-" + strings.ToUpper(anID) + ".EXAMPLE.com"}, want: to(byHost, anID, 3000, "")},
		"host, trailing dot":          {domains: []string{"example.com"}, lines: []string{"GET / HTTP/1.1", "Host: 3000-" + anID + ".example.com."}, want: to(byHost, anID, 3000, "")},
		"host, its own port":          {domains: []string{"example.com"}, lines: []string{"GET / HTTP/1.1", "Host: 3000-" + anID + ".example.com:8443"}, want: to(byHost, anID, 3000, "")},
		"host, dot and port":          {domains: []string{"example.com"}, lines: []string{"GET / HTTP/1.1", "Host: 3000-" + anID + ".example.com.:80"}, want: to(byHost, anID, 3000, "")},
		"host, two dashes in team":    {lines: []string{"GET / HTTP/1.1", "Host: 80-" + another + ".example.com"}, want: to(byHost, another, 80, "")},
		"host, path of the API":       {lines: []string{"GET /kruise/api/sandboxes HTTP/1.1", "Host: 80-" + anID + ".example.com"}, want: to(byHost, anID, 80, "")},
		"host wins over path":         {lines: []string{"GET /kruise/" + another + "/81/ HTTP/1.1", "Host: 80-" + anID + ".example.com"}, want: to(byHost, anID, 80, "")},
		"absolute form":               {lines: []string{"GET http://3000-" + anID + ".example.com/x HTTP/1.1", "Host: api.example.com"}, want: to(byHost, anID, 3000, "")},
		"absolute form of the API":    {domains: []string{"example.com"}, lines: []string{"GET http://api.example.com/x HTTP/1.1", "Host: 3000-" + anID + ".example.com"}},
		"absolute form, user":         {lines: []string{"GET http://u:p@3000-" + anID + ".example.com/x HTTP/1.1", "Host: x"}, bad: true},
		"absolute form, other scheme": {lines: []string{"GET ftp://3000-" + anID + ".example.com/x HTTP/1.1", "Host: x"}, bad: true},
		"connect":                     {lines: []string{"CONNECT 3000-" + anID + ".example.com:80 HTTP/1.1", "Host: 3000-" + anID + ".example.com:80"}, bad: true},
		"host, port 0":                {lines: []string{"GET / HTTP/1.1", "Host: 0-" + anID + ".example.com"}, bad: true},
		"host, port 65536":            {lines: []string{"GET / HTTP/1.1", "Host: 65536-" + anID + ".example.com"}, bad: true},
		"host, leading zeros":         {lines: []string{"GET / HTTP/1.1", "Host: 080-" + anID + ".example.com"}, bad: true},
		"host, no id":                 {domains: []string{"example.com"}, lines: []string{"GET / HTTP/1.1", "Host: 80-x.example.com"}, bad: true},
		"host, user":                  {lines: []string{"GET / HTTP/1.1", "Host: u@3000-" + anID + ".example.com"}},
		"host, no domain":             {lines: []string{"GET / HTTP/1.1", "Host: 3000-" + anID}},
		"host, another domain":        {domains: []string{"example.com"}, lines: []string{"GET / HTTP/1.1", "Host: 3000-" + anID + ".example.org"}},
		"host, end of a domain":       {domains: []string{"example.com"}, lines: []string{"GET / HTTP/1.1", "Host: 3000-" + anID + ".notexample.com"}},
		"host, a label more":          {domains: []string{"example.com"}, lines: []string{"GET / HTTP/1.1", "Host: 3000-" + anID + ".evil.example.com"}},
		"host, a label before":        {domains: []string{"example.com"}, lines: []string{"GET / HTTP/1.1", "Host: x.3000-" + anID + ".example.com"}},
		"host of the API":             {domains: []string{"example.com"}, lines: []string{"GET /sandboxes HTTP/1.1", "Host: api.example.com"}},
		"host that looks a bit so":    {lines: []string{"GET /sandboxes HTTP/1.1", "Host: 3000-api.example.com"}},
		"host, minus a port":          {lines: []string{"GET / HTTP/1.1", "Host: -1-" + anID + ".example.com"}},
		"an address":                  {lines: []string{"GET /sandboxes HTTP/1.1", "Host: 127.0.0.1:3000"}},
		"an address of IPv6":          {lines: []string{"GET /sandboxes HTTP/1.1", "Host: [::1]:3000"}},
		"host, a strange port":        {domains: []string{"example.com"}, lines: []string{"GET / HTTP/1.1", "Host: 3000-" + anID + ".example.com:80:80"}},

		"headers":                        {lines: []string{"GET /x HTTP/1.1", "Host: gateway", "E2b-Sandbox-Id: " + anID, "E2b-Sandbox-Port: 49983"}, want: to(byHeaders, anID, 49983, "")},
		"headers, lower case":            {lines: []string{"GET /x HTTP/1.1", "Host: gateway", "e2b-sandbox-id: " + anID, "e2b-sandbox-port: 49983"}, want: to(byHeaders, anID, 49983, "")},
		"headers and host":               {lines: []string{"GET /x HTTP/1.1", "Host: 80-" + anID + ".example.com", "E2b-Sandbox-Id: " + anID, "E2b-Sandbox-Port: 80"}, want: to(byHost, anID, 80, "")},
		"headers and host, another id":   {lines: []string{"GET /x HTTP/1.1", "Host: 80-" + another + ".example.com", "E2b-Sandbox-Id: " + anID, "E2b-Sandbox-Port: 80"}, bad: true},
		"headers and host, another port": {lines: []string{"GET /x HTTP/1.1", "Host: 80-" + anID + ".example.com", "E2b-Sandbox-Id: " + anID, "E2b-Sandbox-Port: 81"}, bad: true},
		"headers and path, another id":   {lines: []string{"GET /kruise/" + another + "/81/x HTTP/1.1", "Host: g", "E2b-Sandbox-Id: " + anID, "E2b-Sandbox-Port: 81"}, bad: true},
		"headers and path, another port": {lines: []string{"GET /kruise/" + anID + "/80/x HTTP/1.1", "Host: g", "E2b-Sandbox-Id: " + anID, "E2b-Sandbox-Port: 81"}, bad: true},
		"headers say what the path says": {lines: []string{"GET /kruise/" + anID + "/81/x HTTP/1.1", "Host: g", "E2b-Sandbox-Id: " + anID, "E2b-Sandbox-Port: 81"},
			want: to(byPath, anID, 81, "/x")},
		"an id twice":          {lines: []string{"GET /x HTTP/1.1", "Host: g", "E2b-Sandbox-Id: " + anID, "E2b-Sandbox-Id: " + anID, "E2b-Sandbox-Port: 80"}, bad: true},
		"a port twice":         {lines: []string{"GET /x HTTP/1.1", "Host: g", "E2b-Sandbox-Id: " + anID, "E2b-Sandbox-Port: 80", "E2b-Sandbox-Port: 81"}, bad: true},
		"a token twice":        {lines: []string{"GET /x HTTP/1.1", "Host: 80-" + anID + ".a.b", "E2b-Traffic-Access-Token: a", "E2b-Traffic-Access-Token: b"}, bad: true},
		"two ids in one":       {lines: []string{"GET /x HTTP/1.1", "Host: g", "E2b-Sandbox-Id: " + anID + ", " + another, "E2b-Sandbox-Port: 80"}, bad: true},
		"an id without a port": {lines: []string{"GET /x HTTP/1.1", "Host: g", "E2b-Sandbox-Id: " + anID}, bad: true},
		"a port without an id": {lines: []string{"GET /x HTTP/1.1", "Host: 80-" + anID + ".a.b", "E2b-Sandbox-Port: 80"}, bad: true},
		"an empty id":          {lines: []string{"GET /x HTTP/1.1", "Host: 80-" + anID + ".a.b", "E2b-Sandbox-Id:", "E2b-Sandbox-Port: 80"}, bad: true},
		"an id of another API": {lines: []string{"GET /x HTTP/1.1", "Host: g", "E2b-Sandbox-Id: team-a--pool-x7k2p", "E2b-Sandbox-Port: 80"}, bad: true},
		"a port that is a sum": {lines: []string{"GET /x HTTP/1.1", "Host: g", "E2b-Sandbox-Id: " + anID, "E2b-Sandbox-Port: +80"}, bad: true},

		"path":                       {lines: []string{"GET /kruise/" + anID + "/80/a/b?c HTTP/1.1", "Host: g"}, want: to(byPath, anID, 80, "/a/b")},
		"path, nothing more":         {lines: []string{"GET /kruise/" + anID + "/80 HTTP/1.1", "Host: g"}, want: to(byPath, anID, 80, "/")},
		"path, a slash":              {lines: []string{"GET /kruise/" + anID + "/80/ HTTP/1.1", "Host: g"}, want: to(byPath, anID, 80, "/")},
		"path, up":                   {lines: []string{"GET /kruise/" + anID + "/80/../../" + another + "/81/x HTTP/1.1", "Host: g"}, want: to(byPath, anID, 80, "/../../"+another+"/81/x")},
		"path, up in code":           {lines: []string{"GET /kruise/" + anID + "/80/%2e%2e/%2E%2E%2fx HTTP/1.1", "Host: g"}, want: to(byPath, anID, 80, "/%2e%2e/%2E%2E%2fx")},
		"path, slash in code":        {lines: []string{"GET /kruise/" + anID + "/80/a%2Fb//c HTTP/1.1", "Host: g"}, want: to(byPath, anID, 80, "/a%2Fb//c")},
		"path, another host in rest": {lines: []string{"GET /kruise/" + anID + "/80//evil.example/x HTTP/1.1", "Host: g"}, want: to(byPath, anID, 80, "//evil.example/x")},
		"path, slash of the prefix":  {lines: []string{"GET /kruise%2F" + anID + "/80/x HTTP/1.1", "Host: g"}},
		"path, slash behind the id":  {lines: []string{"GET /kruise/" + anID + "%2F80/x HTTP/1.1", "Host: g"}, bad: true},
		"path, id in code":           {lines: []string{"GET /kruise/%74" + anID[1:] + "/80/x HTTP/1.1", "Host: g"}, bad: true},
		"path, up to the API":        {lines: []string{"GET /kruise/../sandboxes HTTP/1.1", "Host: g"}, bad: true},
		"path, no port":              {lines: []string{"GET /kruise/" + anID + "/x/y HTTP/1.1", "Host: g"}, bad: true},
		"path, port 65536":           {lines: []string{"GET /kruise/" + anID + "/65536/y HTTP/1.1", "Host: g"}, bad: true},
		"path, nothing":              {lines: []string{"GET /kruise/ HTTP/1.1", "Host: g"}, bad: true},
		"path of the API":            {lines: []string{"GET /kruise/api/sandboxes HTTP/1.1", "Host: g"}},
		"path of the API, in code":   {lines: []string{"GET /kruise/%61pi/sandboxes HTTP/1.1", "Host: g"}},
		"root of the API":            {lines: []string{"GET /kruise/api HTTP/1.1", "Host: g"}},
		"another path":               {lines: []string{"GET /sandboxes/" + anID + " HTTP/1.1", "Host: g"}},
		"two slashes":                {lines: []string{"GET //kruise/" + anID + "/80/ HTTP/1.1", "Host: g"}},
		"all of the server":          {lines: []string{"OPTIONS * HTTP/1.1", "Host: g"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Options{Domains: test.domains})
			r := parsed(t, test.lines...)
			if want, got := test.bad || test.want != (destination{}), p.Match(r); got != want {
				t.Fatalf("it is for a sandbox: %t, want %t", got, want)
			}
			if !p.Match(r) {
				return
			}
			got, err := p.destinationOf(r)
			if test.bad != (err != nil) || got != test.want {
				t.Errorf("got %+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}

// TestPathsStayAsTheyWereEscaped: a sandbox gets the very path that the client wrote.
func TestPathsStayAsTheyWereEscaped(t *testing.T) {
	for _, rest := range []string{"/", "/a%2Fb", "/..%2f../etc", "/../../x", "/%E4%BD%A0", "/a+b%20c;d=e", "//x//", "/%25%32%46"} {
		r := parsed(t, "GET /kruise/"+anID+"/80"+rest+"?q=%2F HTTP/1.1", "Host: g")
		to, err := New(Options{}).destinationOf(r)
		if err != nil {
			t.Fatal(err)
		}
		out, err := outgoing(r, to)
		if err != nil || out.URL.EscapedPath() != rest || out.URL.RawQuery != "q=%2F" || out.URL.RequestURI() != rest+"?q=%2F" {
			t.Errorf("%s became %s, %v", rest, out.URL, err)
		}
	}
}

func FuzzDestinations(f *testing.F) {
	f.Add("80-"+anID+".example.com", "/kruise/"+anID+"/80/x", anID, "80")
	f.Add("[::1]:80", "/kruise/%2e%2e/", "", "")
	f.Fuzz(func(t *testing.T, host, path, id, port string) {
		r, err := http.NewRequest(http.MethodGet, "http://gateway/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if u, err := r.URL.Parse(path); err == nil {
			r.URL = u
		}
		r.Host = host
		r.Header.Set(headerSandboxID, id)
		r.Header.Set(headerSandboxPort, port)
		p := New(Options{})
		if to, err := p.destinationOf(r); err == nil && (to.port < 1 || to.port > 65535 || !p.Match(r)) {
			t.Errorf("got %+v", to)
		}
	})
}
