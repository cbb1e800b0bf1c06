// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// peer is a connection whose client has an address, and sends zeros.
type peer struct {
	net.Conn
	address string
}

func (p peer) LocalAddr() net.Addr        { return &net.UnixAddr{Name: "here"} }
func (p peer) RemoteAddr() net.Addr       { return &net.UnixAddr{Name: p.address} }
func (p peer) Read(b []byte) (int, error) { return len(b), nil }
func (p peer) Close() error               { return nil }

// count is a counter.
type count int

// Inc implements Counter.
func (c *count) Inc() { *c++ }

// Dec implements Gauge.
func (c *count) Dec() { *c-- }

// TestConnectionThatIsClosedForAnother: a new connection replaces an idle one, whose next request is not
// handled then. A busy connection of its source is not replaced, nor one whose response may not be sent yet.
func TestConnectionThatIsClosedForAnother(t *testing.T) {
	var open count
	all := NewPool(Limits{Open: 1, ResponseGrace: time.Hour}, Metrics{Open: &open})
	first, _, _ := all.admit(peer{address: "10.0.0.1:1"})
	second, closed, ok := all.admit(peer{address: "10.0.0.2:1"})
	if !ok || closed != first || first.StartRequest() || !second.StartRequest() {
		t.Fatal("the first connection is still used")
	}
	if _, _, ok := all.admit(peer{address: "10.0.0.2:2"}); ok {
		t.Error("a busy connection was replaced")
	}
	second.EndRequest()
	if _, _, ok := all.admit(peer{address: "10.0.0.2:2"}); ok {
		t.Error("a connection was replaced before its response was sent")
	}
	second.MarkIdle()
	third, _, ok := all.admit(peer{address: "10.0.0.2:2"})
	if !ok || open != 1 {
		t.Fatalf("a connection was not replaced after its response was sent, or the gauge is wrong: %d", open)
	}
	if err := third.Close(); err != nil || open != 0 || all.Open() != 0 {
		t.Errorf("without connections, %d are counted, error %v", open, err)
	}
}

// TestUnusedConnections: a client that connects more often than it needs loses the connections that it has not used,
// and not one on which other requests may come at any moment.
func TestUnusedConnections(t *testing.T) {
	pool := NewPool(Limits{Open: 3}, Metrics{})
	admit := func() (conn, closed *Conn) {
		conn, closed, ok := pool.admit(peer{address: "10.0.0.1:1"})
		if !ok {
			t.Fatal("a connection is refused")
		}
		return conn, closed
	}
	used, _ := admit()
	if !used.StartRequest() {
		t.Fatal("the first connection is closed")
	}
	used.EndRequest()
	first, _ := admit()
	second, _ := admit()
	for _, want := range []*Conn{first, second} {
		if _, closed := admit(); closed != want {
			t.Error("it is not the one that has been unused for longest that is closed")
		}
	}
	if !used.StartRequest() {
		t.Error("the connection with requests is closed")
	}
}

// TestLargeHeaders: connections from which much is read without a request have slots. They are shared by
// source, and given back when a request is handled or the connection is closed.
func TestLargeHeaders(t *testing.T) {
	const withoutSlot = 1000
	var refused count
	slots := fairness.NewSources(8, 2)
	all := NewPool(Limits{Open: 100, LargeHeaders: slots, WithoutSlot: withoutSlot}, Metrics{Open: new(count), LargeHeaders: &refused})
	open := func(address string) *Conn {
		conn, _, ok := all.admit(peer{address: address})
		if !ok {
			t.Fatal("a connection is refused")
		}
		return conn
	}
	read := func(conn *Conn, bytes int) bool {
		_, err := conn.Read(make([]byte, bytes))
		if err != nil && !errors.Is(err, errNoSlot) {
			t.Fatal(err)
		}
		return err == nil
	}
	first, second := open("10.0.0.1:1"), open("10.0.0.1:2")
	if !read(first, 1<<20) || !read(second, withoutSlot) || !read(second, 1) || !read(first, 1<<20) {
		t.Fatal("a source gets no two slots")
	}
	third := open("10.0.0.1:3")
	if !read(third, withoutSlot) || read(third, 1) || refused != 1 || all.Open() != 2 || third.StartRequest() {
		t.Error("a source has more than its slots")
	}
	if !read(open("10.0.0.2:1"), 1<<20) {
		t.Error("another source gets no slot")
	}
	// What is read while a request is handled needs no slot, and what is read later is counted anew.
	if !first.StartRequest() {
		t.Fatal("the connection is closed")
	}
	if fourth := open("10.0.0.1:4"); !read(fourth, 1<<20) || !read(first, 1<<20) {
		t.Error("the slot is not given back when a request is handled")
	}
	first.EndRequest()
	if !read(first, withoutSlot) || read(first, 1) {
		t.Error("what is read after a request is not counted, or what came before it is")
	}
	if err := second.Close(); err != nil || !read(open("10.0.0.1:5"), 1<<20) {
		t.Errorf("the slot is not given back when the connection is closed: %v", err)
	}
}

// TestHandler: a connection is busy while its request is handled, and a request whose connection was closed for
// another is not handled.
func TestHandler(t *testing.T) {
	all := NewPool(Limits{Open: 1}, Metrics{Open: new(count)})
	conn, _, _ := all.admit(peer{address: "10.0.0.1:1"})
	ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, conn.LocalAddr())
	handled := 0
	handle := func(ctx context.Context) (aborted bool) {
		defer func() {
			err, _ := recover().(error)
			aborted = errors.Is(err, http.ErrAbortHandler)
		}()
		Handler(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			handled++
			if found := Find(req); found != nil && (found != conn || !found.Busy()) {
				t.Errorf("the request has %+v", found)
			}
		}), HeaderLimits{Bytes: 100}).ServeHTTP(nil, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		return false
	}
	if handle(ctx) || handle(t.Context()) || handled != 2 || conn.Busy() {
		t.Errorf("%d requests are handled, want 2; busy: %t", handled, conn.Busy())
	}
	if _, closed, _ := all.admit(peer{address: "10.0.0.2:1"}); closed != conn {
		t.Fatal("the connection is not closed for another")
	}
	if !handle(ctx) || handled != 2 {
		t.Error("a request of a closed connection is handled")
	}
}
