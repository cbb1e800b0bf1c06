// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/nodes"
)

// rememberGone is for how long a node that is gone is remembered, from when it ceased to
// take pods. Its pods are deleted by the cluster a minute after it is gone.
const rememberGone = 10 * time.Minute

// nodeStates are the nodes of the cluster, and since when some of them take no pods.
type nodeStates struct {
	clock  clock.PassiveClock
	caches *caches

	mu       sync.Mutex
	takePods map[string]bool         // of the nodes that exist
	usable   int                     // how many of them do
	lost     map[string]unusableNode // the nodes that take none, or are gone
	// mostUnusableAt is when most nodes last took no pods.
	mostUnusableAt time.Time
	queue          queue.Interface // nil until the controller has started
}

// unusableNode is a node that takes no pods.
type unusableNode struct {
	// since is since when it takes none: by the node itself if it tells, because this program may
	// have started later.
	since time.Time
	// noticed is when this program noticed.
	noticed time.Time
}

var _ nodes.Handler = (*nodeStates)(nil)

func newNodeStates(clk clock.PassiveClock, c *caches) *nodeStates {
	return &nodeStates{clock: clk, caches: c, takePods: map[string]bool{}, lost: map[string]unusableNode{}}
}

// NodesListed implements nodes.Handler.
func (s *nodeStates) NodesListed(states map[string]nodes.State) {
	s.change(func() (lost []string) {
		for name := range s.takePods {
			if _, found := states[name]; !found && s.recordState(name, nodes.State{}, false) {
				lost = append(lost, name)
			}
		}
		for name, state := range states {
			if s.recordState(name, state, true) {
				lost = append(lost, name)
			}
		}
		return lost
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
	s.takePods, s.usable, s.lost = map[string]bool{}, 0, map[string]unusableNode{}
}

// change changes what is known of nodes. The sets that have sandboxes on the nodes that it returns,
// which take no pods any more, look at them once that has lasted for long enough.
func (s *nodeStates) change(change func() (lost []string)) {
	s.mu.Lock()
	before := s.mostUnusable()
	lost := change()
	if before || s.mostUnusable() {
		s.mostUnusableAt = s.clock.Now()
	}
	q := s.queue
	s.mu.Unlock()
	if q == nil { // the first reconciles look at what came before the queue
		return
	}
	for _, name := range lost {
		sandboxes, err := s.caches.nodes.OnNode(name)
		if err != nil {
			log.Log.Error(err, "Failed to find the sandboxes of a node", "node", name)
			continue
		}
		for _, sandbox := range sandboxes {
			q.AddAfter(reconcile.Request{NamespacedName: setOf(sandbox)}, replaceAfter)
		}
	}
}

// changeOne changes what is known of one node.
func (s *nodeStates) changeOne(name string, state nodes.State, found bool) {
	s.change(func() []string {
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
		s.usable--
	}
	if delete(s.takePods, name); found {
		s.takePods[name] = state.TakesPods
	}
	if state.TakesPods {
		s.usable++
		delete(s.lost, name)
		return false
	}
	if _, known := s.lost[name]; known {
		return false
	}
	now := s.clock.Now()
	lost := unusableNode{since: state.Since, noticed: now}
	if lost.since.IsZero() || lost.since.After(now) { // the node's clock may be ahead
		lost.since = now
	}
	s.lost[name] = lost
	return true
}

// mostUnusable reports whether most nodes of the cluster take no pods. The caller holds the lock.
func (s *nodeStates) mostUnusable() bool { return s.usable == 0 || 2*s.usable < len(s.takePods) }

// forgetGone forgets the nodes that have been gone for long.
func (s *nodeStates) forgetGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	maps.DeleteFunc(s.lost, func(name string, lost unusableNode) bool {
		_, found := s.takePods[name]
		return !found && now.Sub(lost.noticed) > rememberGone
	})
}

// unusableNodesOf returns which of sandboxes are on nodes that take no pods.
func (s *nodeStates) unusableNodesOf(sandboxes []*v1alpha1.Sandbox) unusableNodes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lost) == 0 {
		return unusableNodes{} // the common case, without a walk through the pool
	}
	t := unusableNodes{lost: map[types.UID]unusableNode{}, mostUnusable: s.mostUnusable(), mostUnusableAt: s.mostUnusableAt}
	for _, sandbox := range sandboxes {
		if lost, found := s.lost[sandbox.Status.NodeName]; found {
			t.lost[sandbox.UID] = lost
		}
	}
	return t
}

// watchNodes lets a manager follow the nodes of the cluster. Nothing waits for it: without
// the right to read nodes no sandbox is replaced because of its node.
func (s *nodeStates) watchNodes(mgr ctrl.Manager) error {
	client, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("building the client of nodes: %w", err)
	}
	if err := mgr.Add(&nodeWatch{client.Nodes(), s}); err != nil {
		return fmt.Errorf("adding the watch of nodes: %w", err)
	}
	return nil
}

// source takes the queue of the controller, once that has started.
func (s *nodeStates) source() source.Source {
	return source.Func(func(_ context.Context, q queue.Interface) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queue = q
		return nil
	})
}

// nodeWatch watches nodes in a manager, whether that leads or not: so a new leader knows
// since when they take no pods.
type nodeWatch struct {
	client corev1client.NodeInterface
	states *nodeStates
}

// Start implements manager.Runnable.
func (w *nodeWatch) Start(ctx context.Context) error {
	nodes.Watch(ctx, w.client, w.states)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *nodeWatch) NeedLeaderElection() bool { return false }
