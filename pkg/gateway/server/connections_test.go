// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/connections"
	"github.com/sandlot-io/sandlot/pkg/gateway/lookups"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// serveGateway serves a handler as a gateway with a limit of connections.
func serveGateway(t *testing.T, limit int, handler http.HandlerFunc) *pipes {
	t.Helper()
	registerMetrics()
	gateway := &Gateway{handler: handler, connections: newConnectionPool(limit)}
	p := &pipes{dialled: make(chan net.Conn), closed: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Serve(ctx, p, nil) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

// connect opens a connection.
func connect(t *testing.T, p *pipes, peer string) net.Conn {
	t.Helper()
	conn, err := p.dialFrom(peer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a request over a connection, and returns the code of its answer. It fails if the
// connection is closed.
func ask(t *testing.T, conn net.Conn) (int, error) {
	t.Helper()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: gateway\r\n\r\n"); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// want wants an answer over a connection.
func want(t *testing.T, conn net.Conn) {
	t.Helper()
	if code, err := ask(t, conn); code != http.StatusOK || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	synctest.Wait()
}

// isClosed reports whether the gateway has closed a connection.
func isClosed(t *testing.T, conn net.Conn) bool {
	t.Helper()
	err := conn.SetReadDeadline(time.Now().Add(-time.Second))
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// count returns how many of some connections the gateway has closed.
func count(t *testing.T, conns []net.Conn) (closed int) {
	t.Helper()
	for _, conn := range conns {
		if isClosed(t, conn) {
			closed++
		}
	}
	return closed
}

// TestConnections: however many connections some sources hold, without a request, with half of
// one, or with an answer that they do not wait for, another source is answered, and so is a
// source that holds all. They lose those that they have not used for longest.
func TestConnections(t *testing.T) {
	const limit = 20
	for name, hold := range map[string]func(t *testing.T, conn net.Conn){
		"new":    func(*testing.T, net.Conn) {},
		"unused": want,
		"half a request": func(t *testing.T, conn net.Conn) {
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "); err != nil {
				t.Fatal(err)
			}
		},
		"no body": func(t *testing.T, conn net.Conn) {
			if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: gateway\r\nContent-Length: 9\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			time.Sleep(responseGrace)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := serveGateway(t, limit, func(http.ResponseWriter, *http.Request) {})
				held := map[string][]net.Conn{}
				open := func(peer string, n int) {
					for range n {
						conn := connect(t, p, peer)
						hold(t, conn)
						held[peer] = append(held[peer], conn)
						synctest.Wait()
					}
				}
				open("10.0.0.1:1", 7)
				open("10.0.0.2:1", 8)
				open("10.0.0.3:1", 5)
				for range 3 {
					want(t, connect(t, p, "10.0.0.4:1"))
				}
				for peer, want := range map[string]int{"10.0.0.1:1": 1, "10.0.0.2:1": 2, "10.0.0.3:1": 0} {
					if closed := count(t, held[peer]); closed != want || count(t, held[peer][:want]) != want {
						t.Errorf("%s lost %d connections, want the first %d", peer, closed, want)
					}
				}
				// A source that has as many as any loses its own.
				open("10.0.0.1:1", 2)
				if closed := count(t, held["10.0.0.1:1"]); closed != 3 {
					t.Errorf("%d connections of the source are closed", closed)
				}
			})
		})
	}
}

// TestConnectionsWithRequests: connections whose requests are handled are not closed for others of their source.
func TestConnectionsWithRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := serveGateway(t, 3, func(http.ResponseWriter, *http.Request) { <-goOn })
		counters := func() (refused, evicted float64) {
			for counter, into := range map[*metrics.Counter]*float64{connectionsRefused: &refused, connectionsEvicted: &evicted} {
				value, err := testutil.GetCounterMetricValue(counter)
				if err != nil {
					t.Fatal(err)
				}
				*into = value
			}
			return refused, evicted
		}
		refused, evicted := counters()
		var answers sync.WaitGroup
		for range 3 {
			conn := connect(t, p, "10.0.0.1:1")
			answers.Go(func() {
				if code, err := ask(t, conn); code != http.StatusOK || err != nil {
					t.Errorf("%d, %v", code, err)
				}
			})
			synctest.Wait()
		}
		if _, err := ask(t, connect(t, p, "10.0.0.1:1")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("one more connection: %v", err)
		}
		close(goOn)
		answers.Wait()
		synctest.Wait()
		want(t, connect(t, p, "10.0.0.2:1"))
		if r, e := counters(); r != refused+1 || e != evicted+1 {
			t.Errorf("%v connections are refused, and %v closed", r-refused, e-evicted)
		}
	})
}

// TestConnectionsOfASite: the sources of a site count together, and its source that has most
// loses its connections first.
func TestConnectionsOfASite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serveGateway(t, 20, func(http.ResponseWriter, *http.Request) {})
		var ofSite, ofOther []net.Conn
		for i := range 12 {
			ofSite = append(ofSite, connect(t, p, fmt.Sprintf("[2001:db8:0:%x::1]:1", min(i, 10))))
		}
		for range 8 {
			ofOther = append(ofOther, connect(t, p, "10.0.0.1:1"))
		}
		synctest.Wait()
		for range 4 {
			want(t, connect(t, p, "10.0.0.2:1"))
		}
		if n, other := count(t, ofSite), count(t, ofOther); n != 4 || other != 0 || !isClosed(t, ofSite[10]) {
			t.Errorf("%d connections of the site and %d of an address are closed", n, other)
		}
	})
}

// TestConnectionsOfProtocols: a connection counts as used while its requests are handled, with
// every protocol.
func TestConnectionsOfProtocols(t *testing.T) {
	certificates := httptest.NewTLSServer(http.NotFoundHandler())
	defer certificates.Close()
	for _, secure := range []bool{false, true} {
		for _, proto := range []int{1, 2} {
			gateway := &Gateway{connections: newConnectionPool(10)}
			var used *connections.Conn
			gateway.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if used = connections.Find(r); used == nil || !used.Busy() || r.ProtoMajor != proto {
					w.WriteHeader(http.StatusInternalServerError)
				}
			})
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var config *tls.Config
			transport, scheme := &http.Transport{Protocols: new(http.Protocols)}, "http"
			transport.Protocols.SetHTTP1(proto == 1)
			transport.Protocols.SetUnencryptedHTTP2(proto == 2 && !secure)
			transport.Protocols.SetHTTP2(proto == 2 && secure)
			if secure {
				config, scheme = &tls.Config{Certificates: certificates.TLS.Certificates, MinVersion: tls.VersionTLS12}, "https"
				transport.TLSClientConfig = certificates.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
				transport.TLSClientConfig.NextProtos = nil
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- gateway.Serve(ctx, listener, config) }()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+listener.Addr().String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatalf("HTTP/%d, TLS %v: %v", proto, secure, err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("HTTP/%d, TLS %v: the request has no connection", proto, secure)
			}
			transport.CloseIdleConnections()
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if used == nil {
				continue
			}
			expect.Eventually(t.Context(), t, func(context.Context) error { // Serve does not wait for that
				if gateway.connections.Open() != 0 {
					return fmt.Errorf("HTTP/%d, TLS %v: the connection is open", proto, secure)
				}
				return nil
			})
		}
	}
}

// TestSourcesOfRequests: look-ups of unknown ids count for the peer of the connection.
func TestSourcesOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := lookups.New[string](lookups.Limits{AtOnce: 1, Misses: 1, Clock: clock.RealClock{}})
		p := serveGateway(t, 20, func(w http.ResponseWriter, r *http.Request) {
			_, err := group.Do(r.Context(), "id", func(context.Context) (string, error) { return "", io.EOF })
			if errors.Is(err, lookups.ErrRefused) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		for _, tc := range []struct {
			peer string
			want int
		}{
			{"10.0.0.1:1", http.StatusOK}, {"10.0.0.1:2", http.StatusServiceUnavailable},
			{"10.0.0.2:1", http.StatusOK},
			{"[2001:db8::1]:1", http.StatusOK}, {"[2001:db8::2]:1", http.StatusServiceUnavailable},
		} {
			if code, err := ask(t, connect(t, p, tc.peer)); code != tc.want || err != nil {
				t.Errorf("%s: %d, %v, want %d", tc.peer, code, err, tc.want)
			}
		}
	})
}
