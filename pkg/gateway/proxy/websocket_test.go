// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

// says checks that what is sent comes back.
func says(t testing.TB, conn net.Conn, reader *bufio.Reader, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(reader, back); err != nil || string(back) != text {
		t.Fatalf("%q came back as %q, %v", text, back, err)
	}
}

func TestWebSocketsThroughEachForm(t *testing.T) {
	w := newWorld(t, nil)
	id, port := w.add(nil), listen(t, upgradeEcho)
	for form := range forms {
		t.Run(form, func(t *testing.T) {
			conn, reader, response := w.upgrade(t, form, id, port)
			if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "websocket" {
				t.Fatalf("got %v", response)
			}
			if cookie := response.Header.Get("Set-Cookie"); (cookie == "") != (form != "host") {
				t.Errorf("got the cookie %q", cookie)
			}
			for i := range 10 {
				says(t, conn, reader, fmt.Sprint("frame ", i))
			}
		})
	}
	resting := w.add(paused)
	conn, reader, response := w.upgrade(t, "host", resting, port)
	if response.StatusCode != http.StatusSwitchingProtocols || w.resumes() != 1 {
		t.Fatalf("a WebSocket does not resume its sandbox: %v", response)
	}
	says(t, conn, reader, "hello")
	_, _, response = w.upgrade(t, "host", w.add(func(r *routes.Route) { r.Private = true }), port)
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("a WebSocket to a private sandbox: %d", response.StatusCode)
	}
}

// TestAThousandIdleWebSockets: they stay open, others come through, and each costs little.
func TestAThousandIdleWebSockets(t *testing.T) {
	const sockets, each = 1000, 256 << 10
	w := newWorld(t, nil)
	id, port, other := w.add(nil), listen(t, upgradeEcho), listen(t, echo)
	before := memory()
	type socket struct {
		conn   net.Conn
		reader *bufio.Reader
	}
	var idle []socket
	for range sockets {
		conn, reader, response := w.upgrade(t, "host", id, port)
		if response.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("socket %d: %v", len(idle), response)
		}
		idle = append(idle, socket{conn, reader})
	}
	used := memory() - before
	t.Logf("each takes %d KiB, with the client and the sandbox", used/sockets/1024)
	if used > sockets*each {
		t.Errorf("%d idle sockets take %d bytes", sockets, used)
	}
	if response, body := w.get(t, id, other); response.StatusCode != http.StatusOK {
		t.Errorf("a request beside them: %d %s", response.StatusCode, body)
	}
	for i, s := range idle {
		says(t, s.conn, s.reader, fmt.Sprint("socket ", i))
	}
}

func memory() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse)
}

func TestASandboxHasAShareOfRequests(t *testing.T) {
	w := newWorld(t, func(_ *world, o *proxy.Options) { o.PerSandbox, o.MaxForwardedRequests = 2, 7 })
	id, second, port := w.add(nil), w.add(nil), listen(t, upgradeEcho)
	elsewhere := w.add(func(r *routes.Route) { r.Namespace = "team-b" })
	conn, _, _ := w.upgrade(t, "headers", id, port)
	_, _, _ = w.upgrade(t, "headers", id, port)
	response, body := w.get(t, id, port)
	wantProblem(t, response, body, http.StatusTooManyRequests, "this sandbox", id)
	_, _, _ = w.upgrade(t, "headers", second, port)
	response, body = w.get(t, second, port)
	wantProblem(t, response, body, http.StatusTooManyRequests, "this team", second)
	if response, _ = w.get(t, elsewhere, port); response.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("another team gets %d", response.StatusCode)
	}
	_ = conn.Close()
	settles(t, func() error {
		if response, body := w.get(t, id, port); response.StatusCode != http.StatusUpgradeRequired {
			return fmt.Errorf("its slot is not free again: %d %s", response.StatusCode, body)
		}
		return nil
	})
}
