// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// street is a Proxy with a server in front, and sandboxes behind.
type street struct {
	*testing.T
	url   string
	proxy *sandboxproxy.Proxy
	port  int

	mu sync.Mutex
	at map[string]netip.Addr // by UID
	// probePath is that of all sandboxes.
	probePath string
	// state is that of all sandboxes when their address is read.
	state sandboxproxy.State
	// asked counts the questions for addresses.
	asked int
	// before, if it is not nil, changes requests before they are forwarded.
	before func(*http.Request)
	// wrap, if it is not nil, is what the response is written to.
	wrap func(http.ResponseWriter) http.ResponseWriter
	// after, if it is not nil, is called when a request is over.
	after func()
}

func newStreet(t *testing.T, change func(*sandboxproxy.Options)) *street {
	t.Helper()
	s := &street{T: t, at: map[string]netip.Addr{}}
	options := sandboxproxy.Options{
		Resolve: func(_ context.Context, target sandboxproxy.Target) (sandboxproxy.Address, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked++
			if target.Namespace != "ns" || target.Name != "box.a" || target.Claim != "claim" || target.Port != s.port {
				return sandboxproxy.Address{}, fmt.Errorf("asked for %+v", target)
			}
			ip, ok := s.at[string(target.UID)]
			if !ok {
				return sandboxproxy.Address{}, sandboxproxy.ErrNotRunning
			}
			return sandboxproxy.Address{Addr: ip, State: s.state, RuntimeProbePath: s.probePath}, nil
		},
		Error: func(w http.ResponseWriter, _ *http.Request, err error) {
			code := http.StatusBadGateway
			if errors.Is(err, sandboxproxy.ErrNotRunning) {
				code = http.StatusGone
			}
			http.Error(w, err.Error(), code)
		},
	}
	if change != nil {
		change(&options)
	}
	s.proxy = sandboxproxy.New(options)
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid := r.Header.Get("Uid")
		if s.before != nil {
			s.before(r)
		}
		if s.after != nil {
			defer s.after()
		}
		if s.wrap != nil {
			w = s.wrap(w)
		}
		s.proxy.Forward(w, r, sandboxproxy.Target{Namespace: "ns", Name: "box.a", UID: types.UID("u-" + uid), Claim: "claim", Port: s.port})
	}))
	front.Config.Protocols = new(http.Protocols)
	front.Config.Protocols.SetHTTP1(true)
	front.Config.Protocols.SetUnencryptedHTTP2(true)
	front.Start()
	t.Cleanup(func() {
		front.Close()
		s.proxy.Close()
	})
	s.url = front.URL
	return s
}

// box runs a sandbox at an address of this machine.
func (s *street) box(uid, ip string, handler http.HandlerFunc) *httptest.Server {
	s.Helper()
	l, err := new(net.ListenConfig).Listen(s.Context(), "tcp", net.JoinHostPort(ip, strconv.Itoa(s.port)))
	if err != nil {
		s.Fatal(err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	box := httptest.NewUnstartedServer(handler)
	_ = box.Listener.Close() // it has another address
	box.Listener = l
	box.Config.Protocols = new(http.Protocols)
	box.Config.Protocols.SetHTTP1(true)
	box.Config.Protocols.SetUnencryptedHTTP2(true)
	box.Start()
	s.Cleanup(box.Close)
	s.move(uid, ip)
	return box
}

// move says where a sandbox is; "" is nowhere.
func (s *street) move(uid, ip string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ip == "" {
		delete(s.at, "u-"+uid)
		return
	}
	s.at["u-"+uid] = netip.MustParseAddr(ip)
}

func (s *street) request(uid, method, path string, body io.Reader) *http.Request {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, body)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Uid", uid)
	return r
}

func (s *street) do(client *http.Client, r *http.Request) (*http.Response, string) {
	s.Helper()
	resp, err := client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp, string(text)
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// TestAddressOfAnother: a sandbox whose address another one has now gets nothing, and the
// other nothing that was meant for it, whatever connections are kept.
func TestAddressOfAnother(t *testing.T) {
	s := newStreet(t, nil)
	const ip = "127.9.0.1"
	first := s.box("a", ip, says("a"))
	for range 3 {
		if _, text := s.do(http.DefaultClient, s.request("a", "GET", "/", nil)); text != "a" {
			t.Fatalf("got %q", text)
		}
	}
	if s.asked != 1 {
		t.Errorf("asked %d times for one connection", s.asked)
	}
	first.CloseClientConnections()
	first.Close()
	s.move("a", "")
	s.box("b", ip, says("b"))
	if _, text := s.do(http.DefaultClient, s.request("b", "GET", "/", nil)); text != "b" {
		t.Errorf("b says %q", text)
	}
	for range 10 {
		resp, text := s.do(http.DefaultClient, s.request("a", "GET", "/", nil))
		if resp.StatusCode != http.StatusGone || !strings.Contains(text, sandboxproxy.ErrNotRunning.Error()) || strings.Contains(text, "u-a") {
			t.Fatalf("the first one answers %d %q", resp.StatusCode, text)
		}
	}
}

// TestHeaders: those of one connection stay on it, the client's tale of where it comes from
// is not believed, and path, query and Host go on as they came.
func TestHeaders(t *testing.T) {
	s := newStreet(t, nil)
	var got *http.Request
	s.box("a", "127.9.0.2", func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("X-Stays", "1")
		http.Redirect(w, r, "http://127.9.0.3/elsewhere", http.StatusFound)
	})
	r := s.request("a", "GET", "/a%2Fb/../c?x=1;y=%zz", nil)
	r.Host = "8080-id.example:99"
	r.Header.Set("Connection", "X-Mine")
	r.Header.Set("X-Mine", "1")
	r.Header.Set("Proxy-Authorization", "secret")
	r.Header.Set("X-Forwarded-For", "6.6.6.6")
	r.Header.Set("Forwarded", "for=6.6.6.6")
	r.Header.Set("X-Real-Ip", "6.6.6.6")
	r.Header.Set("True-Client-Ip", "6.6.6.6")
	r.Header.Set("X-Client-Ip", "6.6.6.6")
	identity := []string{"X-Auth-Request-Access-Token", "X-Auth-Request-User", "X-Forwarded-Access-Token", "X-Forwarded-Email", "X-Forwarded-User", "X-Goog-Iap-Jwt-Assertion", "Cf-Access-Jwt-Assertion"}
	for _, key := range identity {
		r.Header.Set(key, "secret")
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, _ := s.do(client, r)
	if got.RequestURI != "/a%2Fb/../c?x=1;y=%zz" || got.Host != "8080-id.example:99" {
		t.Errorf("%s at %s", got.RequestURI, got.Host)
	}
	for _, key := range append(identity, "X-Mine", "Proxy-Authorization", "Forwarded", "X-Real-Ip", "True-Client-Ip", "X-Client-Ip") {
		if got.Header.Get(key) != "" {
			t.Errorf("%s went on", key)
		}
	}
	if from := got.Header.Get("X-Forwarded-For"); strings.Contains(from, "6.6.6.6") {
		t.Errorf("X-Forwarded-For is %s", from)
	}
	if resp.StatusCode != http.StatusFound || resp.Header.Get("Location") != "http://127.9.0.3/elsewhere" {
		t.Errorf("the redirect is %d %s", resp.StatusCode, resp.Header.Get("Location"))
	}
	if resp.Header.Get("X-Hop") != "" || resp.Header.Get("X-Stays") != "1" {
		t.Errorf("answered with %v", resp.Header)
	}
}

// TestWebSocket: both directions, early data, and an end of one side that ends the other.
func TestWebSocket(t *testing.T) {
	s := newStreet(t, nil)
	ended := make(chan error, 1)
	s.box("a", "127.9.0.4", func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			ended <- err
			return
		}
		defer conn.Close()
		for {
			kind, text, err := conn.ReadMessage()
			if err != nil {
				ended <- err
				return
			}
			if err := conn.WriteMessage(kind, append([]byte("echo "), text...)); err != nil {
				ended <- err
				return
			}
		}
	})
	conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(s.url, "http")+"/ws", http.Header{"Uid": {"a"}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for i := range 3 {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		if _, text, err := conn.ReadMessage(); err != nil || string(text) != "echo "+strconv.Itoa(i) {
			t.Fatalf("%s %v", text, err)
		}
	}
	// Half of it closed is all of it closed.
	if err := conn.NetConn().(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the sandbox does not hear of the end")
	}
	if _, _, err := conn.ReadMessage(); err == nil {
		t.Error("the client does not hear of the end")
	}
	_ = conn.Close() // it has ended
}

// TestOddCodes: a code that no server can write is an error, over each version of HTTP.
func TestOddCodes(t *testing.T) {
	s := newStreet(t, nil)
	s.box("a", "127.9.0.31", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n")
		_ = conn.Close()
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	two := &http.Transport{Protocols: protocols}
	defer two.CloseIdleConnections()
	for _, client := range []*http.Client{http.DefaultClient, {Transport: two}} {
		if resp, _ := s.do(client, s.request("a", "GET", "/", nil)); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("over %s the answer is %d", resp.Proto, resp.StatusCode)
		}
	}
}

// TestLongHeaders: what a sandbox can make the proxy keep in memory for each answer is bounded.
func TestLongHeaders(t *testing.T) {
	s := newStreet(t, nil)
	s.box("a", "127.9.0.30", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", int(r.ContentLength)))
	})
	s.box("b", "127.9.0.31", func(w http.ResponseWriter, r *http.Request) {
		for i := range r.ContentLength {
			w.Header().Add(fmt.Sprint("X", i%150), "")
		}
	})
	for fields, want := range map[int]int{100: http.StatusOK, 300: http.StatusBadGateway} {
		resp, _ := s.do(http.DefaultClient, s.request("b", "POST", "/", strings.NewReader(strings.Repeat("x", fields))))
		if resp.StatusCode != want {
			t.Errorf("%d headers are answered with %d, want %d", fields, resp.StatusCode, want)
		}
	}
	for size, want := range map[int]int{12 << 10: http.StatusOK, 64 << 10: http.StatusBadGateway} {
		resp, _ := s.do(http.DefaultClient, s.request("a", "POST", "/", strings.NewReader(strings.Repeat("x", size))))
		if resp.StatusCode != want {
			t.Errorf("a header of %d bytes is answered %d, want %d", size, resp.StatusCode, want)
		}
	}
}

// TestTunnelOfASilentSandbox ends with its client, though the sandbox neither reads nor
// closes anything.
func TestTunnelOfASilentSandbox(t *testing.T) {
	through := make(chan struct{})
	s := newStreet(t, nil)
	s.box("a", "127.9.0.14", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() }) // not before
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: quiet\r\n\r\n")
	})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(through)
		s.proxy.Forward(w, r, sandboxproxy.Target{Namespace: "ns", Name: "box.a", UID: "u-a", Claim: "claim", Port: s.port})
	}))
	defer front.Close()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: quiet\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	_ = conn.Close() // that is what this is about
	<-through
}

// TestIdleTunnelEnds on both sides.
func TestIdleTunnelEnds(t *testing.T) {
	s := newStreet(t, func(o *sandboxproxy.Options) { o.TunnelIdle = 100 * time.Millisecond })
	ended := make(chan struct{})
	s.box("a", "127.9.0.5", func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err == nil {
			_, _, _ = conn.ReadMessage()
			_ = conn.Close()
		}
	})
	conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(s.url, "http")+"/ws", http.Header{"Uid": {"a"}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer conn.Close()
	if _, _, err := conn.ReadMessage(); err == nil {
		t.Error("the client's side stays open")
	}
	<-ended
}

// TestStreams: what a sandbox says is heard before it has ended.
func TestStreams(t *testing.T) {
	s := newStreet(t, nil)
	heard := make(chan struct{})
	s.box("a", "127.9.0.6", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-heard
		_, _ = io.WriteString(w, "data: 2\n\n")
	})
	resp, err := http.DefaultClient.Do(s.request("a", "GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("%q %v", line, err)
	}
	close(heard)
	if rest, err := io.ReadAll(lines); err != nil || string(rest) != "\ndata: 2\n\n" {
		t.Errorf("%q %v", rest, err)
	}
}

// TestAnswerBesideTheBody: an answer that begins as soon as the body is there, or before it
// has ended, is not broken off by the end of the body.
func TestAnswerBesideTheBody(t *testing.T) {
	s := newStreet(t, nil)
	s.box("a", "127.9.0.15", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		if _, err := io.ReadFull(r.Body, make([]byte, 5)); err != nil {
			t.Error(err)
		}
		for range 3 {
			_, _ = io.WriteString(w, "part ")
			w.(http.Flusher).Flush()
		}
		rest, _ := io.ReadAll(r.Body)
		_, _ = w.Write(rest)
	})
	for i := range 200 {
		body, write := io.Pipe()
		r := s.request("a", "POST", "/", body)
		if i%2 == 0 {
			r.ContentLength = 5
		}
		answered := make(chan struct{})
		go func() {
			_, _ = io.WriteString(write, "hello")
			if i%2 == 1 {
				<-answered
				_, _ = io.WriteString(write, "rest")
			}
			_ = write.Close()
		}()
		want := "part part part "
		if i%2 == 1 {
			want += "rest"
		}
		resp, err := http.DefaultClient.Do(r)
		close(answered)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(text) != want {
			t.Fatalf("%d: %q %v", i, text, err)
		}
	}
}

// zeros is n bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { return len(p), nil }

// TestLargeBodies pass in constant memory, both ways at once.
func TestLargeBodies(t *testing.T) {
	const size = 256 << 20
	s := newStreet(t, nil)
	s.box("a", "127.9.0.7", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if n != size || err != nil {
			http.Error(w, fmt.Sprint(n, err), http.StatusBadRequest)
			return
		}
		_, _ = io.Copy(w, zeros(size))
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := s.request("a", "POST", "/", zeros(size))
	r.ContentLength = size
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if n != size || err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d: %d bytes, %v", resp.StatusCode, n, err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// TestGRPC: streams of HTTP/2 with trailers, of which no more is taken in than is read.
func TestGRPC(t *testing.T) {
	s := newStreet(t, nil)
	wrote := make(chan int, 1)
	s.box("a", "127.9.0.8", func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			http.Error(w, r.Proto, http.StatusHTTPVersionNotSupported)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		if r.URL.Path == "/flood" {
			total := 0
			for {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
				n, err := w.Write(make([]byte, 16<<10))
				total += n
				if err == nil {
					err = http.NewResponseController(w).Flush()
				}
				if err != nil || total > 64<<20 {
					wrote <- total
					return
				}
			}
		}
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("Grpc-Status", "0")
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	// This client takes in no more than a little itself.
	transport := &http.Transport{Protocols: protocols, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 128 << 10}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	r := s.request("a", "POST", "/echo", bytes.NewReader([]byte("hello")))
	r.Header.Set("Content-Type", "application/grpc+proto")
	r.Header.Set("Te", "trailers")
	resp, text := s.do(client, r)
	if resp.StatusCode != http.StatusOK || text != "hello" || resp.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%d %q %v", resp.StatusCode, text, resp.Trailer)
	}
	r = s.request("a", "POST", "/flood", nil)
	r.Header.Set("Content-Type", "application/grpc")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if total := <-wrote; total > 2<<20 {
		t.Errorf("%d bytes were taken in of what nobody reads", total)
	}
	_ = resp.Body.Close()
}

// TestEarlyAnswer: what is left of a body is not taken for another request.
func TestEarlyAnswer(t *testing.T) {
	s := newStreet(t, nil)
	var mu sync.Mutex
	var paths []string
	s.box("a", "127.9.0.9", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		paths = append(paths, r.URL.Path)
		mu.Unlock()
		w.WriteHeader(http.StatusForbidden)
	})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /first HTTP/1.1\r\nHost: x\r\nUid: a\r\nContent-Length: 1000000\r\n\r\n")
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || !resp.Close {
		t.Errorf("%d, and the connection is kept: %v", resp.StatusCode, !resp.Close)
	}
	_, _ = fmt.Fprintf(conn, "GET /smuggled HTTP/1.1\r\nHost: x\r\nUid: a\r\n\r\n") // it may be closed by now
	_, _ = io.Copy(io.Discard, reader)
	mu.Lock()
	defer mu.Unlock()
	if len(paths) != 1 {
		t.Errorf("the sandbox was asked for %v", paths)
	}
}

// TestSmuggling: a request that can be read in two ways reaches no sandbox.
func TestSmuggling(t *testing.T) {
	s := newStreet(t, nil)
	var mu sync.Mutex
	reached := 0
	s.box("a", "127.9.0.10", func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		reached++
	})
	for _, request := range []string{
		"POST / HTTP/1.1\r\nHost: x\r\nUid: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
		"POST / HTTP/1.1\r\nHost: x\r\nUid: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nUid: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\nUid: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nUid: a\r\nBad Name: y\r\n\r\n",
		"CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\nUid: a\r\n\r\n",
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, request)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && resp.StatusCode < 400 {
			t.Errorf("%q is answered with %d", request, resp.StatusCode)
		}
		_ = conn.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if reached > 0 {
		t.Errorf("%d of them reached the sandbox", reached)
	}
}

// TestContinue: a sandbox that wants no body is not sent one.
func TestContinue(t *testing.T) {
	s := newStreet(t, nil)
	s.box("a", "127.9.0.11", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
	r := s.request("a", "POST", "/yes", strings.NewReader("hello"))
	r.Header.Set("Expect", "100-continue")
	if _, text := s.do(http.DefaultClient, r); text != "hello" {
		t.Errorf("got %q", text)
	}
	// The client sends nothing before it is asked to. The proxy continues after a second
	// of silence, so that one of several tries has to do on a slow machine.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ExpectContinueTimeout = expect.Patience
	defer transport.CloseIdleConnections()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		body := &counted{Reader: zeros(1 << 30)}
		r := s.request("a", "POST", "/no", body).WithContext(ctx)
		r.Header.Set("Expect", "100-continue")
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if n := body.n.Load(); resp.StatusCode != http.StatusUnauthorized || n > 0 {
			return fmt.Errorf("got %d after %d bytes", resp.StatusCode, n)
		}
		return nil
	})
}

// counted counts the bytes that are read of it.
type counted struct {
	io.Reader
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestErrors of connections, and of answers that break off.
func TestErrors(t *testing.T) {
	s := newStreet(t, nil)
	box := s.box("a", "127.9.0.12", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 100000))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	resp, err := http.DefaultClient.Do(s.request("a", "GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("an answer that broke off looks whole")
	}
	_ = resp.Body.Close()
	box.Close()
	if resp, text := s.do(http.DefaultClient, s.request("a", "GET", "/", nil)); resp.StatusCode != http.StatusBadGateway || !strings.Contains(text, "refused") {
		t.Errorf("a port that is not open: %d %s", resp.StatusCode, text)
	}
	if resp, _ := s.do(http.DefaultClient, s.request("nobody", "GET", "/", nil)); resp.StatusCode != http.StatusGone {
		t.Errorf("nobody: %d", resp.StatusCode)
	}
}

// TestNothingIsLeft behind by many requests.
func TestNothingIsLeft(t *testing.T) {
	s := newStreet(t, nil)
	s.box("a", "127.9.0.13", says("a"))
	s.do(http.DefaultClient, s.request("a", "GET", "/", nil))
	before := runtime.NumGoroutine()
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			for range 50 {
				s.do(http.DefaultClient, s.request("a", "GET", "/", nil))
			}
		})
	}
	wait.Wait()
	s.proxy.Close()
	http.DefaultClient.CloseIdleConnections()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if n := runtime.NumGoroutine(); n > before+10 {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
}

// TestDialsEndWithTheirRequests: the transport would continue to connect for those that have
// gone, and nothing would count these.
func TestDialsEndWithTheirRequests(t *testing.T) {
	const clients = 20
	dialling, ended := make(chan struct{}, clients), make(chan error, clients)
	s := newStreet(t, func(o *sandboxproxy.Options) {
		o.Resolve = func(ctx context.Context, _ sandboxproxy.Target) (sandboxproxy.Address, error) {
			dialling <- struct{}{}
			<-ctx.Done()
			ended <- ctx.Err()
			return sandboxproxy.Address{}, ctx.Err()
		}
	})
	ctx, leave := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for range clients {
		asking.Go(func() {
			if resp, err := http.DefaultClient.Do(s.request("a", "GET", "/", nil).WithContext(ctx)); err == nil {
				_ = resp.Body.Close()
				t.Error("it was answered")
			}
		})
		<-dialling
	}
	leave()
	asking.Wait()
	for range clients {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a dial has ended by %v", err)
		}
	}
}

// TestFreshConnections: a sandbox that closes a connection just when a request comes over it
// breaks one off that cannot be sent again. So for those no connection is kept for long.
func TestFreshConnections(t *testing.T) {
	s := newStreet(t, nil)
	const ip = "127.9.0.32"
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.port = l.Addr().(*net.TCPAddr).Port
	s.move("a", ip)
	closed := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			reader := bufio.NewReader(conn)
			var r *http.Request
			if r, err = http.ReadRequest(reader); err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			if err == nil {
				_, err = reader.ReadByte() // of the next request
			}
			_ = conn.Close()
		}
		closed <- err
	}()
	s.do(http.DefaultClient, s.request("a", "POST", "/", strings.NewReader("body")))
	select {
	case err := <-closed:
		if !errors.Is(err, io.EOF) {
			t.Errorf("the connection has ended by %v", err)
		}
	case <-time.After(expect.Patience):
		t.Error("the connection is kept")
	}
}

// TestEarlyAnswerToOneWhoWaits: a sandbox that answers and takes no more of a body does not keep its client
// waiting for the end of the answer, nor the request here for the rest of the body.
func TestEarlyAnswerToOneWhoWaits(t *testing.T) {
	over := make(chan struct{})
	s := newStreet(t, nil)
	s.after = func() { close(over) }
	s.box("a", "127.9.0.33", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		w.(http.Flusher).Flush() // in chunks
		_, _ = io.WriteString(w, "too large")
	})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nUid: a\r\nContent-Length: 1000000\r\n\r\nhead"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(expect.Patience)); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || string(text) != "too large" || answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %q, %v", answer.StatusCode, text, err)
	}
	<-over
}
