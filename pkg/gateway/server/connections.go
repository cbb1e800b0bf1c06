// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"

	"github.com/sandlot-io/sandlot/pkg/share"
)

// limitedListener accepts connections as long as there are places for them, which the
// sources of connections share. Others it closes at once.
type limitedListener struct {
	net.Listener
	places *share.Places
}

// Accept implements net.Listener.
func (l limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		release, ok := l.places.Take(share.Source(conn.RemoteAddr().String()))
		if ok {
			return limitedConn{conn, release}, nil
		}
		connectionsRefused.Inc()
		_ = conn.Close() // its client is told nothing
	}
}

// limitedConn has a place until it is closed.
type limitedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite lets net/http send the end of an answer before it closes the connection, as it
// does with connections that can be closed by halves.
func (c limitedConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}
