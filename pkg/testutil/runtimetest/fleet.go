// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimetest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
)

// Port is where all runtimes of a fleet listen. It is the default port of the contract,
// so sandboxes need no annotation to be found.
const Port = 49983

// Networks that fleets choose from: 127.<block>.0.0/16. Those below are others' to use.
const (
	firstBlock = 64
	blocks     = 160
	// holdPort is listened on at the first address of a network by the test that has it.
	holdPort = 49982
)

// Fleet is runtimes of one test, on a network of their own.
type Fleet struct {
	t     testing.TB
	block int
	tls   *tls.Config

	mu       sync.Mutex
	runtimes map[string]*Runtime
	script   Script
	next     int
}

// Start returns a fleet of plain HTTP runtimes, which ends with the test.
func Start(t testing.TB) *Fleet { return start(t, nil) }

func start(t testing.TB, config *tls.Config) *Fleet {
	t.Helper()
	for block := firstBlock; block < firstBlock+blocks; block++ {
		hold, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address(fmt.Sprintf("127.%d.0.1", block), holdPort))
		if err != nil {
			continue // another fleet has it
		}
		fleet := &Fleet{t: t, block: block, tls: config, runtimes: map[string]*Runtime{}}
		t.Cleanup(func() {
			fleet.close()
			_ = hold.Close()
		})
		return fleet
	}
	t.Fatal("runtimetest: all loopback networks are taken")
	return nil
}

// CIDR is the network of the fleet, as the pod network of a control plane.
func (f *Fleet) CIDR() string { return fmt.Sprintf("127.%d.0.1/16", f.block) }

// Next returns a runtime at an address that was not given out before.
func (f *Fleet) Next() *Runtime {
	f.t.Helper()
	f.mu.Lock()
	f.next++
	ip := fmt.Sprintf("127.%d.%d.%d", f.block, 200+f.next/250, 1+f.next%250) // far from those that Serve opens
	f.mu.Unlock()
	return f.At(ip)
}

// Serve starts runtimes at the first addresses of the network, in the order in which a
// simulated cluster gives them to pods.
func (f *Fleet) Serve(count int) {
	f.t.Helper()
	ip := netip.AddrFrom4([4]byte{127, byte(f.block), 0, 1})
	for range count {
		f.At(ip.String())
		ip = ip.Next()
	}
}

// At returns the runtime at an address of the fleet's network, and starts it if need be.
func (f *Fleet) At(ip string) *Runtime {
	f.t.Helper()
	rt, err := f.Listen(ip)
	if err != nil {
		f.t.Fatal(err)
	}
	return rt
}

// Listen is At for any loopback address, and for goroutines that are not the test's own.
func (f *Fleet) Listen(ip string) (*Runtime, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if rt := f.runtimes[ip]; rt != nil {
		return rt, nil
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address(ip, Port))
	if err != nil {
		return nil, fmt.Errorf("runtimetest: %w", err)
	}
	rt := newRuntime(ip, listener, f.tls, func() Script {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.script
	})
	f.runtimes[ip] = rt
	return rt, nil
}

// Drop ends the runtime at an address, if there is one. The next one there is a new one.
func (f *Fleet) Drop(ip string) {
	f.mu.Lock()
	rt := f.runtimes[ip]
	delete(f.runtimes, ip)
	f.mu.Unlock()
	if rt != nil {
		rt.Stop()
	}
}

// Script lets all runtimes of the fleet act as a script says, except for those that have
// something of their own to do: see Runtime.Act. nil is envd's way.
func (f *Fleet) Script(script Script) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = script
}

// Runtimes returns all runtimes that were started.
func (f *Fleet) Runtimes() []*Runtime {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*Runtime
	for _, rt := range f.runtimes {
		all = append(all, rt)
	}
	return all
}

func (f *Fleet) close() {
	for _, rt := range f.Runtimes() {
		rt.Stop()
	}
}

func address(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }
