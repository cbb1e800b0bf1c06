// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// hush is for how long nothing new has to come before a connection is told to go.
	// It is longer than a busy kube-apiserver and its clients take from an answer to
	// the next request, of which those that are on their way shall arrive.
	hush = 300 * time.Millisecond
	// maxHush is how long clients that never fall silent are waited for.
	maxHush = 2 * time.Second
	// settle is how long what is held stays so after the connection was told to go.
	settle = 100 * time.Millisecond
)

// goneSoonPaths are what is asked of a server that ends, too, and by nobody who
// keeps a connection for others.
var goneSoonPaths = []string{"/healthz", "/livez", "/metrics", "/readyz"}

// farewell sends the clients of a server that is about to end to another one,
// while it still serves.
//
// The connections of an aggregated server are few, each with the requests of
// everyone who comes through one kube-apiserver, and they stay for as long as
// both live: that the Service has no room for this server any more is of no
// matter to them. HTTP/2 has a message that sends a client elsewhere with its next
// request (GOAWAY). But Go's server drops what the client has sent before the
// message reached it, and kube-apiserver, which has passed the body on and cannot
// take it back, answers such a create with 503, which nobody repeats. The
// generic server sends the message with the first request that it refuses, at a
// busy time as at any other, so some creates were lost in every restart.
//
// So the second half of the time in which the server is not ready and still serves
// (--shutdown-delay-duration) begins with a hush for each connection:
//
//  1. Its first request is held, and so are all that come after it, until no more
//     come. Clients that wait for answers fall silent.
//  2. The first one is refused with 429 and Retry-After, which clients repeat by
//     themselves, and the connection is closed to new requests by that.
//  3. When the message must have arrived, what was held is served as always, in
//     its old connection, which ends when it is empty.
//
// What is sent in the moment between the message and its arrival is still lost.
// Only clients that send without having had answers do that.
type farewell struct {
	next  http.Handler
	clock clock.Clock
	// ending is closed when the server begins to end, and after is how long it goes
	// on as if nothing were, so that it gets no new connections.
	ending <-chan struct{}
	after  time.Duration

	mu sync.Mutex
	// since is when a request first saw that the server ends.
	since time.Time
	// hushed are connections by their remote address.
	hushed map[string]*hushed
}

// hushed is a connection whose requests are held.
type hushed struct {
	// told is closed when it has been told to go.
	told chan struct{}
	// began and last are when its first and its last request came, under the lock of
	// the farewell.
	began, last time.Time
}

// withFarewell wraps the handlers of a server that stays for a while when it is
// told to end.
func withFarewell(next http.Handler, ending <-chan struct{}, delay time.Duration, clock clock.Clock) http.Handler {
	return &farewell{next: next, clock: clock, ending: ending, after: delay / 2, hushed: map[string]*hushed{}}
}

// ServeHTTP implements http.Handler.
func (f *farewell) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !f.begun() || slices.ContainsFunc(goneSoonPaths, func(path string) bool { return strings.HasPrefix(req.URL.Path, path) }) {
		f.next.ServeHTTP(w, req)
		return
	}
	if req.ProtoMajor < 2 { // one request at a time, so none is on its way
		w.Header().Set("Connection", "close")
		f.next.ServeHTTP(w, req)
		return
	}
	conn, first := f.connection(req.RemoteAddr)
	if !first {
		select {
		case <-conn.told:
		case <-req.Context().Done():
		}
		f.next.ServeHTTP(w, req)
		return
	}
	defer close(conn.told)
	for left := f.untilQuiet(conn); left > 0; left = f.untilQuiet(conn) {
		f.wait(left)
	}
	w.Header().Set("Connection", "close") // which HTTP/2 has not, and Go's server takes for the message
	w.Header().Set("Retry-After", "1")
	http.Error(w, "The server is shutting down, please try again.", http.StatusTooManyRequests)
	_ = http.NewResponseController(w).Flush() // a connection that is gone needs no message
	f.wait(settle)
}

// begun tells whether connections are told to go.
func (f *farewell) begun() bool {
	select {
	case <-f.ending:
	default:
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		f.since = f.clock.Now()
	}
	return f.clock.Since(f.since) >= f.after
}

// connection notes a request of a connection, and tells whether it is the first
// since the connection is to go.
func (f *farewell) connection(remote string) (conn *hushed, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	conn, known := f.hushed[remote]
	if !known {
		conn = &hushed{told: make(chan struct{}), began: now}
		f.hushed[remote] = conn
	}
	conn.last = now
	return conn, !known
}

// untilQuiet is how long to wait at least, or not more than 0 if no longer.
func (f *farewell) untilQuiet(conn *hushed) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	return min(conn.last.Add(hush).Sub(now), conn.began.Add(maxHush).Sub(now))
}

// wait lets time pass, whatever becomes of the request that it is called for:
// others wait for its end.
func (f *farewell) wait(d time.Duration) {
	timer := f.clock.NewTimer(d)
	defer timer.Stop()
	<-timer.C()
}
