// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// dialTimeout is how long a server may take to accept a forwarded connection.
const dialTimeout = time.Second

// Forwarder forwards the connections of an address to servers.
type Forwarder struct {
	listener net.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup // all goroutines

	mu    sync.Mutex
	conns map[net.Conn]bool // nil when closed
}

// Forward listens on an address, and forwards each connection to the first of the servers that answers, until
// Close is called. servers returns their addresses. A connection that none answers is closed.
func Forward(ctx context.Context, address string, servers func() []string) (*Forwarder, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// It outlives the test that made it, until Close.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Forwarder{listener: listener, cancel: cancel, conns: map[net.Conn]bool{}}
	f.running.Go(func() { f.serve(ctx, servers) })
	return f, nil
}

// Address returns the address that it listens on.
func (f *Forwarder) Address() string { return f.listener.Addr().String() }

// Close cuts all connections, and returns when everything has ended.
func (f *Forwarder) Close() {
	f.cancel()
	_ = f.listener.Close() // it serves no more either way
	f.mu.Lock()
	for conn := range f.conns {
		_ = conn.Close()
	}
	f.conns = nil
	f.mu.Unlock()
	f.running.Wait()
}

func (f *Forwarder) serve(ctx context.Context, servers func() []string) {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return // closed
		}
		if !f.keep(client) {
			return
		}
		f.running.Go(func() {
			defer f.drop(client)
			if server := dial(ctx, servers()); server != nil && f.keep(server) {
				defer f.drop(server)
				forward(client, server)
			}
		})
	}
}

// dial connects to the first of the addresses that answers.
func dial(ctx context.Context, addresses []string) net.Conn {
	for _, address := range addresses {
		dialer := net.Dialer{Timeout: dialTimeout}
		if server, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			return server
		}
	}
	return nil
}

// keep notes a connection, to be closed with the forwarder, or closes it when that has been.
func (f *Forwarder) keep(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		_ = conn.Close()
		return false
	}
	f.conns[conn] = true
	return true
}

func (f *Forwarder) drop(conn net.Conn) {
	_ = conn.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
}

// forward copies both ways until one side ends.
func forward(a, b net.Conn) {
	done := make(chan struct{}, 2)
	oneWay := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // a cut connection is an end like any other
		done <- struct{}{}
	}
	go oneWay(a, b)
	go oneWay(b, a)
	<-done
	_ = a.Close()
	_ = b.Close()
	<-done
}
