// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// atomicCount is a counter of servers.
type atomicCount struct{ atomic.Int64 }

// Inc implements Counter.
func (c *atomicCount) Inc() { c.Add(1) }

// Dec implements Gauge.
func (c *atomicCount) Dec() { c.Add(-1) }

// busyServer is a server whose requests are handled until their connections end.
type busyServer struct {
	*httptest.Server
	began, ended           chan string
	open, refused, evicted atomicCount
}

func startBusyServer(t *testing.T, limit int) *busyServer {
	t.Helper()
	s := &busyServer{began: make(chan string, limit), ended: make(chan string, 2*limit)}
	pool := NewPool(Limits{Open: limit}, Metrics{Open: &s.open, Refused: &s.refused, Evicted: &s.evicted})
	s.Server = httptest.NewUnstartedServer(Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		s.began <- path
		<-r.Context().Done()
		s.ended <- path
	}), HeaderLimits{Fields: 10, Bytes: 1000}))
	s.Listener = pool.Listener(s.Listener)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// hold opens a connection from an address and sends a request, which is handled when it returns.
func (s *busyServer) hold(t *testing.T, from, path string) {
	t.Helper()
	s.dial(t, from, path)
	select {
	case got := <-s.began:
		if got != path {
			t.Fatalf("%s is handled, want %s", got, path)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s is not handled", path)
	}
}

func (s *busyServer) dial(t *testing.T, from, path string) net.Conn {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestBusyConnections: where all connections are busy, those of one source keep no other source out. The
// one that has most loses its oldest, as long as it has more than the newcomer then has. The source itself gets no more.
func TestBusyConnections(t *testing.T) {
	const limit = 8
	s := startBusyServer(t, limit)
	s.hold(t, "127.0.0.2", "/other/1")
	s.hold(t, "127.0.0.2", "/other/2")
	for i := range limit - 2 {
		s.hold(t, "127.0.0.1", fmt.Sprintf("/one/%d", i))
	}
	more := s.dial(t, "127.0.0.1", "/one/more")
	if _, err := http.ReadResponse(bufio.NewReader(more), nil); err == nil || s.refused.Load() != 1 {
		t.Fatalf("one more connection of the source: %v, %d are refused", err, s.refused.Load())
	}
	for i := range 4 {
		s.hold(t, fmt.Sprintf("127.0.0.%d", 3+i), "/another")
		if got, want := <-s.ended, fmt.Sprintf("/one/%d", i); got != want {
			t.Errorf("%s has ended for another source, want %s", got, want)
		}
	}
	for i := range 2 { // one of each that has two
		s.hold(t, fmt.Sprintf("127.0.0.%d", 7+i), "/another")
		<-s.ended
	}
	// All have one, so none loses it.
	last := s.dial(t, "127.0.0.9", "/last")
	if _, err := http.ReadResponse(bufio.NewReader(last), nil); err == nil {
		t.Error("a source gets a connection of one that has its share")
	}
	if open, evicted := s.open.Load(), s.evicted.Load(); open != limit || evicted != 6 {
		t.Errorf("%d connections are open, %d were closed for others", open, evicted)
	}
}

// TestBusyConnectionsOfASite: the sources of a site count together, and the one that has most loses.
func TestBusyConnectionsOfASite(t *testing.T) {
	all := NewPool(Limits{Open: 8}, Metrics{Open: new(count)})
	busy := func(address string) (admitted, closed *Conn) {
		admitted, closed, ok := all.admit(peer{address: address})
		if !ok || !admitted.StartRequest() {
			t.Fatalf("%s is refused", address)
		}
		return admitted, closed
	}
	busy("[2001:db8:0:1::1]:1")
	first, _ := busy("[2001:db8:0:2::1]:1")
	for range 2 {
		busy("[2001:db8:0:2::1]:1")
		busy("10.0.0.1:1")
		busy("10.0.0.2:1")
	}
	if _, closed := busy("10.0.0.3:1"); closed != first {
		t.Errorf("%+v is closed, want the first of the source with most", closed)
	}
}

// TestShareOfBusyConnections: a site that has a sixteenth of all or less loses no busy connection.
func TestShareOfBusyConnections(t *testing.T) {
	all := NewPool(Limits{Open: 32}, Metrics{Open: new(count)})
	for i := range 32 {
		admitted, _, ok := all.admit(peer{address: fmt.Sprintf("10.0.0.%d:1", i/2)})
		if !ok || !admitted.StartRequest() {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if _, closed, ok := all.admit(peer{address: "10.0.1.1:1"}); ok || closed != nil {
		t.Errorf("a site with its share loses %+v", closed)
	}
}
