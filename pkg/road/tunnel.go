// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package road

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// writePatience is how long a client may take nothing of an answer.
const writePatience = 5 * time.Minute

// pacedWriter watches over a client: one that takes nothing of its answer is cut off, and so
// is a connection that a handler has taken over when nothing goes through it.
type pacedWriter struct {
	http.ResponseWriter
	idle  time.Duration
	http1 bool
	paced time.Time // when the deadline was last moved
}

// Unwrap lets http.ResponseController find what the writer can do.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter. Over HTTP/2 the server sees to it itself.
func (w *pacedWriter) Write(p []byte) (int, error) {
	if now := (clock.RealClock{}).Now(); w.http1 && now.Sub(w.paced) > writePatience/16 {
		w.paced = now
		// Without deadlines, as in tests, there is no client to wait for.
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(now.Add(writePatience))
	}
	return w.ResponseWriter.Write(p)
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

// errEnded is the end of what a client sends. It is an error, so that it ends the other
// direction too: at io.EOF the proxy would wait for a sandbox that may never end.
var errEnded = errors.New("the client has closed its side")

// tunnel is a client's connection that was upgraded. It ends when nothing has gone through
// it for a while. It has no half of it to close, so the end of one direction ends both.
type tunnel struct {
	net.Conn
	early *bufio.Reader // may have what the client sent before it was answered
	idle  time.Duration
	moved atomic.Int64 // when the deadlines were last moved, in Unix nanoseconds
}

// touch moves the deadlines of both directions, not more often than is needed.
func (c *tunnel) touch() {
	now, last := clock.RealClock{}.Now(), c.moved.Load()
	if now.Sub(time.Unix(0, last)) < c.idle/16 || !c.moved.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	// A connection that is closed has no deadline, and needs none.
	_ = c.SetDeadline(now.Add(c.idle))
}

// Read implements net.Conn.
func (c *tunnel) Read(p []byte) (int, error) {
	read := c.Conn.Read
	if c.early != nil && c.early.Buffered() > 0 {
		p, read = p[:min(len(p), c.early.Buffered())], c.early.Read
	}
	n, err := read(p)
	if n > 0 {
		c.touch()
	}
	if errors.Is(err, io.EOF) {
		err = errEnded
	}
	return n, err
}

// Write implements net.Conn.
func (c *tunnel) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.touch()
	}
	return n, err
}
