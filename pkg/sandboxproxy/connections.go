// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Address is where a sandbox is, and the state that it had when that was read.
type Address struct {
	netip.Addr
	State State
	// RuntimeProbePath is not empty where an agent-runtime listens that has an access token: it
	// serves this path only with the token. A connection on which nothing was sent yet is used only after
	// the runtime has refused a request without the token.
	RuntimeProbePath string
}

// AddressOf returns the address at which connections to a port of a sandbox are made.
func AddressOf(sandbox *v1alpha1.Sandbox, at netip.Addr, port int) Address {
	return Address{Addr: at, State: StateOf(sandbox), RuntimeProbePath: v1alpha1.RuntimeProbePath(sandbox, port)}
}

// State is what open connections to a sandbox depend on.
type State struct {
	// Version is the resourceVersion as a number.
	Version uint64
	// Holder is the UID of the claim that holds the sandbox.
	Holder string
	// Pod is the UID of the pod.
	Pod types.UID
	// Stopped is true for a sandbox that is paused or is to be, that has ended, is being deleted, or goes
	// back to its pool.
	Stopped bool
	// ClosedPorts are ports to which nothing may be forwarded.
	ClosedPorts []int
}

// StateOf returns the state of a sandbox.
func StateOf(sandbox *v1alpha1.Sandbox) State {
	return State{
		Version: parseVersion(sandbox.ResourceVersion), Holder: sandbox.Annotations[v1alpha1.AnnotationOwner],
		Pod: sandbox.Status.PodInfo.PodUID, Stopped: isStopped(sandbox), ClosedPorts: v1alpha1.ClosedRuntimePorts(sandbox),
	}
}

// isStopped reports whether the connections to a sandbox end. Those to a sandbox that is only not ready stay open.
func isStopped(sandbox *v1alpha1.Sandbox) bool {
	if sandbox.DeletionTimestamp != nil || sandbox.Spec.Paused {
		return true
	}
	switch sandbox.Status.Phase {
	case v1alpha1.SandboxPending, v1alpha1.SandboxPaused, v1alpha1.SandboxRecycling,
		v1alpha1.SandboxSucceeded, v1alpha1.SandboxFailed, v1alpha1.SandboxTerminating:
		return true
	}
	return false
}

// parseVersion returns a resourceVersion as a number. 0 is older than anything.
func parseVersion(resourceVersion string) uint64 {
	version, _ := strconv.ParseUint(resourceVersion, 10, 64)
	return version
}

// Connections are the open connections of a Proxy to sandboxes, kept ones included. They are closed when
// their sandbox is paused, ends, goes to another claim or gets another pod, or when their port is closed. A
// watch of the sandboxes reports all changes, in their order. The cost of a change does not depend on the
// number of connections to other sandboxes.
type Connections struct {
	// users is the sum of those of all sandboxes. Without any, a change costs nothing.
	users atomic.Int64

	mu        sync.Mutex
	sandboxes map[types.UID]*connected
}

// connected is a sandbox to which there are connections, or are about to be.
type connected struct {
	// users is how many connections there are, and calls of enter without leave.
	users int
	open  map[*sandboxConn]struct{}
	// latest is the latest state that the watch has reported since there are users.
	latest State
}

// NewConnections returns no connections.
func NewConnections() *Connections {
	return &Connections{sandboxes: map[types.UID]*connected{}}
}

// SandboxChanged reports a new or changed sandbox.
func (c *Connections) SandboxChanged(sandbox *v1alpha1.Sandbox) {
	if c.users.Load() > 0 {
		c.report(sandbox.UID, func() State { return StateOf(sandbox) })
	}
}

// SandboxDeleted reports that a sandbox is gone, or that the watch is no longer about it.
func (c *Connections) SandboxDeleted(sandbox *v1alpha1.Sandbox) {
	c.report(sandbox.UID, func() State { return State{Version: parseVersion(sandbox.ResourceVersion), Stopped: true} })
}

// SandboxesListed reports all sandboxes as of a resourceVersion. Others are gone.
func (c *Connections) SandboxesListed(all []*v1alpha1.Sandbox, resourceVersion uint64) {
	if c.users.Load() == 0 {
		return
	}
	listed := make(map[types.UID]struct{}, len(all))
	for _, sandbox := range all {
		listed[sandbox.UID] = struct{}{}
		c.SandboxChanged(sandbox)
	}
	c.Retain(resourceVersion, func(uid types.UID) bool {
		_, ok := listed[uid]
		return ok
	})
}

// Retain reports that all sandboxes for which exists returns false are gone as of a resourceVersion.
func (c *Connections) Retain(resourceVersion uint64, exists func(uid types.UID) bool) {
	c.mu.Lock()
	uids := make([]types.UID, 0, len(c.sandboxes))
	for uid := range c.sandboxes {
		uids = append(uids, uid)
	}
	c.mu.Unlock()
	for _, uid := range uids {
		if !exists(uid) {
			c.report(uid, func() State { return State{Version: resourceVersion, Stopped: true} })
		}
	}
}

// report takes in a state of a sandbox, and closes the connections that end by it.
func (c *Connections) report(uid types.UID, state func() State) {
	for _, conn := range c.ending(uid, state) {
		conn.stop()
	}
}

// ending takes in a state of a sandbox, and returns the connections that end by it.
func (c *Connections) ending(uid types.UID, state func() State) (ending []*sandboxConn) {
	c.mu.Lock()
	isConnected := c.sandboxes[uid] != nil
	c.mu.Unlock()
	if !isConnected {
		return nil
	}
	latest := state() // which takes time for a large sandbox, and so is not under the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	its := c.sandboxes[uid]
	if its == nil || latest.Version < its.latest.Version { // an older version is of a watch that has ended
		return nil
	}
	its.latest = latest
	for conn := range its.open {
		if conn.endsBy(latest) {
			ending = append(ending, conn)
		}
	}
	return ending
}

// enter is called before the state of a sandbox is read for a new connection. From then on, reported changes
// count for it. leave is called when the connection is added or has failed.
func (c *Connections) enter(uid types.UID) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	its := c.sandboxes[uid]
	if its == nil {
		its = &connected{open: map[*sandboxConn]struct{}{}}
		c.sandboxes[uid] = its
	}
	c.join(its)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leave(uid, its)
	}
}

// join adds a user of a sandbox. The lock is held.
func (c *Connections) join(its *connected) {
	c.users.Add(1)
	its.users++
}

// leave removes a user of a sandbox. The lock is held.
func (c *Connections) leave(uid types.UID, its *connected) {
	c.users.Add(-1)
	if its.users--; its.users == 0 {
		delete(c.sandboxes, uid)
	}
}

// add adds a connection to a sandbox that was entered. It returns false if the sandbox has changed since its
// state was read, so that the connection must not be used.
func (c *Connections) add(conn *sandboxConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	its := c.sandboxes[conn.target.UID]
	if conn.endsBy(its.latest) {
		return false
	}
	c.join(its)
	its.open[conn] = struct{}{}
	return true
}

// remove removes a connection that is closed.
func (c *Connections) remove(conn *sandboxConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	its := c.sandboxes[conn.target.UID]
	if its == nil {
		return
	}
	if _, ok := its.open[conn]; ok {
		delete(its.open, conn)
		c.leave(conn.target.UID, its)
	}
}

// endsBy reports whether a connection ends by a state of its sandbox.
func (c *sandboxConn) endsBy(latest State) bool {
	return latest.Version > c.state.Version &&
		(latest.Stopped || latest.Holder != c.state.Holder || latest.Pod != c.state.Pod || slices.Contains(latest.ClosedPorts, c.target.Port))
}
