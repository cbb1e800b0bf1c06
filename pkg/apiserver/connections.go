// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net"
	"net/http"
	"sync"
)

// connections are the open connections of a listener.
type connections struct {
	mu   sync.Mutex
	open map[addresses]*connection
}

// addresses tell a connection from all others that are open.
type addresses struct{ local, remote string }

// listener returns a listener whose connections are known as long as they are open.
func (c *connections) listener(l net.Listener) net.Listener { return knownListener{l, c} }

// find returns the connection that a request came by, which may have others; nil if it is not known.
func (c *connections) find(req *http.Request) net.Conn {
	local, ok := req.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.open[addresses{local.String(), req.RemoteAddr}]; conn != nil {
		return conn
	}
	return nil
}

type knownListener struct {
	net.Listener
	all *connections
}

// Accept implements net.Listener.
func (l knownListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &connection{accepted, l.all, addresses{accepted.LocalAddr().String(), accepted.RemoteAddr().String()}}
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	if l.all.open == nil {
		l.all.open = map[addresses]*connection{}
	}
	l.all.open[conn.addresses] = conn
	return conn, nil
}

// connection is known until it is closed.
type connection struct {
	net.Conn
	all       *connections
	addresses addresses
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.all.mu.Lock()
	if c.all.open[c.addresses] == c {
		delete(c.all.open, c.addresses)
	}
	c.all.mu.Unlock()
	return c.Conn.Close()
}
