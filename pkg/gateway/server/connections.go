// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// answerGrace is how long a connection is not closed for another after its last request was
// handled: the answer may not be sent yet.
const answerGrace = time.Second

// connections are the open connections of a gateway, of all its listeners. When there are too
// many, one on which no request is handled is closed for a new one. So clients cannot keep others
// out by connections that they only hold.
type connections struct {
	maxOpen int

	mu    sync.Mutex
	open  int
	sites map[string]*site
}

// site has the connections of the sources of a site.
type site struct {
	open    int
	sources map[string]*source
}

// source has the connections of a source.
type source struct {
	open int
	// unused are the *limitedConn without a request, those that had one longest ago first.
	unused list.List
}

func newConnections(maxOpen int) *connections {
	return &connections{maxOpen: maxOpen, sites: map[string]*site{}}
}

// admit returns a connection as one of these. Where there are too many, closed is the connection
// that the caller has to close for it. ok is false if there is none that may be closed.
func (c *connections) admit(conn net.Conn) (admitted, closed *limitedConn, ok bool) {
	from := fairness.Source(conn.RemoteAddr().String())
	admitted = &limitedConn{Conn: conn, all: c, source: from, site: fairness.Site(from), until: clock.RealClock{}.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= c.maxOpen {
		if closed = c.victim(admitted); closed == nil {
			return nil, nil, false
		}
		c.remove(closed)
	}
	c.add(admitted)
	return admitted, closed, true
}

// victim returns the connection that is closed for a new one: of the site that has most
// connections, of its source that has most, the one that has been unused for longest. A site or a
// source that has no more than that of the new one keeps what it has.
func (c *connections) victim(newcomer *limitedConn) *limitedConn {
	own, ownOpen := c.sites[newcomer.site], 0
	if own != nil {
		ownOpen = own.open
	}
	now := clock.RealClock{}.Now()
	var found *limitedConn
	most := 0
	for _, s := range c.sites {
		if s.open <= most || s != own && s.open <= ownOpen {
			continue
		}
		var its *source
		if s == own {
			its = s.sources[newcomer.source]
		}
		if conn := s.victim(its, now); conn != nil {
			found, most = conn, s.open
		}
	}
	return found
}

// victim returns the connection that is closed of a site. A source that has no more than own
// keeps what it has.
func (s *site) victim(own *source, now time.Time) *limitedConn {
	ownOpen := 0
	if own != nil {
		ownOpen = own.open
	}
	var found *limitedConn
	most := 0
	for _, its := range s.sources {
		if its.open <= most || its != own && its.open <= ownOpen {
			continue
		}
		if conn := its.victim(now); conn != nil {
			found, most = conn, its.open
		}
	}
	return found
}

func (s *source) victim(now time.Time) *limitedConn {
	for e := s.unused.Front(); e != nil; e = e.Next() {
		if conn := e.Value.(*limitedConn); !now.Before(conn.until) {
			return conn
		}
	}
	return nil
}

func (c *connections) add(conn *limitedConn) {
	its := c.sites[conn.site]
	if its == nil {
		its = &site{sources: map[string]*source{}}
		c.sites[conn.site] = its
	}
	from := its.sources[conn.source]
	if from == nil {
		from = &source{}
		its.sources[conn.source] = from
	}
	c.open++
	its.open++
	from.open++
	conn.from, conn.unused = from, from.unused.PushBack(conn)
}

func (c *connections) remove(conn *limitedConn) {
	if conn.from == nil {
		return
	}
	if conn.unused != nil {
		conn.from.unused.Remove(conn.unused)
	}
	its := c.sites[conn.site]
	c.open--
	its.open--
	if conn.from.open--; conn.from.open == 0 {
		delete(its.sources, conn.source)
	}
	if its.open == 0 {
		delete(c.sites, conn.site)
	}
	conn.from, conn.unused = nil, nil
}

// limitedListener accepts connections as long as there are places for them. Others it closes at
// once.
type limitedListener struct {
	net.Listener
	connections *connections
}

// Accept implements net.Listener.
func (l limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		admitted, closed, ok := l.connections.admit(conn)
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

// limitedConn has a place until it is closed.
type limitedConn struct {
	net.Conn
	all          *connections
	source, site string

	// What follows is under the lock of all. from is nil when the connection has no place any
	// more. requests is how many are handled; unused is set if there is none.
	from     *source
	requests int
	unused   *list.Element
	// until is until when it is not closed for another.
	until time.Time
}

// begin notes that a request is handled. It returns false if the connection is closed.
func (c *limitedConn) begin() bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.from == nil {
		return false
	}
	c.requests++
	if c.unused != nil {
		c.from.unused.Remove(c.unused)
		c.unused = nil
	}
	return true
}

// end notes that a request has been handled.
func (c *limitedConn) end() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.requests--; c.requests == 0 && c.from != nil {
		c.until = clock.RealClock{}.Now().Add(answerGrace)
		c.unused = c.from.unused.PushBack(c)
	}
}

// answered notes that all answers are sent.
func (c *limitedConn) answered() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.until = time.Time{}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.all.mu.Lock()
	c.all.remove(c)
	c.all.mu.Unlock()
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
