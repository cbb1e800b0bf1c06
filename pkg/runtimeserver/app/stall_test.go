// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// past is longer than a client may take to continue.
const past = 65 * time.Second

// Who stalls loses the connection, and who only waits does not.
func TestStalls(t *testing.T) {
	expect.LongOnly(t)
	b := newBox(t)
	dial := func(t *testing.T, request string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(expect.Patience)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for name, request := range map[string]string{
		"headers":                 "POST /files HTTP/1.1\nHost: x\n",
		"a body that is not read": "POST /envs HTTP/1.1\nHost: x\nContent-Length: 1000\n\n",
		"a body that is read":     "POST /init HTTP/1.1\nHost: x\nContent-Length: 1000\n\n{",
		"an upload":               "POST /files?path=/dev/null/x HTTP/1.1\nHost: x\nX-Access-Token: " + token + "\nContent-Length: 1000\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := io.Copy(io.Discard, dial(t, request)); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			}
		})
	}
	t.Run("a quiet process", func(t *testing.T) {
		t.Parallel()
		if e := b.start(t.Context(), t, as("", script("sleep 65; echo late"))).wait(t); e.stdout != "late\n" {
			t.Errorf("%q", e.stdout)
		}
	})
	t.Run("a connection that is used again", func(t *testing.T) {
		t.Parallel()
		conn := dial(t, "")
		answers := bufio.NewReader(conn)
		for range 2 {
			if _, err := fmt.Fprint(conn, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(answers, nil)
			if err != nil || resp.StatusCode != http.StatusNoContent {
				t.Fatalf("%v %v", resp, err)
			}
			_ = resp.Body.Close()
			time.Sleep(past)
		}
	})
}
