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

// writePatience is how long a client may take nothing of an answer, and a sandbox nothing of
// a request.
const writePatience = 5 * time.Minute

// pacedWriter watches over a client: one that takes nothing of its answer is cut off, and so
// is a connection that a handler has taken over when nothing goes through it.
type pacedWriter struct {
	http.ResponseWriter
	idle  time.Duration
	http1 bool
	paced time.Time // when the deadline of HTTP/1 was last moved

	// stall ends the stream of HTTP/2 while something is written to it, and closes stalled.
	stall   *time.Timer
	stalled chan struct{}
}

// Unwrap lets http.ResponseController find what the writer can do.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *pacedWriter) Write(p []byte) (n int, err error) {
	w.pace(func() { n, err = w.ResponseWriter.Write(p) })
	return n, err
}

// WriteHeader implements http.ResponseWriter. An answer may have any number of headers of
// class 1xx before its own.
func (w *pacedWriter) WriteHeader(code int) {
	w.pace(func() { w.ResponseWriter.WriteHeader(code) })
}

// FlushError lets http.ResponseController send what was written.
func (w *pacedWriter) FlushError() (err error) {
	w.pace(func() { err = http.NewResponseController(w.ResponseWriter).Flush() })
	return err
}

// pace sends something, for as long as the client has patience. Without deadlines, as in
// tests, there is no client to wait for.
func (w *pacedWriter) pace(send func()) {
	if w.http1 {
		if now := (clock.RealClock{}).Now(); now.Sub(w.paced) > writePatience/16 {
			w.paced = now
			_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(now.Add(writePatience))
		}
		send()
		return
	}
	// A deadline of HTTP/2 ends the stream when it comes, also of a sandbox that is silent
	// for longer than that. So it is there only while something is sent.
	if w.stall == nil {
		w.stalled = make(chan struct{})
		w.stall = time.AfterFunc(writePatience, func() {
			defer close(w.stalled)
			_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
		})
	} else if !w.ended() {
		w.stall.Reset(writePatience)
	}
	defer func() {
		if !w.stall.Stop() {
			<-w.stalled // the writer is the server's again when the handler has returned
		}
	}()
	send()
}

// ended reports whether the stream was ended here.
func (w *pacedWriter) ended() bool {
	select {
	case <-w.stalled:
		return true
	default:
		return false
	}
}

// Hijack implements http.Hijacker.
func (w *pacedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	t := &tunnel{Conn: conn, early: buffered.Reader, idle: w.idle}
	t.touch()
	return t, bufio.NewReadWriter(bufio.NewReader(t), bufio.NewWriter(t)), nil
}
