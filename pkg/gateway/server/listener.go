// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"time"

	"k8s.io/utils/clock"
)

// limitedListener accepts the connections that its pool admits, and closes others at once.
type limitedListener struct {
	net.Listener
	pool *connectionPool
}

// Accept implements net.Listener.
func (l limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		admitted, closed, ok := l.pool.admit(conn)
		if !ok {
			connectionsRefused.Inc()
			_ = conn.Close() // its client gets nothing
			continue
		}
		if closed != nil {
			connectionsEvicted.Inc()
			_ = closed.Conn.Close()
		}
		return admitted, nil
	}
}

// limitedConn is a connection of a pool. It leaves the pool when it is closed.
type limitedConn struct {
	net.Conn
	pool         *connectionPool
	source, site string

	// The lock of the pool guards the following fields. from is nil when the connection has left the
	// pool. requests is how many requests are handled; idle is set if there is none.
	from     *peerConns
	requests int
	idle     *list.Element
	// protectedUntil is until when it is not closed for another.
	protectedUntil time.Time
}

// startRequest is called when the handler of a request starts. It returns false if the connection is closed.
func (c *limitedConn) startRequest() bool {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.from == nil {
		return false
	}
	c.requests++
	if c.idle != nil {
		c.from.idle.Remove(c.idle)
		c.idle = nil
	}
	return true
}

// endRequest is called when the handler of a request has returned.
func (c *limitedConn) endRequest() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.requests--; c.requests == 0 && c.from != nil {
		c.protectedUntil = clock.RealClock{}.Now().Add(responseGrace)
		c.idle = c.from.idle.PushBack(c)
	}
}

// markIdle is called when all responses are sent. It ends the protection.
func (c *limitedConn) markIdle() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.protectedUntil = time.Time{}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.pool.mu.Lock()
	c.pool.remove(c)
	c.pool.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http send the end of an answer before it closes the connection, as it
// does with connections that can be closed by halves.
func (c *limitedConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

// limited returns the limitedConn below a connection that net/http serves, or nil.
func limited(conn net.Conn) *limitedConn {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	found, _ := conn.(*limitedConn)
	return found
}

type connKey struct{}

// withConn returns a context for the requests of a connection.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if its := limited(conn); its != nil {
		return context.WithValue(ctx, connKey{}, its)
	}
	return ctx
}

// connOf returns the connection of a request, or nil if connections are not limited.
func connOf(ctx context.Context) *limitedConn {
	conn, _ := ctx.Value(connKey{}).(*limitedConn)
	return conn
}
