// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// dialTimeout bounds finding a sandbox and connecting to it.
	dialTimeout = 10 * time.Second
	// idleTimeout is how long a connection is kept that is not used, and idlePerPort and
	// idleInAll how many are.
	idleTimeout = 60 * time.Second
	// nonRepeatableIdleTimeout is how long an idle connection is kept for requests that cannot be sent
	// again: servers in sandboxes close idle connections after some seconds, perhaps just then.
	nonRepeatableIdleTimeout = time.Second
	idlePerPort              = 64
	idleInAll                = 4096
	// maxHeader is how many bytes the headers of a response may have together, and maxFields how many of them
	// there may be. They are in memory as long as the response lasts, where a short field takes about 150 bytes.
	maxHeader, maxFields = 16 << 10, 200
	// streamWindow and connectionWindow are how much of HTTP/2 answers is taken in that
	// is not read yet. Some streams that are not read do not stop the others.
	streamWindow     = 64 << 10
	connectionWindow = 250 * streamWindow
	// sendBuffer is how much the system keeps of what a sandbox does not read.
	sendBuffer = 128 << 10
)

// newHTTP1Transport returns a transport to sandboxes over HTTP/1.1.
func (p *Proxy) newHTTP1Transport() *http.Transport {
	t := p.newTransport()
	t.Protocols.SetHTTP1(true)
	return t
}

// newHTTP2Transport returns a transport to sandboxes over HTTP/2 without TLS.
func (p *Proxy) newHTTP2Transport() *http.Transport {
	t := p.newTransport()
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// newTransport returns a transport to sandboxes that has no protocol yet.
func (p *Proxy) newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            p.dial,
		DisableCompression:     true, // what goes on is what came
		MaxIdleConns:           idleInAll,
		MaxIdleConnsPerHost:    idlePerPort,
		IdleConnTimeout:        idleTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeader,
		ReadBufferSize:         4 << 10,
		WriteBufferSize:        4 << 10,
		Protocols:              new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connectionWindow,
			SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second,
		},
	}
}

// separator is in no name, namespace or UID.
const separator = "_"

// hostOf is what stands for a target in URLs. Connections are kept by it, and so never
// serve another sandbox, whatever addresses they have.
func hostOf(t Target) string {
	return strings.Join([]string{string(t.UID), t.Claim, t.Name, t.Namespace}, separator) + ":" + strconv.Itoa(t.Port)
}

// targetOf reads what hostOf wrote.
func targetOf(address string) (Target, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return Target{}, err
	}
	parts := strings.Split(host, separator)
	n, err := strconv.Atoi(port)
	if len(parts) != 4 || err != nil {
		return Target{}, fmt.Errorf("%q is no target", address)
	}
	return Target{UID: types.UID(parts[0]), Claim: parts[1], Name: parts[2], Namespace: parts[3], Port: n}, nil
}

// dial finds out where a sandbox is now, and connects to it there.
func (p *Proxy) dial(ctx context.Context, network, host string) (net.Conn, error) {
	target, err := targetOf(host)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	// A transport continues to dial for a request that was given up. Nothing would bound those.
	if pr, ok := ctx.Value(proxyRequestKey{}).(*proxyRequest); ok {
		defer context.AfterFunc(pr.doneCtx, cancel)()
	}
	// Before the address is read, so that no later change is missed.
	defer p.options.Connections.enter(target.UID)()
	address, err := p.options.Resolve(ctx, target)
	if err != nil {
		return nil, &resolveError{err}
	}
	if !address.IsValid() || address.IsUnspecified() {
		return nil, &resolveError{fmt.Errorf("%w: it has no address", ErrNotRunning)}
	}
	at := netip.AddrPortFrom(address.Addr, uint16(target.Port)).String()
	dialed, err := p.dialer.DialContext(ctx, network, at)
	if err != nil {
		return nil, err
	}
	if address.RuntimeProbePath != "" {
		if err := p.probeRuntime(ctx, at, address.RuntimeProbePath); err != nil {
			_ = dialed.Close() // nothing was sent
			return nil, &resolveError{err}
		}
	}
	if tcp, ok := dialed.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // it is as the system has it, else
	}
	conn := &sandboxConn{Conn: dialed, connections: p.options.Connections, target: target, state: address.State}
	if !p.options.Connections.add(conn) {
		_ = dialed.Close() // nothing was sent
		return nil, &resolveError{fmt.Errorf("%w: it has changed just now", ErrNotRunning)}
	}
	return conn, nil
}

// resolveError is an error of Resolve, behind those that net/http puts around it.
type resolveError struct{ error }

func (e *resolveError) Unwrap() error { return e.error }

// causeOf returns what went wrong, without what net/http says of made-up hosts.
func causeOf(err error) error {
	if resolve, ok := errors.AsType[*resolveError](err); ok {
		return resolve.error
	}
	return err
}
