// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"net"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// sandboxConn is a connection to a sandbox. It fails if the sandbox reads nothing of what is sent to it
// for stallTimeout, and when it is stopped.
type sandboxConn struct {
	net.Conn
	connections *Connections
	target      Target
	// state is that of the sandbox when its address was read.
	state   State
	stopped atomic.Bool
	paced   time.Time // when the deadline was last moved; writes come one after the other
}

// Read implements net.Conn.
func (c *sandboxConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.causeOf(err)
}

// Write implements net.Conn.
func (c *sandboxConn) Write(p []byte) (int, error) {
	if now := (clock.RealClock{}).Now(); now.Sub(c.paced) > stallTimeout/16 {
		c.paced = now
		if err := c.SetWriteDeadline(now.Add(stallTimeout)); err != nil {
			return 0, c.causeOf(err)
		}
	}
	n, err := c.Conn.Write(p)
	return n, c.causeOf(err)
}

// Close implements net.Conn.
func (c *sandboxConn) Close() error {
	c.connections.remove(c)
	return c.Conn.Close()
}

// stop closes the connection because of a change of its sandbox. All requests over it end.
func (c *sandboxConn) stop() {
	c.stopped.Store(true)
	_ = c.Close() // the transport may have closed it
}

// causeOf returns ErrStopped for the errors of a connection that was stopped.
func (c *sandboxConn) causeOf(err error) error {
	if err != nil && c.stopped.Load() {
		return ErrStopped
	}
	return err
}
