// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestLargeHeadersOfConnections: connections of one source without credentials, with large headers that do not
// end, get at most a quarter of the slots. Users at this source with small headers are still served, and so
// are users at another source with large ones.
func TestLargeHeadersOfConnections(t *testing.T) {
	// Without a memory limit there are 128 slots, 32 of them for one source.
	const connections, most = 100, 32
	server := testutil.Start(t)
	address, err := url.Parse(server.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	config, err := rest.TLSConfigFor(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	nameless := config.Clone()
	nameless.Certificates, nameless.GetClientCertificate = nil, nil
	dial := func(source string, config *tls.Config) net.Conn {
		dialer := &tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}, Config: config}
		conn, err := dialer.DialContext(t.Context(), "tcp", address.Host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	answer := func(conn net.Conn) (int, error) {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	unfinished := "GET /version HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 100<<10)

	var closed atomic.Int32
	codes := make(chan int, connections)
	var open []net.Conn
	for range connections {
		conn := dial("127.0.0.1", nameless)
		open = append(open, conn)
		go func() {
			code, err := answer(conn)
			if err != nil {
				closed.Add(1)
				return
			}
			codes <- code
		}()
		// The rest of one that is closed cannot be written.
		_, _ = io.WriteString(conn, unfinished)
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if n := closed.Load(); n < connections-most {
			return fmt.Errorf("%d of %d connections are closed", n, connections)
		}
		return nil
	})
	if n := closed.Load(); n != connections-most {
		t.Fatalf("%d of %d connections are closed", n, connections) // all of them are after 32 s
	}
	small := dial("127.0.0.1", config)
	if _, err := io.WriteString(small, "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if code, err := answer(small); code != http.StatusOK || err != nil {
		t.Errorf("a user at the same source: %d, %v", code, err)
	}
	other := dial("127.0.0.2", config)
	if _, err := io.WriteString(other, unfinished+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if code, err := answer(other); code != http.StatusOK || err != nil {
		t.Errorf("a user at another source: %d, %v", code, err)
	}
	// The others are open. Their slots are given back when their requests are handled.
	for _, conn := range open {
		_, _ = io.WriteString(conn, "\r\n\r\n")
	}
	for range most {
		select {
		case code := <-codes:
			if code != http.StatusUnauthorized && code != http.StatusForbidden {
				t.Errorf("a request without a name: %d", code)
			}
		case <-t.Context().Done():
			t.Fatal("a connection with a slot gets no answer")
		}
	}
	again := dial("127.0.0.1", config)
	if _, err := io.WriteString(again, unfinished+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if code, err := answer(again); code != http.StatusOK || err != nil {
		t.Errorf("a user at the same source, when slots are given back: %d, %v", code, err)
	}
}
