// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// probeInterval is how often a balancer asks its backends whether they are ready.
const probeInterval = 200 * time.Millisecond

// backend is a server behind a balancer.
type backend struct {
	address string
	ready   func(context.Context) error
}

// balancer is in front of servers on one port, as a Service is in a cluster: new
// connections go to those that are ready in turn, and connections that are there
// stay where they are.
type balancer struct {
	listener net.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup // all goroutines

	mu    sync.Mutex
	ready []string // addresses
	next  int
	conns map[net.Conn]bool // nil when closed
}

// newBalancer listens on an address until it is closed.
func newBalancer(ctx context.Context, address string, backends []backend) (*balancer, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// It goes on after the test that made it, until close.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := &balancer{listener: listener, cancel: cancel, conns: map[net.Conn]bool{}}
	b.running.Go(func() { b.probe(ctx, backends) })
	b.running.Go(func() { b.serve(ctx) })
	return b, nil
}

// close cuts all connections and returns when everything has ended.
func (b *balancer) close() {
	b.cancel()
	_ = b.listener.Close() // it serves no more either way
	b.mu.Lock()
	for conn := range b.conns {
		_ = conn.Close()
	}
	b.conns = nil
	b.mu.Unlock()
	b.running.Wait()
}

func (b *balancer) probe(ctx context.Context, backends []backend) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		states := make([]bool, len(backends))
		var probes sync.WaitGroup
		for i := range backends {
			probes.Go(func() { states[i] = backends[i].ready(ctx) == nil })
		}
		probes.Wait()
		var ready []string
		for i := range backends {
			if states[i] {
				ready = append(ready, backends[i].address)
			}
		}
		b.mu.Lock()
		b.ready = ready
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (b *balancer) serve(ctx context.Context) {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return // closed
		}
		if !b.keep(client) {
			return
		}
		b.running.Go(func() {
			defer b.drop(client)
			if server := b.dial(ctx); server != nil && b.keep(server) {
				defer b.drop(server)
				forward(client, server)
			}
		})
	}
}

// dial connects to the backend whose turn it is, or to another if it does not
// answer.
func (b *balancer) dial(ctx context.Context) net.Conn {
	b.mu.Lock()
	ready, first := b.ready, b.next
	b.next++
	b.mu.Unlock()
	for i := range ready {
		dialer := net.Dialer{Timeout: time.Second}
		if server, err := dialer.DialContext(ctx, "tcp", ready[(first+i)%len(ready)]); err == nil {
			return server
		}
	}
	return nil
}

// keep notes a connection, to be closed with the balancer, or closes it when that
// has been.
func (b *balancer) keep(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conns == nil {
		_ = conn.Close()
		return false
	}
	b.conns[conn] = true
	return true
}

func (b *balancer) drop(conn net.Conn) {
	_ = conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, conn)
}

// forward copies both ways until one side ends.
func forward(a, b net.Conn) {
	done := make(chan struct{}, 2)
	oneWay := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // a cut connection is an end like any other
		done <- struct{}{}
	}
	go oneWay(a, b)
	go oneWay(b, a)
	<-done
	_ = a.Close()
	_ = b.Close()
	<-done
}
