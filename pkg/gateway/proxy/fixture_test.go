// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
	"github.com/sandlot-io/sandlot/pkg/testutil/e2btest"
)

// world is a gateway, and what it knows of sandboxes that listen on this machine.
type world struct {
	url string

	lock sync.Mutex
	// table is what Find says, and running who has an address.
	table   map[string]routes.Route
	running map[types.UID]bool
	failure error
	// runtime is the address of the runtimes of all sandboxes; that of other ports is
	// 127.0.0.1.
	runtime string
	// refused is called each time that a sandbox has no address.
	refused func()
	// resolved is how many addresses were asked for.
	resolved int
	// resumed are the sandboxes that were asked to resume.
	resumed []string
}

func newWorld(t testing.TB, change func(*world, *proxy.Options)) *world {
	t.Helper()
	w := &world{table: map[string]routes.Route{}, running: map[types.UID]bool{}}
	forwarder := newSandboxProxy(t, w.Resolve, nil)
	options := proxy.Options{
		Table: w, Forwarder: forwarder, Domains: []string{"example.com"},
		Token:  func(_ context.Context, route routes.Route) (string, error) { return "token of " + route.ID, nil },
		Resume: w.resume,
	}
	if change != nil {
		change(w, &options)
	}
	p := proxy.New(options)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !p.Match(r) {
			rw.WriteHeader(http.StatusTeapot) // the API
			return
		}
		p.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// Find implements proxy.Table.
func (w *world) Find(_ context.Context, id string) (routes.Route, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.failure != nil {
		return routes.Route{}, w.failure
	}
	route, ok := w.table[id]
	if !ok {
		return routes.Route{}, routes.ErrNotFound
	}
	return route, nil
}

func (w *world) Resolve(_ context.Context, target sandboxproxy.Target) (sandboxproxy.Address, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.resolved++
	if w.failure != nil {
		return sandboxproxy.Address{}, w.failure
	}
	if !w.running[target.UID] {
		if w.refused != nil {
			w.refused()
		}
		return sandboxproxy.Address{}, fmt.Errorf("%w: in the test", sandboxproxy.ErrNotRunning)
	}
	if target.Port == proxy.RuntimePort {
		return sandboxproxy.Address{Addr: netip.MustParseAddr(w.runtime)}, nil
	}
	return sandboxproxy.Address{Addr: netip.MustParseAddr("127.0.0.1")}, nil
}

func (w *world) resume(_ context.Context, route routes.Route) error {
	w.change(route.ID, func(route *routes.Route) {
		route.State = routes.Running
		w.running[route.UID] = true
		w.resumed = append(w.resumed, route.ID)
	})
	return nil
}

// add adds a sandbox, and returns its id.
func (w *world) add(change func(*routes.Route)) (id string) {
	code := e2btest.Code()
	route := routes.Route{ID: "team-a--" + code, Namespace: "team-a", Claim: code, Name: "pool-" + code, UID: types.UID("uid-" + code), State: routes.Running}
	if change != nil {
		change(&route)
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	w.table[route.ID], w.running[route.UID] = route, route.State == routes.Running
	return route.ID
}

func (w *world) change(id string, change func(*routes.Route)) {
	w.lock.Lock()
	defer w.lock.Unlock()
	route := w.table[id]
	change(&route)
	w.table[id] = route
}

func (w *world) resumes() int {
	w.lock.Lock()
	defer w.lock.Unlock()
	return len(w.resumed)
}

// forms are the three ways to a port of a sandbox: what a request says of itself.
var forms = map[string]func(r *http.Request, id string, port int){
	"host": func(r *http.Request, id string, port int) { r.Host = fmt.Sprintf("%d-%s.example.com", port, id) },
	"headers": func(r *http.Request, id string, port int) {
		r.Header.Set("E2b-Sandbox-Id", id)
		r.Header.Set("E2b-Sandbox-Port", fmt.Sprint(port))
	},
	"path": func(r *http.Request, id string, port int) {
		prefix := fmt.Sprintf("/kruise/%s/%d", id, port)
		r.URL.RawPath, r.URL.Path = prefix+r.URL.EscapedPath(), prefix+r.URL.Path
	},
}

// request makes a request that does not name a sandbox yet.
func (w *world) request(t testing.TB, method, path string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// do sends a request without following redirects, and returns the answer with its body.
func do(t testing.TB, r *http.Request) (*http.Response, string) {
	t.Helper()
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(data)
}

// get gets the root of a port by headers.
func (w *world) get(t testing.TB, id string, port int, headers ...string) (*http.Response, string) {
	t.Helper()
	r := w.request(t, http.MethodGet, "/", nil)
	forms["headers"](r, id, port)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return do(t, r)
}

// wantProblem checks an answer of the gateway's own.
func wantProblem(t testing.TB, response *http.Response, body string, code int, says, id string) {
	t.Helper()
	var got struct {
		Code      int    `json:"code"`
		Message   string `json:"message"`
		SandboxID string `json:"sandboxId"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%d %q is no JSON: %v", response.StatusCode, body, err)
	}
	if response.StatusCode != code || got.Code != code || !strings.Contains(got.Message, says) || got.SandboxID != id ||
		response.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %+v, want %d with %q about %q", response.StatusCode, got, code, says, id)
	}
	if retry := response.Header.Get("Retry-After"); (code == 429 || code == 503) != (retry == "1") {
		t.Errorf("code %d has Retry-After %q", code, retry)
	}
}

// listen serves a port of a sandbox, and returns it.
func listen(t testing.TB, handler http.HandlerFunc) (port int) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return portOf(server.Listener.Addr())
}

// listenAsRuntime serves the port of the runtime of all sandboxes.
func (w *world) listenAsRuntime(t testing.TB, handler http.HandlerFunc) {
	t.Helper()
	var listener net.Listener
	settles(t, func() (err error) { // until an address is free
		w.runtime = fmt.Sprintf("127.%d.%d.%d", 128+rand.IntN(127), rand.IntN(255), 1+rand.IntN(254))
		listener, err = net.Listen("tcp", net.JoinHostPort(w.runtime, fmt.Sprint(proxy.RuntimePort)))
		return err
	})
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	server.Start()
	t.Cleanup(server.Close)
}

func portOf(address net.Addr) int {
	return int(netip.MustParseAddrPort(address.String()).Port())
}

// echo answers with what it was sent, as JSON.
type echoed struct {
	Method, URI, Host, Body string
	Header                  http.Header
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_ = json.NewEncoder(w).Encode(echoed{Method: r.Method, URI: r.RequestURI, Host: r.Host, Body: string(body), Header: r.Header})
}

// upgradeEcho switches to a protocol in which everything comes back.
func upgradeEcho(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" {
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSet-Cookie: a=b\r\n\r\n")
	_ = buffered.Flush()
	_, _ = io.Copy(conn, buffered)
}

// upgrade opens a WebSocket through the gateway. What it returns is past the handshake.
func (w *world) upgrade(t testing.TB, form, id string, port int) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	r := w.request(t, http.MethodGet, "/socket", nil)
	forms[form](r, id, port)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-WebSocket-Version", "13")
	r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReaderSize(conn, 512)
	response, err := http.ReadResponse(reader, r)
	if err != nil {
		t.Fatal(err)
	}
	return conn, reader, response
}
