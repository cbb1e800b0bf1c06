// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"hash/fnv"
	"slices"
)

// Share returns the sandboxes that a server should prefer among the servers of its
// store, as Index.Prefer takes them. Every sandbox is preferred by exactly one of
// them, each prefers about as many, and when a server comes or goes only its own
// share changes hands (rendezvous hashing). All servers must agree on the names
// in servers; self must be one of them, or it prefers everything, as it does
// when it is alone.
func Share(self string, servers []string) func(namespace, name string) bool {
	if len(servers) < 2 || !slices.Contains(servers, self) {
		return nil
	}
	return func(namespace, name string) bool {
		mine := weight(self, namespace, name)
		for _, server := range servers {
			if w := weight(server, namespace, name); w > mine || w == mine && server > self {
				return false
			}
		}
		return true
	}
}

// weight decides between servers: the one of the highest prefers the sandbox.
func weight(server, namespace, name string) uint64 {
	hash := fnv.New64a()
	for _, part := range []string{server, namespace, name} {
		_, _ = hash.Write([]byte(part)) // never fails
		_, _ = hash.Write([]byte{0})
	}
	// FNV's high bits hardly depend on the last letters, in which names of one pool
	// differ: mix them (the finalizer of splitmix64).
	w := hash.Sum64()
	w = (w ^ w>>30) * 0xbf58476d1ce4e5b9
	w = (w ^ w>>27) * 0x94d049bb133111eb
	return w ^ w>>31
}
