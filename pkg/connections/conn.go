// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"container/list"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

// errNoSlot is the error of a read from a connection that was closed because it got no slot for large headers.
var errNoSlot = errors.New("no slot is left for a connection with large headers")

// listener accepts the connections that its pool admits, and closes others at once.
type listener struct {
	net.Listener
	pool *Pool
}

// Listener wraps a listener. Accept returns the connections that the pool admits, as *Conn, and closes others.
func (p *Pool) Listener(l net.Listener) net.Listener { return listener{l, p} }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		admitted, closed, ok := l.pool.admit(conn)
		if !ok {
			l.pool.metrics.Refused.Inc()
			_ = conn.Close() // its client gets nothing
			continue
		}
		if closed != nil {
			l.pool.metrics.Evicted.Inc()
			_ = closed.Conn.Close()
		}
		return admitted, nil
	}
}

// Conn is a connection of a pool. It leaves the pool when it is closed.
type Conn struct {
	net.Conn
	pool         *Pool
	source, site string

	// The lock of the pool guards the following fields. from is nil when the connection has left the
	// pool, and place is its place there. requests is how many requests are handled; idle is set if there is
	// none, and is its place in from.unused if there was none yet, or else in from.idle.
	from        *sourceConns
	requests    int
	place, idle *list.Element
	// protectedUntil is until when it is not closed for another.
	protectedUntil time.Time
	// read is how many bytes were read while no request was handled, and release releases the slot for large
	// headers, if the connection has one.
	read    int
	release func()
}

// Of returns the connection of a pool that is below one that net/http serves, or nil.
func Of(conn net.Conn) *Conn {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	found, _ := conn.(*Conn)
	return found
}

// localAddr is the local address of a connection. net/http gives it to the handlers of its requests.
type localAddr struct {
	net.Addr
	conn *Conn
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return localAddr{c.Conn.LocalAddr(), c} }

// Find returns the connection that a request came by, which may have others and may be closed already; nil if it
// is in no pool.
func Find(req *http.Request) *Conn {
	local, _ := req.Context().Value(http.LocalAddrContextKey).(localAddr)
	return local.conn
}

// StartRequest is called when the handler of a request starts. It returns false if the connection is closed.
func (c *Conn) StartRequest() bool {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.from == nil {
		return false
	}
	c.requests++
	c.leaveIdle()
	c.releaseSlot()
	return true
}

// leaveIdle removes the connection from those without a request. The caller holds the lock of the pool.
func (c *Conn) leaveIdle() {
	if c.idle != nil { // it is in one of them
		c.from.idle.Remove(c.idle)
		c.from.unused.Remove(c.idle)
		c.idle = nil
	}
}

// EndRequest is called when the handler of a request has returned.
func (c *Conn) EndRequest() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.requests--; c.requests == 0 && c.from != nil {
		c.protectedUntil = clock.RealClock{}.Now().Add(c.pool.limits.ResponseGrace)
		c.idle = c.from.idle.PushBack(c)
	}
}

// MarkIdle ends the protection after the last request. A server that knows when all responses are sent may
// call it.
func (c *Conn) MarkIdle() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.protectedUntil = time.Time{}
}

// Busy reports whether a request is handled.
func (c *Conn) Busy() bool {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	return c.requests > 0
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.mayRead(n) {
		c.pool.metrics.LargeHeaders.Inc()
		return 0, errors.Join(errNoSlot, c.Close())
	}
	return n, err
}

// mayRead counts bytes that were read. It returns false if they take a slot and there is none.
//
// Over HTTP/2 they can be a body: the headers of a request may be read together with what follows them, and its
// handler starts a moment later, which releases the slot. In that moment an upload of more than
// Limits.WithoutSlot takes a slot on a connection that has no other request. The connection is closed only if
// the source has no slot left, or all sources have none, so if clients send large headers at that moment. Its
// client gets an error of the connection, and StartRequest keeps the request from being handled.
func (c *Conn) mayRead(n int) bool {
	slots := c.pool.limits.LargeHeaders
	if slots == nil {
		return true
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.from == nil || c.requests > 0 || c.release != nil {
		return true
	}
	if c.read += n; c.read <= c.pool.limits.WithoutSlot {
		return true
	}
	release, ok := slots.Take(c.source)
	c.release = release
	return ok
}

// releaseSlot releases the slot for large headers, if there is one, and begins to count anew what is read.
// The caller holds the lock of the pool.
func (c *Conn) releaseSlot() {
	c.read = 0
	if c.release != nil {
		c.release()
		c.release = nil
	}
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.pool.mu.Lock()
	c.pool.remove(c)
	c.pool.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http send the end of an answer before it closes the connection, as it
// does with connections that can be closed by halves.
func (c *Conn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}
