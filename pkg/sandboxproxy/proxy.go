// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ErrNotRunning means that a sandbox has no address at the moment: it is paused, starting,
// failed, gone, or another one has its name.
var ErrNotRunning = errors.New("sandbox is not running")

// ErrRuntimeNotSetUp means that a sandbox runs, but that its agent-runtime may have no access token, so that
// nothing is forwarded to its port. It is an ErrNotRunning.
var ErrRuntimeNotSetUp = fmt.Errorf("%w: its agent-runtime is not set up", ErrNotRunning)

// ErrStopped means that a connection was closed because its sandbox was paused, has ended, or went to another
// claim or pod, or because the port was closed. The sandbox may have processed the request.
var ErrStopped = errors.New("sandbox was stopped during the request")

// Target is one port of one sandbox.
type Target struct {
	// Namespace, Name and UID are the sandbox's.
	Namespace, Name string
	UID             types.UID
	// Claim is the name of the claim that holds the sandbox, where that matters: one that
	// went back to its pool keeps its UID. Connections of two claims are kept apart.
	Claim string
	// Port is from 1 to 65535.
	Port int
}

// Resolve returns the address that a sandbox has now. It is asked before each new
// connection, and has to know of every change that is over: an address may belong to
// another sandbox by now. Errors are ErrNotRunning, or why the truth could not be found out.
type Resolve func(ctx context.Context, target Target) (Address, error)

// DefaultTunnelIdle is how long a connection that was upgraded, such as a WebSocket, may be
// without a byte in either direction.
const DefaultTunnelIdle = time.Hour

// Options are what a Proxy is made with.
type Options struct {
	// Resolve finds the addresses.
	Resolve Resolve
	// Error answers a request that could not be forwarded or whose answer did not come.
	// err wraps ErrNotRunning or ErrStopped, is another one of Resolve, or one of the connection.
	Error func(w http.ResponseWriter, r *http.Request, err error)
	// TunnelIdle ends a connection that was upgraded after so long without a byte. 0 is
	// DefaultTunnelIdle.
	TunnelIdle time.Duration
	// Connections gets the connections of the proxy, which end when changes are reported to it; nil is for
	// a proxy whose connections end by themselves.
	Connections *Connections
}

// Proxy forwards requests to sandboxes: HTTP/1.1, HTTP/2 and WebSockets, in constant memory
// however long they are. It follows no redirect and asks no proxy of the environment.
// Connections are kept for each sandbox and claim, so they never lead to another one.
type Proxy struct {
	options Options
	dialer  net.Dialer
	// http1 is for HTTP/1.1. http1NonRepeatable is for requests of HTTP/1.1 that must not be sent twice: it
	// keeps idle connections for a short time only. http2 is for gRPC.
	http1, http1NonRepeatable, http2 *http.Transport
	// probes is for requests of the proxy's own.
	probes  *http.Transport
	reverse *httputil.ReverseProxy
}

// New returns a Proxy. Close ends it.
func New(options Options) *Proxy {
	if options.TunnelIdle == 0 {
		options.TunnelIdle = DefaultTunnelIdle
	}
	if options.Connections == nil {
		options.Connections = NewConnections()
	}
	p := &Proxy{options: options, dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}}
	p.http1, p.http1NonRepeatable, p.http2 = p.newHTTP1Transport(), p.newHTTP1Transport(), p.newHTTP2Transport()
	p.http1NonRepeatable.IdleConnTimeout = nonRepeatableIdleTimeout
	p.probes = p.newProbeTransport()
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      transportSelector{p},
		FlushInterval:  -1, // what is streamed is sent at once
		BufferPool:     newBuffers(),
		ModifyResponse: p.modify,
		ErrorHandler:   p.fail,
		ErrorLog:       log.New(discard{}, "", 0), // it logs what clients break off
	}
	return p
}

// proxyRequest is the state of one request while it is forwarded. It is a value of the request's context.
type proxyRequest struct {
	target Target
	body   *watchedBody
	// protoMajor is the major version of HTTP of the client.
	protoMajor int
	// doneCtx is done when the request is. Unlike the request's context, it is not done when the client
	// goes away.
	doneCtx context.Context
}

type proxyRequestKey struct{}

// Forward sends a request to a target, and copies the response. Path and Host stay the same; hop-by-hop
// headers are removed. Forward returns when request and response are complete.
func (p *Proxy) Forward(w http.ResponseWriter, req *http.Request, target Target) {
	if req.Method == http.MethodConnect {
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	doneCtx, end := context.WithCancel(context.WithoutCancel(req.Context()))
	defer end()
	pr := &proxyRequest{target: target, protoMajor: req.ProtoMajor, doneCtx: doneCtx}
	req = req.Clone(context.WithValue(req.Context(), proxyRequestKey{}, pr))
	if req.Body != nil && req.Body != http.NoBody {
		pr.body = &watchedBody{ReadCloser: req.Body}
		req.Body = pr.body
	}
	controller := http.NewResponseController(w)
	// Deadlines that earlier requests of the connection had are not this one's.
	_ = controller.SetWriteDeadline(time.Time{})
	// Without this, the server closes a body that has ended when the response begins. The transport may
	// still read it to see its end, and would then abort the response. HTTP/2 is always full duplex.
	_ = controller.EnableFullDuplex()
	defer func() {
		// The sandbox has answered early, and the client may wait for the end of that before it
		// continues. A body cannot be closed while it is read.
		if pr.body != nil && pr.protoMajor == 1 && pr.body.begun.Load() && !pr.body.done.Load() {
			_ = controller.SetReadDeadline(time.Unix(1, 0)) // the connection is not used again
		}
	}()
	p.reverse.ServeHTTP(&stallTimeoutWriter{ResponseWriter: w, idle: p.options.TunnelIdle, http1: req.ProtoMajor == 1}, req)
	w.Header() // what changes the headers of the response changes its trailers too
}

// Close ends all idle connections.
func (p *Proxy) Close() {
	p.http1.CloseIdleConnections()
	p.http1NonRepeatable.CloseIdleConnections()
	p.http2.CloseIdleConnections()
}

// rewrite directs a request. The query stays as it came: what is behind judges it.
func rewrite(p *httputil.ProxyRequest) {
	pr := p.In.Context().Value(proxyRequestKey{}).(*proxyRequest)
	p.Out.URL.Scheme, p.Out.URL.Host = "http", hostOf(pr.target)
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	p.Out.Host = cmp.Or(p.In.Host, pr.target.Name)
	for _, name := range addressOfClient {
		p.Out.Header.Del(name)
	}
	for name := range p.Out.Header {
		if isIdentity(name) {
			p.Out.Header.Del(name)
		}
	}
	p.SetXForwarded()
}

// addressOfClient are headers by which servers know the address of a client from proxies.
// Forwarded and X-Forwarded-For are set anew, and nothing vouches for these.
var addressOfClient = []string{
	"Cf-Connecting-Ip", "Fastly-Client-Ip", "True-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
	"X-Envoy-External-Address", "X-Original-Forwarded-For", "X-Real-Ip",
}

// identityOfClient are how headers begin by which proxies that authenticate users tell who a user
// is: oauth2-proxy, those of Amazon, Cloudflare, Google and Microsoft, Authelia, authentik and
// Pomerium. Some are tokens, by which a sandbox could act in the name of the user. The list cannot
// be complete.
var identityOfClient = []string{
	"Cf-Access-", "Remote-Email", "Remote-Groups", "Remote-Name", "Remote-User", "X-Amzn-Oidc-", "X-Auth-Request-", "X-Authentik-",
	"X-Forwarded-Access-Token", "X-Forwarded-Email", "X-Forwarded-Groups", "X-Forwarded-Preferred-Username", "X-Forwarded-User",
	"X-Goog-Authenticated-User-", "X-Goog-Iap-", "X-Ms-Client-Principal", "X-Ms-Token-", "X-Pomerium-",
}

// isIdentity reports whether a header, whose name is in canonical form, is one of these.
func isIdentity(name string) bool {
	return slices.ContainsFunc(identityOfClient, func(begin string) bool { return strings.HasPrefix(name, begin) })
}

// transportSelector is a RoundTripper that selects the transport of a request.
type transportSelector struct{ *Proxy }

// RoundTrip implements http.RoundTripper.
func (t transportSelector) RoundTrip(req *http.Request) (*http.Response, error) {
	// httputil.ReverseProxy would send informational responses (1xx) with the headers of the server itself,
	// and remove these from the final response. A gateway need not forward them. Without a function here,
	// net/http limits the bytes of all of them together.
	httptrace.ContextClientTrace(req.Context()).Got1xxResponse = nil
	switch {
	case isGRPC(req):
		return t.http2.RoundTrip(req)
	case isRepeatable(req):
		return t.http1.RoundTrip(req)
	}
	return t.http1NonRepeatable.RoundTrip(req)
}

// isRepeatable reports whether net/http sends a request again, over a new connection, if the
// sandbox has closed the one that was kept.
func isRepeatable(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return req.Body == nil || req.Body == http.NoBody
	}
	return false
}

func isGRPC(req *http.Request) bool {
	kind := req.Header.Get("Content-Type")
	return req.ProtoMajor >= 2 && (kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+") || strings.HasPrefix(kind, "application/grpc;"))
}

// modify checks a response before it is copied.
func (p *Proxy) modify(resp *http.Response) error {
	pr := resp.Request.Context().Value(proxyRequestKey{}).(*proxyRequest)
	// With such a code there is no answer to write; net/http ends the request in a panic.
	if resp.StatusCode < http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols || resp.StatusCode > 999 {
		return fmt.Errorf("the sandbox has answered with the code %d", resp.StatusCode)
	}
	fields := 0
	for _, values := range resp.Header {
		fields += len(values)
	}
	if fields > maxFields {
		resp.Header = nil // the answer to the client is kept until the client has read it
		return fmt.Errorf("the sandbox has answered with more than %d header fields", maxFields)
	}
	// What is left of a body must not be taken for the next request of the connection.
	if pr.body != nil && pr.protoMajor == 1 && !pr.body.done.Load() {
		resp.Header.Set("Connection", "close")
	}
	return nil
}

// fail writes the response to a request that has none from the sandbox.
func (p *Proxy) fail(w http.ResponseWriter, req *http.Request, err error) {
	pr := req.Context().Value(proxyRequestKey{}).(*proxyRequest)
	if pr.body != nil && pr.protoMajor == 1 && !pr.body.done.Load() {
		w.Header().Set("Connection", "close")
	}
	p.options.Error(w, req, causeOf(err))
}

// discard is the log of httputil.ReverseProxy, which logs requests that clients cancel.
type discard struct{}

// Write implements io.Writer.
func (discard) Write(p []byte) (int, error) { return len(p), nil }
