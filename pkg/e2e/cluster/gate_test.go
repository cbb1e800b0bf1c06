// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// gate is a way to a server that can be blocked: what is sent meanwhile arrives
// when it is opened again, as after a partition of the network. New connections
// are accepted and get no answer.
type gate struct {
	listener net.Listener
	server   string
	running  sync.WaitGroup

	mu     sync.Mutex
	opened *sync.Cond // blocked became false
	// blocked and closed are what the connections look at before each step.
	blocked, closed bool
	conns           map[net.Conn]bool
}

func newGate(t *testing.T, server string) *gate {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: listener, server: server, conns: map[net.Conn]bool{}}
	g.opened = sync.NewCond(&g.mu)
	g.running.Go(g.serve)
	t.Cleanup(g.close)
	return g
}

// url is where the server is found through the gate.
func (g *gate) url() string { return "https://" + g.listener.Addr().String() }

// kubeconfig returns a kubeconfig file that goes through the gate, made of one
// that does not.
func (g *gate) kubeconfig(t *testing.T, path string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = g.url()
	}
	through := t.TempDir() + "/kubeconfig"
	if err := clientcmd.WriteToFile(*config, through); err != nil {
		t.Fatal(err)
	}
	return through
}

// block and open let nothing and everything through.
func (g *gate) block() { g.set(true) }
func (g *gate) open()  { g.set(false) }

func (g *gate) set(blocked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blocked = blocked
	g.opened.Broadcast()
}

func (g *gate) close() {
	_ = g.listener.Close()
	g.mu.Lock()
	g.closed, g.blocked = true, false
	for conn := range g.conns {
		_ = conn.Close()
	}
	g.opened.Broadcast()
	g.mu.Unlock()
	g.running.Wait()
}

// pass returns when the gate is open, and false if it was closed for good.
func (g *gate) pass() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.blocked {
		g.opened.Wait()
	}
	return !g.closed
}

// keep notes a connection, to be closed with the gate.
func (g *gate) keep(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = conn.Close()
		return false
	}
	g.conns[conn] = true
	return true
}

func (g *gate) drop(conn net.Conn) {
	_ = conn.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, conn)
}

func (g *gate) serve() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return // closed
		}
		if !g.keep(client) {
			return
		}
		g.running.Go(func() {
			defer g.drop(client)
			if !g.pass() {
				return
			}
			server, err := new(net.Dialer).DialContext(context.Background(), "tcp", g.server) // until close
			if err != nil || !g.keep(server) {
				return
			}
			defer g.drop(server)
			var both sync.WaitGroup
			both.Go(func() { g.copy(server, client) })
			both.Go(func() { g.copy(client, server) })
			both.Wait()
		})
	}
}

// copy carries what one side says to the other, and ends both with the first.
func (g *gate) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && g.pass() {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
