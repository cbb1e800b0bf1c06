// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestHeaderLimits: a request with too many fields, or with too much in them, is answered with 431 and is not
// handled. Many values of one field are one field.
func TestHeaderLimits(t *testing.T) {
	limits := HeaderLimits{Fields: 5, Bytes: 5000}
	for name, tc := range map[string]struct {
		path  string
		set   func(http.Header)
		wants int
	}{
		"few":         {"/", func(h http.Header) { h.Set("A", "a") }, http.StatusOK},
		"many values": {"/", func(h http.Header) { h["Group"] = strings.Fields(strings.Repeat("g ", 100)) }, http.StatusOK},
		"many fields": {"/", func(h http.Header) {
			for i := range 6 {
				h.Set(fmt.Sprint("X", i), "")
			}
		}, http.StatusRequestHeaderFieldsTooLarge},
		"long value":       {"/", func(h http.Header) { h.Set("A", strings.Repeat("a", 5000)) }, http.StatusRequestHeaderFieldsTooLarge},
		"empty values":     {"/", func(h http.Header) { h["A"] = make([]string, 200) }, http.StatusRequestHeaderFieldsTooLarge},
		"long values":      {"/", func(h http.Header) { h["A"] = strings.Fields(strings.Repeat("aaaaaaaaa ", 150)) }, http.StatusRequestHeaderFieldsTooLarge},
		"long request URI": {"/" + strings.Repeat("a", 5000), func(http.Header) {}, http.StatusRequestHeaderFieldsTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			handled := false
			req, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, http.NoBody), httptest.NewRecorder()
			tc.set(req.Header)
			Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled = true }), limits).ServeHTTP(w, req)
			if w.Code != tc.wants || handled != (tc.wants == http.StatusOK) {
				t.Errorf("answered with %d, want %d; handled: %t", w.Code, tc.wants, handled)
			}
			if req.Header != nil || req.URL != nil || req.RequestURI != "" || req.Host != "" {
				t.Errorf("net/http keeps %+v", req)
			}
		})
	}
}

// unreadSlots is how many slots a source has.
const unreadSlots = 4

// unreadServer is a server of HTTP/2 whose responses take slots as long as they are not read.
type unreadServer struct {
	*httptest.Server
	slots  *fairness.Sources
	closed atomicCount
}

func startUnreadServer(t *testing.T) *unreadServer {
	t.Helper()
	s := &unreadServer{slots: fairness.NewSources(64, unreadSlots)}
	pool := NewPool(Limits{Open: 100, Unread: UnreadLimits{Slots: s.slots, After: time.Millisecond}}, Metrics{Open: new(atomicCount), Unread: &s.closed})
	s.Server = httptest.NewUnstartedServer(Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a short response")
	}), HeaderLimits{Fields: 100, Bytes: 1 << 20}))
	s.Listener = pool.Listener(s.Listener)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// TestUnreadResponses: a client of HTTP/2 that reads no data has as many responses as its source has slots, and
// then loses its connection. The slots are released, and clients that read need none.
func TestUnreadResponses(t *testing.T) {
	s := startUnreadServer(t)
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil { // or it would wait for a connection that stays
		t.Fatal(err)
	}
	responses := 0
	for i := 0; err == nil; i++ {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/"}} {
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		err = framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
		})
		// The connection is closed once the response after those with slots has been unread for long enough.
		for begun := false; err == nil && (!begun || i == unreadSlots); {
			var frame http2.Frame
			if frame, err = framer.ReadFrame(); err == nil && frame.Header().Type == http2.FrameHeaders {
				begun = true
			}
		}
		if err == nil {
			responses++
		}
	}
	if responses != unreadSlots || s.closed.Load() == 0 {
		t.Errorf("the connection has ended after %d of %d responses; closed %d: %v", responses, unreadSlots, s.closed.Load(), err)
	}
	for range 8 {
		resp, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil || string(body) != "a short response" || resp.ProtoMajor != 2 {
			t.Errorf("a client that reads gets %q by %s: %v", body, resp.Proto, err)
		}
	}
	// All slots are free again: the source gets all four.
	var taken []func()
	defer func() {
		for _, release := range taken {
			release()
		}
	}()
	for range 4 {
		expect.Eventually(t.Context(), t, func(context.Context) error { // the handlers of the connection end
			release, ok := s.slots.Take("127.0.0.1")
			if !ok {
				return errors.New("a slot is not released")
			}
			taken = append(taken, release)
			return nil
		})
	}
}
