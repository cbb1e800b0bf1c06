// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"container/list"
	"net"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// responseGrace is how long a connection is protected from being closed for another after its last request
// was handled: the response may not be sent yet.
const responseGrace = time.Second

// connectionPool has the open connections of a gateway, of all its listeners. When there are too many, it
// closes an idle one for a new one: one on which no request is handled. So clients cannot keep others out
// with connections that they do not use.
type connectionPool struct {
	maxOpen int

	mu    sync.Mutex
	open  int
	sites map[string]*siteConns
}

// siteConns has the connections of a site: an IPv4 address or a /56 of IPv6 addresses.
type siteConns struct {
	open    int
	sources map[string]*peerConns
}

// peerConns has the connections of a source: an IPv4 address or a /64 of IPv6 addresses.
type peerConns struct {
	open int
	// idle are the *limitedConn without a request, those whose last request was longest ago first.
	idle list.List
}

func newConnectionPool(maxOpen int) *connectionPool {
	return &connectionPool{maxOpen: maxOpen, sites: map[string]*siteConns{}}
}

// admit adds a connection to the pool. If there are too many, closed is the connection that the caller has
// to close for it. ok is false if there is none that may be closed.
func (p *connectionPool) admit(conn net.Conn) (admitted, closed *limitedConn, ok bool) {
	from := fairness.Source(conn.RemoteAddr().String())
	admitted = &limitedConn{Conn: conn, pool: p, source: from, site: fairness.Site(from), protectedUntil: clock.RealClock{}.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open >= p.maxOpen {
		if closed = p.findIdle(admitted); closed == nil {
			return nil, nil, false
		}
		p.remove(closed)
	}
	p.add(admitted)
	return admitted, closed, true
}

// findIdle returns the connection to close for a new one, or nil: of the site that has most connections,
// of its source that has most, the one that has been idle for longest. A site or a source that has no
// more than that of the new one loses none.
func (p *connectionPool) findIdle(newcomer *limitedConn) *limitedConn {
	own, ownOpen := p.sites[newcomer.site], 0
	if own != nil {
		ownOpen = own.open
	}
	now := clock.RealClock{}.Now()
	var found *limitedConn
	most := 0
	for _, s := range p.sites {
		if s.open <= most || s != own && s.open <= ownOpen {
			continue
		}
		var its *peerConns
		if s == own {
			its = s.sources[newcomer.source]
		}
		if conn := s.findIdle(its, now); conn != nil {
			found, most = conn, s.open
		}
	}
	return found
}

// findIdle returns the connection of a site to close, or nil. A source that has no more than own loses
// none.
func (s *siteConns) findIdle(own *peerConns, now time.Time) *limitedConn {
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
		if conn := its.findIdle(now); conn != nil {
			found, most = conn, its.open
		}
	}
	return found
}

// findIdle returns the connection of a source that has been idle for longest and is not protected, or nil.
func (s *peerConns) findIdle(now time.Time) *limitedConn {
	for e := s.idle.Front(); e != nil; e = e.Next() {
		if conn := e.Value.(*limitedConn); !now.Before(conn.protectedUntil) {
			return conn
		}
	}
	return nil
}

func (p *connectionPool) add(conn *limitedConn) {
	its := p.sites[conn.site]
	if its == nil {
		its = &siteConns{sources: map[string]*peerConns{}}
		p.sites[conn.site] = its
	}
	from := its.sources[conn.source]
	if from == nil {
		from = &peerConns{}
		its.sources[conn.source] = from
	}
	p.open++
	its.open++
	from.open++
	conn.from, conn.idle = from, from.idle.PushBack(conn)
}

func (p *connectionPool) remove(conn *limitedConn) {
	if conn.from == nil {
		return
	}
	if conn.idle != nil {
		conn.from.idle.Remove(conn.idle)
	}
	its := p.sites[conn.site]
	p.open--
	its.open--
	if conn.from.open--; conn.from.open == 0 {
		delete(its.sources, conn.source)
	}
	if its.open == 0 {
		delete(p.sites, conn.site)
	}
	conn.from, conn.idle = nil, nil
}
