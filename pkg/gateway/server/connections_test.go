// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/gateway/lookups"
	"github.com/sandlot-io/sandlot/pkg/share"
)

// serveGateway serves a handler as a gateway with places for connections.
func serveGateway(t *testing.T, connections int, handler http.HandlerFunc) *pipes {
	t.Helper()
	registerMetrics()
	gateway := &Gateway{handler: handler, connections: share.New(connections, connections)}
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

// TestConnections: connections beyond the share of a source are closed at once, also idle
// ones, and another source has its own. A place is free again when its connection is closed.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serveGateway(t, 20, func(http.ResponseWriter, *http.Request) {})
		before, err := testutil.GetCounterMetricValue(connectionsRefused)
		if err != nil {
			t.Fatal(err)
		}
		var open []net.Conn
		for range 100 {
			conn := connect(t, p, "10.0.0.1:1")
			synctest.Wait()
			if _, err := ask(t, conn); err == nil {
				open = append(open, conn)
			} else if !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("a connection is refused with %v", err)
			}
		}
		if len(open) != 10 {
			t.Errorf("%d connections of one source are open, want 10", len(open))
		}
		if refused, err := testutil.GetCounterMetricValue(connectionsRefused); err != nil || refused-before != 90 {
			t.Errorf("%v are counted as refused, %v", refused-before, err)
		}
		if code, err := ask(t, connect(t, p, "10.0.0.2:1")); code != http.StatusOK || err != nil {
			t.Errorf("another source: %d, %v", code, err)
		}
		for _, conn := range open[:2] {
			_ = conn.Close()
		}
		synctest.Wait()
		if code, err := ask(t, connect(t, p, "10.0.0.1:2")); code != http.StatusOK || err != nil {
			t.Errorf("when others are closed: %d, %v", code, err)
		}
	})
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
