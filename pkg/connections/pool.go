// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connections limits the open connections of a server, and shares the limits among the sources of
// clients.
package connections

import (
	"container/list"
	"net"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// Limits bound what connections take.
type Limits struct {
	// Open is how many may be open.
	Open int
	// ResponseGrace is how long a connection is protected from being closed for another after its last
	// request was handled: the response may not be sent yet. MarkIdle ends it.
	ResponseGrace time.Duration
	// LargeHeaders are slots for connections from which more than WithoutSlot bytes are read while none of
	// their requests is handled: the TLS handshake and the headers of the next request, so most likely large
	// headers. One that gets none is closed. Nil is no limit.
	LargeHeaders *fairness.Sources
	WithoutSlot  int
	// Unread bounds responses that are not read. Without slots there is no limit.
	Unread UnreadLimits
}

// busyShare is which part of Limits.Open the connections of a site may take without losing busy ones to others.
const busyShare = 16

// Counter counts events.
type Counter interface{ Inc() }

// Gauge counts what there is.
type Gauge interface {
	Counter
	Dec()
}

// uncounted is a metric that counts nothing.
type uncounted struct{}

// Inc implements Counter.
func (uncounted) Inc() {}

// Dec implements Gauge.
func (uncounted) Dec() {}

// Metrics count the connections that are open, and those that a pool closes: those that it does not admit,
// those that it closes for others, and those that get no slot for large headers or for an unread response. Those that
// are nil are not counted.
type Metrics struct {
	Open                                   Gauge
	Refused, Evicted, LargeHeaders, Unread Counter
}

// Pool has the open connections of a server, of all its listeners. When there are too many, it
// closes an idle one for a new one: one on which no request is handled. So clients cannot keep others out
// with connections that they do not use. If there is no idle one, the site that has most loses a busy one to a
// site that has less, if it has more than a sixteenth of all: fewer than 16 sites cannot keep others out with busy
// connections.
type Pool struct {
	limits  Limits
	metrics Metrics

	mu    sync.Mutex
	open  int
	sites map[string]*siteConns
}

// siteConns has the connections of a site: an IPv4 address or a /56 of IPv6 addresses.
type siteConns struct {
	open    int
	sources map[string]*sourceConns
}

// sourceConns has the connections of a source: an IPv4 address or a /64 of IPv6 addresses.
type sourceConns struct {
	// all are its *Conn, the oldest first, and idle those without a request, those whose last request was
	// longest ago first. unused are those that have not had one yet, the oldest first: a client that sends many
	// requests at once over HTTP/2 connects for each, and then needs only the first connections.
	all, idle, unused list.List
}

// NewPool returns an empty pool.
func NewPool(limits Limits, metrics Metrics) *Pool {
	if metrics.Open == nil {
		metrics.Open = uncounted{}
	}
	for _, counter := range []*Counter{&metrics.Refused, &metrics.Evicted, &metrics.LargeHeaders, &metrics.Unread} {
		if *counter == nil {
			*counter = uncounted{}
		}
	}
	return &Pool{limits: limits, metrics: metrics, sites: map[string]*siteConns{}}
}

// Open returns how many connections are open.
func (p *Pool) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// admit adds a connection to the pool. If there are too many, closed is the connection that the caller has
// to close for it. ok is false if there is none that may be closed.
func (p *Pool) admit(conn net.Conn) (admitted, closed *Conn, ok bool) {
	from := fairness.Source(conn.RemoteAddr().String())
	admitted = &Conn{
		Conn: conn, pool: p, source: from, site: fairness.Site(from),
		protectedUntil: clock.RealClock{}.Now(),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open >= p.limits.Open {
		if closed = p.findIdle(admitted); closed == nil {
			closed = p.findBusy(admitted.site)
		}
		if closed == nil {
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
func (p *Pool) findIdle(newcomer *Conn) *Conn {
	own, ownOpen := p.sites[newcomer.site], 0
	if own != nil {
		ownOpen = own.open
	}
	now := clock.RealClock{}.Now()
	var found *Conn
	most := 0
	for _, s := range p.sites {
		if s.open <= most || s != own && s.open <= ownOpen {
			continue
		}
		var its *sourceConns
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
func (s *siteConns) findIdle(own *sourceConns, now time.Time) *Conn {
	ownOpen := 0
	if own != nil {
		ownOpen = own.all.Len()
	}
	var found *Conn
	most := 0
	for _, its := range s.sources {
		open := its.all.Len()
		if open <= most || its != own && open <= ownOpen {
			continue
		}
		if conn := its.findIdle(now); conn != nil {
			found, most = conn, open
		}
	}
	return found
}

// findIdle returns the connection of a source that has been unused for longest, or else idle, and is not protected;
// nil if there is none.
func (s *sourceConns) findIdle(now time.Time) *Conn {
	for _, conns := range []*list.List{&s.unused, &s.idle} {
		for e := conns.Front(); e != nil; e = e.Next() {
			if conn := e.Value.(*Conn); !now.Before(conn.protectedUntil) {
				return conn
			}
		}
	}
	return nil
}

// findBusy returns the busy connection to close for a new one of a site, or nil: of the other site that has most,
// if that is more than its share and than the newcomer then has, the oldest of its source that has most.
func (p *Pool) findBusy(newcomer string) *Conn {
	most := p.limits.Open / busyShare
	if own := p.sites[newcomer]; own != nil {
		most = max(most, own.open+1)
	} else {
		most = max(most, 1)
	}
	var loser *siteConns
	for site, its := range p.sites {
		if site != newcomer && its.open > most {
			loser, most = its, its.open
		}
	}
	if loser == nil {
		return nil
	}
	var from *sourceConns
	for _, its := range loser.sources {
		if from == nil || its.all.Len() > from.all.Len() {
			from = its
		}
	}
	return from.all.Front().Value.(*Conn)
}

func (p *Pool) add(conn *Conn) {
	its := p.sites[conn.site]
	if its == nil {
		its = &siteConns{sources: map[string]*sourceConns{}}
		p.sites[conn.site] = its
	}
	from := its.sources[conn.source]
	if from == nil {
		from = &sourceConns{}
		its.sources[conn.source] = from
	}
	p.open++
	p.metrics.Open.Inc()
	its.open++
	conn.from, conn.place, conn.idle = from, from.all.PushBack(conn), from.unused.PushBack(conn)
}

func (p *Pool) remove(conn *Conn) {
	if conn.from == nil {
		return
	}
	conn.leaveIdle()
	conn.releaseSlot()
	its := p.sites[conn.site]
	p.open--
	p.metrics.Open.Dec()
	its.open--
	conn.from.all.Remove(conn.place)
	if conn.from.all.Len() == 0 {
		delete(its.sources, conn.source)
	}
	if its.open == 0 {
		delete(p.sites, conn.site)
	}
	conn.from, conn.place = nil, nil
}
