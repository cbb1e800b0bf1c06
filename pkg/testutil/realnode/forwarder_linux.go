// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// forwarder leads connections from a node to kube-apiserver, which listens on loopback only.
type forwarder struct {
	listener net.Listener
	to       string

	mu      sync.Mutex
	stopped bool
	open    map[net.Conn]bool
	serving sync.WaitGroup
}

func startForwarder(ctx context.Context, from, to string) (*forwarder, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", from)
	if err != nil {
		return nil, fmt.Errorf("listening for a node: %w", err)
	}
	f := &forwarder{listener: listener, to: to, open: map[net.Conn]bool{}}
	f.serving.Go(f.serve)
	return f, nil
}

// stop ends all connections, and returns when that is done.
func (f *forwarder) stop() {
	_ = f.listener.Close() // nothing is lost by an error
	f.mu.Lock()
	f.stopped = true
	for conn := range f.open {
		_ = conn.Close()
	}
	f.mu.Unlock()
	f.serving.Wait()
}

func (f *forwarder) serve() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.serving.Go(func() { f.forward(conn) })
	}
}

func (f *forwarder) forward(from net.Conn) {
	if !f.add(from) {
		return
	}
	defer f.remove(from)
	to, err := new(net.Dialer).Dial("tcp", f.to)
	if err != nil || !f.add(to) {
		return
	}
	defer f.remove(to)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	})
	_, _ = io.Copy(to, from)
	_ = to.Close()
	back.Wait()
}

// add notes a connection for stop, or closes it if that was called.
func (f *forwarder) add(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		_ = conn.Close()
		return false
	}
	f.open[conn] = true
	return true
}

func (f *forwarder) remove(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, conn)
	_ = conn.Close()
}
