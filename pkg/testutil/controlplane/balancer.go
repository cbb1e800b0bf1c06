// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"slices"
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
	forwarder *Forwarder
	cancel    context.CancelFunc
	running   sync.WaitGroup // the probes

	mu    sync.Mutex
	ready []string // addresses
	next  int
}

// newBalancer listens on an address until it is closed.
func newBalancer(ctx context.Context, address string, backends []backend) (*balancer, error) {
	b := &balancer{}
	var err error
	if b.forwarder, err = Forward(ctx, address, b.servers); err != nil {
		return nil, err
	}
	// It outlives the test that made it, until close.
	ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	b.running.Go(func() { b.probe(ctx, backends) })
	return b, nil
}

// close cuts all connections and returns when everything has ended.
func (b *balancer) close() {
	b.cancel()
	b.forwarder.Close()
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

// servers returns the backend whose turn it is, and then the others, in case it does not
// answer.
func (b *balancer) servers() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ready) == 0 {
		return nil
	}
	first := b.next % len(b.ready)
	b.next++
	return slices.Concat(b.ready[first:], b.ready[:first])
}
