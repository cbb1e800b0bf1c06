// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// errEnded is the end of what a client sends. It is an error, so that it ends the other
// direction too: at io.EOF the proxy would wait for a sandbox that may never end.
var errEnded = errors.New("the client has closed its side")

// tunnel is a client's connection that was upgraded. It ends when nothing has gone through
// it for a while. It has no half of it to close, so the end of one direction ends both.
type tunnel struct {
	net.Conn
	buffered *bufio.Reader // may have what the client sent before the response
	idle     time.Duration
	moved    atomic.Int64 // when the deadlines were last moved, in Unix nanoseconds
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
	if c.buffered != nil && c.buffered.Buffered() > 0 {
		p, read = p[:min(len(p), c.buffered.Buffered())], c.buffered.Read
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
