// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

// stallTimeout is how long a client may receive nothing of a response, and a sandbox nothing of a
// request.
const stallTimeout = 5 * time.Minute

// stallTimeoutWriter ends a response of which the client receives nothing for stallTimeout. It also ends an
// upgraded connection without traffic.
type stallTimeoutWriter struct {
	http.ResponseWriter
	idle  time.Duration
	http1 bool
	paced time.Time // when the deadline of HTTP/1 was last moved

	// stall ends the stream of HTTP/2 while something is written to it, and closes stalled.
	stall   *time.Timer
	stalled chan struct{}
}

// Unwrap lets http.ResponseController find what the writer can do.
func (w *stallTimeoutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *stallTimeoutWriter) Write(p []byte) (n int, err error) {
	w.pace(func() { n, err = w.ResponseWriter.Write(p) })
	return n, err
}

// WriteHeader implements http.ResponseWriter.
func (w *stallTimeoutWriter) WriteHeader(code int) {
	w.pace(func() { w.ResponseWriter.WriteHeader(code) })
}

// FlushError lets http.ResponseController send what was written.
func (w *stallTimeoutWriter) FlushError() (err error) {
	w.pace(func() { err = http.NewResponseController(w.ResponseWriter).Flush() })
	return err
}

// pace sends something, for as long as the client has patience. Without deadlines, as in
// tests, there is no client to wait for.
func (w *stallTimeoutWriter) pace(send func()) {
	if w.http1 {
		if now := (clock.RealClock{}).Now(); now.Sub(w.paced) > stallTimeout/16 {
			w.paced = now
			_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(now.Add(stallTimeout))
		}
		send()
		return
	}
	// A deadline of HTTP/2 ends the stream when it comes, also of a sandbox that is silent
	// for longer than that. So it is there only while something is sent.
	if w.stall == nil {
		w.stalled = make(chan struct{})
		w.stall = time.AfterFunc(stallTimeout, func() {
			defer close(w.stalled)
			_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
		})
	} else if !w.ended() {
		w.stall.Reset(stallTimeout)
	}
	defer func() {
		if !w.stall.Stop() {
			<-w.stalled // the writer is the server's again when the handler has returned
		}
	}()
	send()
}

// ended reports whether the stream was ended here.
func (w *stallTimeoutWriter) ended() bool {
	select {
	case <-w.stalled:
		return true
	default:
		return false
	}
}

// Hijack implements http.Hijacker.
func (w *stallTimeoutWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	t := &tunnel{Conn: conn, buffered: buffered.Reader, idle: w.idle}
	t.touch()
	return t, bufio.NewReadWriter(bufio.NewReader(t), bufio.NewWriter(t)), nil
}
