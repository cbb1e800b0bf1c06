// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import "sync"

// Nodes are the nodes of the cluster that take pods, and the sandboxes that run on each
// node. A sandbox on another node (it is cordoned, not ready or gone) is handed out only
// when its pool has no others. That is advice: a sandbox that has stopped is not
// available, whatever its node.
//
// Claims do not update this index; only events do. Exported methods are called from one goroutine.
type Nodes struct {
	mu      *sync.Mutex // of the Index
	pools   *pools
	entries *entries
	// takePods is nil until nodes are listed. Until then no sandbox is avoided, and on is
	// empty.
	takePods map[string]bool
	on       map[string]map[*entry]struct{}
}

// avoids reports whether sandboxes of a node are taken last.
func (ns *Nodes) avoids(node string) bool {
	return ns.takePods != nil && node != "" && !ns.takePods[node]
}

// enter notes on which node an entry is.
func (ns *Nodes) enter(e *entry) {
	if ns.takePods == nil || e.Node == "" {
		return
	}
	if ns.on[e.Node] == nil {
		ns.on[e.Node] = map[*entry]struct{}{}
	}
	ns.on[e.Node][e] = struct{}{}
}

// leave undoes enter.
func (ns *Nodes) leave(e *entry) {
	delete(ns.on[e.Node], e)
	if len(ns.on[e.Node]) == 0 {
		delete(ns.on, e.Node)
	}
}

// moveBatch is how many sandboxes are looked at while callers wait.
const moveBatch = 256

// Replace takes in which nodes of the cluster take pods: those of takePods that are
// true. It costs a look at every node and sandbox the first time, and else at the
// sandboxes of the nodes that changed.
func (ns *Nodes) Replace(takePods map[string]bool) {
	ns.mu.Lock()
	if ns.takePods == nil {
		ns.takePods, ns.on = map[string]bool{}, map[string]map[*entry]struct{}{}
		for name, takes := range takePods {
			if takes {
				ns.takePods[name] = true
			}
		}
		for _, e := range ns.entries.byKey {
			ns.enter(e)
		}
		ns.pools.sort()
		ns.mu.Unlock()
		return
	}
	var changed []string
	for name := range ns.takePods {
		if !takePods[name] {
			changed = append(changed, name)
		}
	}
	for name, takes := range takePods {
		if takes && !ns.takePods[name] {
			changed = append(changed, name)
		}
	}
	ns.mu.Unlock()
	for _, name := range changed {
		ns.SetTakesPods(name, takePods[name])
	}
}

// SetTakesPods takes in whether a node takes pods; one that is gone takes none. It does nothing
// before Replace. It costs a step for each sandbox of the node if that has changed.
func (ns *Nodes) SetTakesPods(name string, takesPods bool) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.takePods == nil || ns.takePods[name] == takesPods {
		return
	}
	if takesPods {
		ns.takePods[name] = true
	} else {
		delete(ns.takePods, name)
	}
	looked := 0
	for e := range ns.on[name] {
		if e.state == available {
			ns.pools.move(e)
		}
		if looked++; looked%moveBatch == 0 {
			ns.mu.Unlock() // what comes or goes meanwhile finds its place
			ns.mu.Lock()
		}
	}
}

// Forget forgets all nodes, so that none is avoided, as before Replace. If there are nodes,
// it costs a step for each available sandbox.
func (ns *Nodes) Forget() {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.takePods != nil {
		ns.takePods, ns.on = nil, nil
		ns.pools.sort()
	}
}
