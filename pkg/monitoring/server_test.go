// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// start starts a server that answers "ok", and returns its address. The test stops it.
func start(t *testing.T) string {
	t.Helper()
	server, err := NewServer(t.Context(), "test", "127.0.0.1:0", nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended: %v", err)
		}
	})
	return server.Listener.Addr().String()
}

func dial(t *testing.T, from, address string) net.Conn {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// get sends a request with some more headers, and returns the status of the response.
func get(t *testing.T, conn net.Conn, headers string) (int, error) {
	t.Helper()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n"); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// TestHeaderLimits: many fields are refused although they are short, because each takes memory.
func TestHeaderLimits(t *testing.T) {
	address := start(t)
	fields := func(n int) string {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, "X-%d: y\r\n", i)
		}
		return all.String()
	}
	for name, tc := range map[string]struct {
		headers string
		want    int
	}{
		"token":     {"Authorization: Bearer " + strings.Repeat("t", 2000) + "\r\n", http.StatusOK},
		"fields":    {fields(maxFields - 1), http.StatusOK},
		"too many":  {fields(maxFields + 1), http.StatusRequestHeaderFieldsTooLarge},
		"too large": {"X-Large: " + strings.Repeat("x", 3*maxHeader) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"no values": {strings.Repeat("X-Empty:\r\n", maxHeader/30), http.StatusRequestHeaderFieldsTooLarge},
	} {
		if got, err := get(t, dial(t, "127.0.0.1", address), tc.headers); err != nil || got != tc.want {
			t.Errorf("%s: %d %v, want %d", name, got, err, tc.want)
		}
	}
}

// TestConnections: connections without a request keep no other client out, and there are no more than maxConnections.
func TestConnections(t *testing.T) {
	address := start(t)
	var idle []net.Conn
	for range maxConnections {
		idle = append(idle, dial(t, "127.0.0.1", address))
	}
	if got, err := get(t, dial(t, "127.0.0.2", address), ""); err != nil || got != http.StatusOK {
		t.Fatalf("a request from another address: %d %v", got, err)
	}
	if _, err := idle[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest idle connection was not closed for it")
	}
}
