// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtimetest runs agent-runtimes for tests: real HTTP servers on loopback
// addresses, which behave like envd, or as badly as a test says.
//
//	fleet := runtimetest.Start(t)
//	rt := fleet.Next()              // a runtime at an address of its own, port 49983
//	fleet.At("127.70.0.9")          // the one at an address of the fleet's network
//	rt.Act(runtimetest.Answer(500), 2) // the next two calls fail
//	...
//	rt.Inits()                      // the effects of /init
//
// Each fleet has a network 127.x.0.0/16 that no other fleet on the machine has at the
// time, so tests of packages that run in parallel do not meet. A control plane of
// simulated pods can take their addresses from it: see Fleet.CIDR and Fleet.Serve.
package runtimetest
