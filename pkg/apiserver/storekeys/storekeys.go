// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storekeys names what the API server keeps in etcd: the resources whose objects are
// stored, and the keys beside them, each below the prefix of its storage.
package storekeys

// Resources returns those whose objects are stored.
func Resources() []string {
	return []string{"sandboxclaims", "sandboxes", "sandboxsets", "sandboxtemplates"}
}

// RuntimeKeyResource is the resource as which RuntimeKey is encrypted.
const RuntimeKeyResource = "sandboxclaims"

const (
	// Servers are the API servers that run, a key each. A key has a lease.
	Servers = "sandlot-servers"
	// Guards are the keys by which transactions are settled that update no object. A key
	// has a lease.
	Guards = "sandlot-guards"
	// RuntimeKey has the versions of the key from which the tokens of agent-runtimes are
	// derived (package agentruntime). It is encrypted as RuntimeKeyResource is.
	RuntimeKey = "sandlot-runtime-key"
	// Encryption has the name of the key that all values are encrypted with, or what comes
	// before that is known (package reencryption). It is absent where it is not known.
	Encryption = "sandlot-encryption"
)
