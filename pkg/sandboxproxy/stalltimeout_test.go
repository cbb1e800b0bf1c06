// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// oneConn is a listener with one connection.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
}

// Accept implements net.Listener.
func (l oneConn) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conn:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l oneConn) Close() error {
	close(l.closed)
	return nil
}

// Addr implements net.Listener.
func (l oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "one"} }

// TestClientThatTakesNothing: it is cut off in time, over HTTP/1.1 and HTTP/2, and one whose
// sandbox is silent for long is not.
func TestClientThatTakesNothing(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, silent := range []time.Duration{0, 3 * stallTimeout} {
			synctest.Test(t, func(t *testing.T) {
				protocols := new(http.Protocols)
				protocols.SetHTTP1(!http2)
				protocols.SetUnencryptedHTTP2(http2)
				cut := make(chan error, 1)
				server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					paced := &stallTimeoutWriter{ResponseWriter: w, http1: r.ProtoMajor == 1}
					_, err := io.WriteString(paced, "first")
					if err == nil {
						err = http.NewResponseController(paced).Flush()
					}
					time.Sleep(silent)
					for part, i := make([]byte, 32<<10), 0; i < 100 && err == nil; i++ {
						_, err = paced.Write(part)
					}
					cut <- err
				})}
				near, far := net.Pipe()
				listener := oneConn{make(chan net.Conn, 1), make(chan struct{})}
				listener.conn <- far
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = server.Serve(listener)
				}()
				transport := &http.Transport{
					DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil },
					Protocols:   protocols, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://box/", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if silent > 0 {
					if n, err := io.Copy(io.Discard, resp.Body); n != 5+100*(32<<10) || err != nil {
						t.Errorf("HTTP/2 %t: %d bytes, %v", http2, n, err)
					}
				} else {
					time.Sleep(2 * stallTimeout)
				}
				select {
				case err := <-cut:
					if (err == nil) != (silent > 0) {
						t.Errorf("HTTP/2 %t, silent for %s: the sandbox is told %v after %s", http2, silent, err, time.Since(began))
					}
				default:
					t.Errorf("HTTP/2 %t: a client that takes nothing is waited for after %s", http2, time.Since(began))
				}
				_ = resp.Body.Close()
				transport.CloseIdleConnections()
				_ = server.Close()
				_ = near.Close()
				<-done
			})
		}
	}
}

// TestSandboxThatReadsNothing is cut off when that has lasted long, and not before.
func TestSandboxThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		conn := &sandboxConn{Conn: here, connections: NewConnections()}
		defer conn.Close()
		slow := func() {
			time.Sleep(stallTimeout / 2)
			if _, err := io.ReadFull(there, make([]byte, 4)); err != nil {
				t.Error(err)
			}
		}
		for range 3 {
			go slow()
			if _, err := conn.Write([]byte("slow")); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if _, err := conn.Write([]byte("dead")); err == nil || time.Since(began) > stallTimeout {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
