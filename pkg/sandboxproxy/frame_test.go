// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// TestLargeFrames: a frame of a sandbox beyond 16 KiB, the default of clients of net/http, ends its connection before
// anything is kept for it.
func TestLargeFrames(t *testing.T) {
	const maxFrame = 16 << 10
	for bytes, wantsPing := range map[int]bool{maxFrame: true, maxFrame + 1: false} {
		near, far := net.Pipe()
		transport := new(Proxy).newHTTP2Transport()
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return near, nil }
		done := make(chan error, 1)
		go func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sandbox/", nil)
			if err == nil {
				var resp *http.Response
				if resp, err = transport.RoundTrip(req); err == nil {
					err = errors.Join(fmt.Errorf("it is answered with %d", resp.StatusCode), resp.Body.Close())
				}
			}
			done <- err
		}()
		if answered := answersPing(t, far, bytes); answered != wantsPing {
			t.Errorf("after a frame of %d bytes a ping is answered: %t", bytes, answered)
		}
		_ = far.Close()
		if err := <-done; err == nil {
			t.Error("a request without a response has no error")
		}
	}
}

// answersPing sends a frame of unknown type to a client, which ignores it, and then a ping. It reports whether the
// ping is answered.
func answersPing(t *testing.T, conn net.Conn, bytes int) bool {
	t.Helper()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	go func() { // nothing is written while nothing is read
		const unknown = 0x42
		if framer.WriteSettings() == nil && framer.WriteRawFrame(unknown, 0, 0, make([]byte, bytes)) == nil {
			_ = framer.WritePing(false, [8]byte{})
		}
	}()
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return false
		}
		switch f := frame.(type) {
		case *http2.PingFrame:
			if f.IsAck() { // the client sends pings of its own, such as when it resets a stream
				return true
			}
		case *http2.GoAwayFrame:
			return false
		}
	}
}
