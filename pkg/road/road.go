// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package road

import (
	"context"
	"errors"
	"net/http"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
)

// ErrNotRunning means that a sandbox has no address at the moment: it is paused, starting,
// failed, gone, or another one has its name.
var ErrNotRunning = errors.New("sandbox is not running")

// Target is one port of one sandbox.
type Target struct {
	// Namespace, Name and UID are the sandbox's.
	Namespace, Name string
	UID             types.UID
	// Claim is the name of the claim that holds the sandbox, where that matters: one that
	// went back to its pool keeps its UID. Connections of two claims are kept apart.
	Claim string
	// Port is from 1 to 65535.
	Port int
}

// Resolve returns the address that a sandbox has now. It is asked before each new
// connection, and has to know of every change that is over: an address may belong to
// another sandbox by now. Errors are ErrNotRunning, or why the truth could not be found out.
type Resolve func(ctx context.Context, target Target) (netip.Addr, error)

// Options are what a Road is made with.
type Options struct {
	// Resolve finds the addresses.
	Resolve Resolve
	// Error answers a request that could not be forwarded or whose answer did not come.
	// err wraps ErrNotRunning, or is an error of the connection.
	Error func(w http.ResponseWriter, r *http.Request, err error)
}

// Road forwards requests to sandboxes: HTTP/1.1, HTTP/2 and WebSockets, in constant memory
// however long they are. It follows no redirect and asks no proxy of the environment.
// Connections are kept for each sandbox by its UID, so they never lead to another one.
type Road struct {
	options Options
}

// New returns a Road. Close ends it.
func New(options Options) *Road { return &Road{options: options} }

// Forward sends a request to a target as it is, its path and its Host too, but for headers
// that belong to one connection, and copies the answer. It returns when both are through.
func (r *Road) Forward(w http.ResponseWriter, req *http.Request, target Target) {}

// Close ends all idle connections.
func (r *Road) Close() {}
