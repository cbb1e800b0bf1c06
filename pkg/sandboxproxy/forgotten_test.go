// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"net"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestConnectionsAreForgotten: nothing is kept of sandboxes without connections, in whatever order connections
// are closed.
func TestConnectionsAreForgotten(t *testing.T) {
	connections := NewConnections()
	for _, uid := range []types.UID{"a", "b"} {
		leave := connections.enter(uid)
		for range 3 {
			near, far := net.Pipe()
			defer far.Close()
			conn := &sandboxConn{Conn: near, connections: connections, target: Target{UID: uid}}
			if !connections.add(conn) {
				t.Fatal("the connection was not added")
			}
			if uid == "b" {
				_ = conn.Close()
				_ = conn.Close() // as a transport may
			}
		}
		leave()
	}
	if len(connections.sandboxes) != 1 || connections.users.Load() != 3 {
		t.Errorf("%d sandboxes with %d connections, want 1 with 3", len(connections.sandboxes), connections.users.Load())
	}
	connections.Retain(1, func(types.UID) bool { return false })
	if len(connections.sandboxes) != 0 || connections.users.Load() != 0 {
		t.Errorf("%v is left, with %d connections", connections.sandboxes, connections.users.Load())
	}
}
