// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/nodes"
)

// rememberGone is for how long a node that is gone is remembered at least, from when it ceased to
// take pods. Its pods are deleted by the cluster a minute after it is gone.
const rememberGone = 10 * time.Minute

// nodeStates are the nodes of the cluster, and since when some of them take no pods.
type nodeStates struct {
	clock   clock.PassiveClock
	indexes *indexes
	timeout time.Duration // of unavailableNodes

	mu          sync.Mutex
	takePods    map[string]bool            // of the nodes that exist
	available   int                        // how many of them do
	unavailable map[string]unavailableNode // the nodes that take none, or are gone
	// mostUnavailableAt is when most nodes last took no pods.
	mostUnavailableAt time.Time
	queue             queue.Interface // nil until the controller has started
}

// unavailableNode is a node that takes no pods.
type unavailableNode struct {
	// since is since when it takes none: the time that the node reports, if any, because this program
	// may have started later.
	since time.Time
	// noticed is when this program noticed.
	noticed time.Time
}

var _ nodes.Handler = (*nodeStates)(nil)

func newNodeStates(clk clock.PassiveClock, x *indexes, timeout time.Duration) *nodeStates {
	return &nodeStates{clock: clk, indexes: x, timeout: timeout, takePods: map[string]bool{}, unavailable: map[string]unavailableNode{}}
}

// NodesListed implements nodes.Handler.
func (s *nodeStates) NodesListed(states map[string]nodes.State) {
	s.update(func() (unavailable []string) {
		for name := range s.takePods {
			if _, found := states[name]; !found && s.recordState(name, nodes.State{}, false) {
				unavailable = append(unavailable, name)
			}
		}
		for name, state := range states {
			if s.recordState(name, state, true) {
				unavailable = append(unavailable, name)
			}
		}
		return unavailable
	})
	s.forgetGone()
}

// NodeChanged implements nodes.Handler.
func (s *nodeStates) NodeChanged(name string, state nodes.State) {
	s.changeOne(name, state, true)
}

// NodeDeleted implements nodes.Handler.
func (s *nodeStates) NodeDeleted(name string) {
	s.changeOne(name, nodes.State{}, false)
	s.forgetGone()
}

// NodesUnknown implements nodes.Handler.
func (s *nodeStates) NodesUnknown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takePods, s.available, s.unavailable = map[string]bool{}, 0, map[string]unavailableNode{}
}

// update updates what is known of nodes. The sets that have sandboxes on the nodes that it returns,
// which take no pods any more, look at them once that has lasted for long enough.
func (s *nodeStates) update(update func() (unavailable []string)) {
	s.mu.Lock()
	before := s.mostUnavailable()
	unavailable := update()
	if before || s.mostUnavailable() {
		s.mostUnavailableAt = s.clock.Now()
	}
	q := s.queue
	s.mu.Unlock()
	if q == nil { // the first reconciles look at what came before the queue
		return
	}
	for _, name := range unavailable {
		sandboxes, err := s.indexes.nodes.OnNode(name)
		if err != nil {
			log.Log.Error(err, "Failed to find the sandboxes of a node", "node", name)
			continue
		}
		for _, sandbox := range sandboxes {
			q.AddAfter(reconcile.Request{NamespacedName: setOf(sandbox)}, s.timeout)
		}
	}
}

// changeOne changes what is known of one node.
func (s *nodeStates) changeOne(name string, state nodes.State, found bool) {
	s.update(func() []string {
		if !s.recordState(name, state, found) {
			return nil
		}
		return []string{name}
	})
}

// recordState records the state of a node, and if it exists. It reports whether the node has ceased
// to take pods. The caller holds the lock.
func (s *nodeStates) recordState(name string, state nodes.State, found bool) bool {
	if s.takePods[name] {
		s.available--
	}
	if delete(s.takePods, name); found {
		s.takePods[name] = state.TakesPods
	}
	if state.TakesPods {
		s.available++
		delete(s.unavailable, name)
		return false
	}
	if _, known := s.unavailable[name]; known {
		return false
	}
	now := s.clock.Now()
	node := unavailableNode{since: state.Since, noticed: now}
	if node.since.IsZero() || node.since.After(now) { // the node's clock may be ahead
		node.since = now
	}
	s.unavailable[name] = node
	return true
}

// mostUnavailable reports whether most nodes of the cluster take no pods. The caller holds the lock.
func (s *nodeStates) mostUnavailable() bool {
	return s.available == 0 || 2*s.available < len(s.takePods)
}

// forgetGone forgets the nodes that have been gone for long.
func (s *nodeStates) forgetGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, remember := s.clock.Now(), max(rememberGone, 2*s.timeout)
	maps.DeleteFunc(s.unavailable, func(name string, node unavailableNode) bool {
		_, found := s.takePods[name]
		return !found && now.Sub(node.noticed) > remember
	})
}

// unavailableNodesOf returns which of sandboxes are on nodes that take no pods.
func (s *nodeStates) unavailableNodesOf(sandboxes []*v1alpha1.Sandbox) unavailableNodes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unavailable) == 0 {
		return unavailableNodes{} // the common case, without a walk through the pool
	}
	found := unavailableNodes{
		bySandbox: map[types.UID]unavailableNode{}, mostUnavailable: s.mostUnavailable(), mostUnavailableAt: s.mostUnavailableAt, timeout: s.timeout,
	}
	for _, sandbox := range sandboxes {
		if node, isUnavailable := s.unavailable[sandbox.Status.NodeName]; isUnavailable {
			found.bySandbox[sandbox.UID] = node
		}
	}
	return found
}

// source takes the queue of the controller, once that has started.
func (s *nodeStates) source() source.Source {
	return queue.Source(func(q queue.Interface) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queue = q
	})
}
