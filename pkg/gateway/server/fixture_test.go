// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

// pipes is a listener in memory, for tests whose clock is theirs.
type pipes struct {
	dialled chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialled:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) { return p.dialFrom("pipe") }

// dialFrom opens a connection whose client has an address.
func (p *pipes) dialFrom(peer string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.dialled <- peerConn{server, peer}:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// peerConn is a connection whose client has an address.
type peerConn struct {
	net.Conn
	peer string
}

// RemoteAddr implements net.Conn.
func (c peerConn) RemoteAddr() net.Addr { return &net.UnixAddr{Name: c.peer} }

// served is a server with a handler of a test's own.
type served struct {
	*pipes
	// stop asks it to end, and ended is what Serve has returned.
	stop  context.CancelFunc
	ended chan error
	// client speaks HTTP/1.1, and client2 HTTP/2.
	client, client2 *http.Client

	mu   sync.Mutex
	logs strings.Builder
}

func start(t *testing.T, handler http.HandlerFunc) *served {
	t.Helper()
	s := &served{pipes: &pipes{dialled: make(chan net.Conn), closed: make(chan struct{})}, ended: make(chan error, 1)}
	logger := funcr.New(func(_, args string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.logs.WriteString(args + "\n")
	}, funcr.Options{})
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	s.stop = stop
	go func() { s.ended <- serveListener(ctx, s.pipes, nil, handler) }()
	client := func(http2 bool) *http.Client {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!http2)
		protocols.SetUnencryptedHTTP2(http2)
		transport := &http.Transport{DialContext: s.dial, Protocols: protocols}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	s.client, s.client2 = client(false), client(true)
	return s
}

// get sends a request, and returns when its answer begins.
func get(t *testing.T, client *http.Client, path string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://gateway"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client.Do(req)
}

func (s *served) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs.String()
}
