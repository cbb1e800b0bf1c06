// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// settles waits until check has nothing to say.
func settles(t testing.TB, check func() error) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(context.Context) error { return check() })
}

// raw sends bytes as they are, and returns the codes of all answers until the connection ends.
func (w *world) raw(t *testing.T, text string) (codes []int, bodies string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	go func() { _, _ = io.WriteString(conn, text) }() // it ends with the connection
	reader := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return codes, bodies
		}
		body, _ := io.ReadAll(response.Body)
		codes, bodies = append(codes, response.StatusCode), bodies+string(body)
		if response.Close {
			return codes, bodies
		}
	}
}

// TestSmuggling: what the gateway understands is what the sandbox gets, and one request in is
// at most one request out.
func TestSmuggling(t *testing.T) {
	var lock sync.Mutex
	var got []string
	w := newWorld(t, nil)
	id, port := w.add(nil), listen(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		lock.Lock()
		got = append(got, fmt.Sprintf("%s %s %q te=%v trailer=%v", r.Method, r.RequestURI, body, r.Header.Get("Te"), r.Header.Get("Proxy-Authorization")+r.Header.Get("X-Hop")))
		lock.Unlock()
		rw.WriteHeader(http.StatusNoContent)
	})
	host := fmt.Sprintf("Host: %d-%s.example.com\r\n", port, id)
	for name, test := range map[string]struct {
		text string
		code int
		want []string
	}{
		"two hosts":            {"GET /a HTTP/1.1\r\n" + host + "Host: api.example.com\r\n\r\n", 400, nil},
		"no host":              {"GET /a HTTP/1.1\r\n\r\n", 400, nil},
		"two lengths":          {"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, nil},
		"a strange encoding":   {"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501, nil},
		"a space before colon": {"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\nConnection: close\r\n\r\n0\r\n\r\n", 400, nil},
		"a folded header":      {"GET /a HTTP/1.1\r\n" + host + "E2b-Sandbox-Id: x\r\n y\r\nE2b-Sandbox-Port: 80\r\nConnection: close\r\n\r\n", 400, nil},
		"a control character":  {"GET /a HTTP/1.1\r\n" + host + "X: a\x00b\r\nConnection: close\r\n\r\n", 400, nil},
		"length and chunks": {
			"POST /a HTTP/1.1\r\n" + host + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n" + host + "\r\n",
			204, []string{`POST /a "abc" te= trailer=`},
		},
		"headers of the connection": {
			"GET /a HTTP/1.1\r\n" + host + "Te: gzip\r\nProxy-Authorization: x\r\nX-Hop: y\r\nConnection: close, X-Hop\r\n\r\n",
			204, []string{`GET /a "" te= trailer=`},
		},
		"a header dropped by name": { // the id may not be made to disappear
			"GET /a HTTP/1.1\r\nHost: api.example.com\r\nE2b-Sandbox-Id: " + id + "\r\nE2b-Sandbox-Port: " + fmt.Sprint(port) + "\r\nConnection: close, E2b-Sandbox-Id\r\n\r\n",
			204, []string{`GET /a "" te= trailer=`},
		},
		"a trick with an underscore": {"GET /a HTTP/1.1\r\nHost: api.example.com\r\nE2b_Sandbox_Id: " + id + "\r\nConnection: close\r\n\r\n", 418, nil},
		"an oversized header":        {"GET /a HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", 431, nil},
		"an oversized id":            {"GET /a HTTP/1.1\r\nHost: g\r\nE2b-Sandbox-Id: " + strings.Repeat("x", 1<<19) + "\r\nE2b-Sandbox-Port: 80\r\nConnection: close\r\n\r\n", 400, nil},
	} {
		t.Run(name, func(t *testing.T) {
			lock.Lock()
			got = nil
			lock.Unlock()
			codes, bodies := w.raw(t, test.text)
			lock.Lock()
			defer lock.Unlock()
			if len(codes) != 1 || codes[0] != test.code || fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("answers %v, the sandbox got %v; want %d and %v", codes, got, test.code, test.want)
			}
			if len(bodies) > 4096 {
				t.Errorf("an answer repeats what was sent: %d bytes", len(bodies))
			}
		})
	}
}

// TestSlowClients hold up only themselves.
func TestSlowClients(t *testing.T) {
	w := newWorld(t, nil)
	id, port := w.add(nil), listen(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = rw.Write(bytes.Repeat([]byte("x"), 1<<20))
		_, _ = rw.Write(body)
	})
	address := strings.TrimPrefix(w.url, "http://")
	for range 50 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		// The body never comes to its end, and the answer is never read.
		if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: %d-%s.example.com\r\nContent-Length: 100\r\n\r\nx", port, id); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if response, body := w.get(t, id, port); response.StatusCode != http.StatusOK || len(body) != 1<<20 {
			t.Fatalf("got %d and %d bytes", response.StatusCode, len(body))
		}
	}
}

// TestTenThousandRequestsLeaveNothing: good ones, bad ones and broken ones.
func TestTenThousandRequestsLeaveNothing(t *testing.T) {
	w := newWorld(t, nil)
	id, port := w.add(nil), listen(t, echo)
	breaks := listen(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	resting := w.add(nil)
	w.lock.Lock()
	w.running[w.table[resting].UID] = false
	w.lock.Unlock()
	client := &http.Transport{MaxIdleConnsPerHost: 32}
	defer client.CloseIdleConnections()
	send := func(i int) error {
		r := w.request(t, http.MethodPost, fmt.Sprint("/", i), strings.NewReader("hello"))
		to, want, number := id, http.StatusOK, port
		switch i % 10 {
		case 7:
			number, want = breaks, http.StatusBadGateway
		case 8:
			to, want = resting, http.StatusBadGateway
		case 9:
			to, want = "team-a--eaaaaaaaaaaaaa", http.StatusBadGateway
		}
		for _, form := range []string{"host", "headers", "path"}[i%3 : i%3+1] {
			forms[form](r, to, number)
		}
		response, err := client.RoundTrip(r)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		_, err = io.Copy(io.Discard, response.Body)
		if response.StatusCode != want {
			return errors.Join(err, fmt.Errorf("request %d: got %d, want %d", i, response.StatusCode, want))
		}
		return err
	}
	run := func(from, to int) {
		var wg sync.WaitGroup
		for worker := range 32 {
			wg.Go(func() {
				for i := from + worker; i < to; i += 32 {
					if err := send(i); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	run(0, 1000)
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	run(1000, 11_000)
	settles(t, func() error {
		// Connections are kept; how many depends on how they met.
		if g, f := runtime.NumGoroutine(), openFiles(t); g > goroutines+200 || f > files+100 {
			return fmt.Errorf("%d goroutines and %d files, before %d and %d", g, f, goroutines, files)
		}
		return nil
	})
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Logf("open files are not counted here: %v", err)
	}
	return len(entries)
}
