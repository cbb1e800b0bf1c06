// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics/testutil"
)

// TestDrain: what is asked before the end is answered, however late within its time.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(drainTimeout - time.Second)
			if r.Context().Err() == nil {
				_, _ = io.WriteString(w, "done "+r.Proto)
			}
		})
		answers := make(chan string, 2)
		for _, client := range []*http.Client{s.client, s.client2} {
			go func() {
				resp, err := get(t, client, "/")
				if err != nil {
					answers <- err.Error()
					return
				}
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil {
					text = []byte(err.Error())
				}
				answers <- string(text)
			}()
		}
		synctest.Wait()
		s.stop()
		synctest.Wait()
		if _, err := s.dial(t.Context(), "", ""); err == nil {
			t.Error("a server that ends takes new connections")
		}
		for range 2 {
			if answer := <-answers; !strings.HasPrefix(answer, "done HTTP/") {
				t.Errorf("answered with %s", answer)
			}
		}
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	})
}

// TestCut: what streams is cut in the end, and its handlers are waited for.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var working atomic.Int32
		s := start(t, func(w http.ResponseWriter, r *http.Request) {
			working.Add(1)
			defer working.Add(-1)
			if r.URL.Path == "/upgrade" {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			} else {
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
			time.Sleep(cutTimeout - time.Second)
		})
		for path, client := range map[string]*http.Client{"/1": s.client, "/2": s.client2, "/upgrade": s.client} {
			resp, err := get(t, client, path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
		}
		began := time.Now()
		s.stop()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
		if n := working.Load(); n > 0 {
			t.Errorf("%d handlers still work", n)
		}
		if took := time.Since(began); took < drainTimeout || took > drainTimeout+cutTimeout {
			t.Errorf("it took %s", took)
		}
	})
}

// TestStuck: a handler that never ends does not keep the process.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never)
		s := start(t, func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-never
		})
		resp, err := get(t, s.client, "/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s.stop()
		if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "still processed") {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestPanic: a panic of a handler is logged and counted, and ends no other request.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/panic" {
				panic("out of order")
			}
			w.WriteHeader(http.StatusNoContent)
		})
		s := start(t, instrument(labelAPI, handler).ServeHTTP)
		count := func(code string) uint64 {
			n, err := testutil.GetHistogramMetricCount(requestSeconds.WithLabelValues(labelAPI, code))
			if err != nil {
				t.Error(err)
			}
			return n
		}
		registerMetrics() // only from then on they count
		panics, answers := count("500"), count("204")
		for _, client := range []*http.Client{s.client, s.client2} {
			if resp, err := get(t, client, "/panic"); err == nil {
				t.Errorf("a panic is answered with %d", resp.StatusCode)
				_ = resp.Body.Close()
			}
			resp, err := get(t, client, "/")
			if err != nil || resp.StatusCode != http.StatusNoContent {
				t.Fatalf("after a panic: %v, %v", resp, err)
			}
			_ = resp.Body.Close()
		}
		synctest.Wait() // the server says what it has done by then
		if logs := s.logged(); strings.Count(logs, "out of order") != 2 {
			t.Errorf("the log has:\n%s", logs)
		}
		if n := count("500") - panics; n != 2 {
			t.Errorf("%d panics are counted", n)
		}
		if n := count("204") - answers; n != 2 {
			t.Errorf("%d answers are counted", n)
		}
		if n, err := testutil.GetGaugeMetricValue(requestsInFlight.WithLabelValues(labelAPI)); n != 0 || err != nil {
			t.Errorf("%v requests are in flight, %v", n, err)
		}
		s.stop()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	})
}

// TestSharedTLS: several listeners may be served with one configuration, which stays as it is.
func TestSharedTLS(t *testing.T) {
	other := httptest.NewTLSServer(http.NotFoundHandler())
	defer other.Close()
	config := &tls.Config{Certificates: other.TLS.Certificates, MinVersion: tls.VersionTLS12}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serveListener(ctx, listener, config, http.NotFoundHandler()) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := other.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	other.Client().CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(config.NextProtos) > 0 {
		t.Errorf("the configuration that others use got %q", config.NextProtos)
	}
}
