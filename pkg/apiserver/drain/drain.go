// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain sends the clients of an API server that shuts down to another one, before it stops to serve.
package drain

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// quiet is for how long no request has to come before a connection gets GOAWAY.
	// It is longer than a busy kube-apiserver and its clients take from an answer to
	// the next request, so that those on their way arrive.
	quiet = 300 * time.Millisecond
	// maxQuiet is how long clients that never pause are waited for.
	maxQuiet = 2 * time.Second
	// settle is how long requests are still held after GOAWAY was sent.
	settle = 100 * time.Millisecond
)

// probePaths are requested of a server that shuts down as well, and by clients that
// share their connection with no other.
var probePaths = []string{"/healthz", "/livez", "/metrics", "/readyz"}

// drain sends the clients of a server that shuts down to another one, while it still
// serves.
//
// The connections of an aggregated server are few, each with the requests of all
// clients of one kube-apiserver, and they stay for as long as both live, whether or
// not the Service still names this server. HTTP/2 has a frame that sends a client
// elsewhere with its next request (GOAWAY). But Go's server drops what the client has
// sent before the frame reached it, and kube-apiserver, which has passed the body on
// and cannot take it back, answers such a create with 503, which clients do not
// retry. The generic server sends GOAWAY with the first request that it refuses, at a
// busy time as at any other, so some creates were lost in every restart.
//
// So the second half of the time in which the server is not ready and still serves
// (--shutdown-delay-duration) begins with a quiet period for each connection:
//
//  1. Its first request is held, and so are all that come after it, until no more
//     come. Clients that wait for answers send nothing.
//  2. The first one is refused with 429 and Retry-After, which clients retry by
//     themselves, and with it the connection gets GOAWAY.
//  3. When that must have arrived, the requests that were held are served as always,
//     in their old connection, which ends when it is empty.
//
// What is sent in the moment between GOAWAY and its arrival is still lost. Only
// clients that send without waiting for answers do that.
type drain struct {
	next  http.Handler
	clock clock.Clock
	// ending is closed when the server begins to shut down, and after is how long it
	// serves as before then, until it gets no new connections.
	ending <-chan struct{}
	after  time.Duration

	mu sync.Mutex
	// since is when a request first saw that the server shuts down.
	since time.Time
	// connections are those that drain, by their remote address.
	connections map[string]*quietConnection
}

// quietConnection is a connection whose requests are held.
type quietConnection struct {
	// notified is closed when it has got GOAWAY.
	notified chan struct{}
	// began and last are when its first and its last request came, under the lock of
	// the drain.
	began, last time.Time
}

// New wraps the handlers of a server that serves for a while after it began to
// shut down.
func New(next http.Handler, ending <-chan struct{}, delay time.Duration, clock clock.Clock) http.Handler {
	return &drain{next: next, clock: clock, ending: ending, after: delay / 2, connections: map[string]*quietConnection{}}
}

// ServeHTTP implements http.Handler.
func (d *drain) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !d.begun() || slices.ContainsFunc(probePaths, func(path string) bool { return strings.HasPrefix(req.URL.Path, path) }) {
		d.next.ServeHTTP(w, req)
		return
	}
	if req.ProtoMajor < 2 { // one request at a time, so none is on its way
		w.Header().Set("Connection", "close")
		d.next.ServeHTTP(w, req)
		return
	}
	conn, first := d.connection(req.RemoteAddr)
	if !first {
		select {
		case <-conn.notified:
		case <-req.Context().Done():
		}
		d.next.ServeHTTP(w, req)
		return
	}
	defer close(conn.notified)
	for left := d.untilQuiet(conn); left > 0; left = d.untilQuiet(conn) {
		d.wait(left)
	}
	w.Header().Set("Connection", "close") // which HTTP/2 does not have: Go's server sends GOAWAY for it
	w.Header().Set("Retry-After", "1")
	http.Error(w, "The server is shutting down, please try again.", http.StatusTooManyRequests)
	_ = http.NewResponseController(w).Flush() // a connection that is gone needs no message
	d.wait(settle)
}

// begun reports whether connections are drained.
func (d *drain) begun() bool {
	select {
	case <-d.ending:
	default:
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		d.since = d.clock.Now()
	}
	return d.clock.Since(d.since) >= d.after
}

// connection notes a request of a connection, and reports whether it is the first
// since draining began.
func (d *drain) connection(remote string) (conn *quietConnection, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	conn, known := d.connections[remote]
	if !known {
		conn = &quietConnection{notified: make(chan struct{}), began: now}
		d.connections[remote] = conn
	}
	conn.last = now
	return conn, !known
}

// untilQuiet returns how long to wait at least; 0 or less means no longer.
func (d *drain) untilQuiet(conn *quietConnection) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	return min(conn.last.Add(quiet).Sub(now), conn.began.Add(maxQuiet).Sub(now))
}

// wait lets time pass even if the request that it is called for is cancelled: others
// wait for it.
func (d *drain) wait(duration time.Duration) {
	timer := d.clock.NewTimer(duration)
	defer timer.Stop()
	<-timer.C()
}
