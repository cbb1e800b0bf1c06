// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

// TestDrainWaits makes sure that no client is sent away before the server has been
// ending for half of its delay.
func TestDrainWaits(t *testing.T) {
	const delay = 10 * time.Second
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	ending := make(chan struct{})
	handler := New(ok(), ending, delay, clock)
	ask := func() (closed bool) {
		t.Helper()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis", nil)) // by HTTP/1.1
		if w.Code != http.StatusOK {
			t.Fatalf("got %d", w.Code)
		}
		return w.Header().Get("Connection") == "close"
	}
	clock.Step(time.Hour)
	if ask() {
		t.Error("a connection was closed by a server that continues")
	}
	close(ending)
	for range 5 {
		if ask() {
			t.Errorf("a connection was closed by a server that still gets new ones")
		}
		clock.Step(delay / 10)
	}
	if !ask() {
		t.Error("a connection was left open by a server that ends")
	}
}

// TestDrainSparesProbes makes sure that probes and metrics are answered to the end.
func TestDrainSparesProbes(t *testing.T) {
	ending := make(chan struct{})
	close(ending)
	handler := New(ok(), ending, 0, clock.RealClock{})
	for _, path := range []string{"/readyz", "/livez/ping", "/healthz", "/metrics"} {
		w := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodGet, path, nil)
		req.ProtoMajor = 2
		handler.ServeHTTP(w, req)
		if w.Code != http.StatusOK || w.Header().Get("Connection") != "" {
			t.Errorf("%s: got %d, %v", path, w.Code, w.Header())
		}
	}
}

// TestDrain lets a server end whose one connection carries the requests of many.
// One of them is asked to retry, the others are served where they are, and all
// that come later find another connection.
func TestDrain(t *testing.T) {
	const clients = 10
	ending := make(chan struct{})
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	handler := New(ok(), ending, 0, clock)
	arrived := make(chan struct{}, 2*clients)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		handler.ServeHTTP(w, req)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	type answer struct {
		code              int
		connection, again string
	}
	ask := func() answer {
		// Like what kube-apiserver passes on, the body can be read once.
		body := io.MultiReader(strings.NewReader("{}"))
		response, err := server.Client().Post(server.URL+"/apis", "application/json", body)
		if err != nil {
			t.Error(err)
			return answer{}
		}
		defer response.Body.Close()
		connection, err := io.ReadAll(response.Body)
		if err != nil || response.ProtoMajor != 2 {
			t.Errorf("HTTP/%d: %v", response.ProtoMajor, err)
		}
		return answer{response.StatusCode, string(connection), response.Header.Get("Retry-After")}
	}
	pass := func(asking *sync.WaitGroup) { // lets time pass until all were answered
		answered := make(chan struct{})
		go func() {
			asking.Wait()
			close(answered)
		}()
		for {
			select {
			case <-answered:
				return
			default:
			}
			if clock.HasWaiters() {
				clock.Step(quiet)
			}
			runtime.Gosched()
		}
	}
	old := ask().connection
	<-arrived
	close(ending)
	answers := make([]answer, clients)
	var asking sync.WaitGroup
	for i := range answers {
		asking.Go(func() { answers[i] = ask() })
	}
	for range clients {
		<-arrived
	}
	pass(&asking)
	refused := 0
	for _, a := range answers {
		switch {
		case a.code == http.StatusTooManyRequests && a.again == "1":
			refused++
		case a.code != http.StatusOK || a.connection != old:
			t.Errorf("got %+v, want it to be served by connection %s", a, old)
		}
	}
	if refused != 1 {
		t.Errorf("%d of %d requests were refused, want 1", refused, clients)
	}
	// A new connection gets GOAWAY as well.
	var last answer
	asking.Go(func() { last = ask() })
	pass(&asking)
	if last.code != http.StatusTooManyRequests {
		t.Errorf("got %+v, want it to be refused by another connection than %s", last, old)
	}
}

// ok answers with the name of the connection.
func ok() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // of a test
		_, _ = io.WriteString(w, req.RemoteAddr)
	})
}
