// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"
	"maps"
	"slices"
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
	takePods map[string]bool      // those that are there
	usable   int                  // how many of them do
	since    map[string]time.Time // of those that take none, or are gone
	queue    queue.Interface      // nil until the controller has started
}

var _ nodes.Handler = (*nodeStates)(nil)

func newNodeStates(clk clock.PassiveClock, c *caches) *nodeStates {
	return &nodeStates{clock: clk, caches: c, takePods: map[string]bool{}, since: map[string]time.Time{}}
}

// NodesListed implements nodes.Handler.
func (s *nodeStates) NodesListed(takePods map[string]bool) {
	for _, name := range s.names() {
		if _, found := takePods[name]; !found {
			s.note(name, false, false)
		}
	}
	for name, takes := range takePods {
		s.note(name, takes, true)
	}
	s.forgetGone()
}

// NodeChanged implements nodes.Handler.
func (s *nodeStates) NodeChanged(name string, takesPods bool) { s.note(name, takesPods, true) }

// NodeDeleted implements nodes.Handler.
func (s *nodeStates) NodeDeleted(name string) {
	s.note(name, false, false)
	s.forgetGone()
}

func (s *nodeStates) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.takePods))
}

// note takes in whether a node takes pods, and whether it is there. When it ceases to take
// them, the sets that have sandboxes on it look at them once it has stayed so for long enough.
func (s *nodeStates) note(name string, takesPods, found bool) {
	s.mu.Lock()
	if s.takePods[name] {
		s.usable--
	}
	if delete(s.takePods, name); found {
		s.takePods[name] = takesPods
	}
	_, known := s.since[name]
	switch {
	case takesPods:
		s.usable++
		delete(s.since, name)
	case !known:
		s.since[name] = s.clock.Now()
	}
	q := s.queue
	s.mu.Unlock()
	if takesPods || known || q == nil { // the first reconciles look at what came before the queue
		return
	}
	sandboxes, err := s.caches.nodes.OnNode(name)
	if err != nil {
		log.Log.Error(err, "Failed to find the sandboxes of a node", "node", name)
		return
	}
	for _, sandbox := range sandboxes {
		q.AddAfter(reconcile.Request{NamespacedName: setOf(sandbox)}, replaceAfter)
	}
}

// forgetGone forgets the nodes that have been gone for long.
func (s *nodeStates) forgetGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	maps.DeleteFunc(s.since, func(name string, since time.Time) bool {
		_, found := s.takePods[name]
		return !found && now.Sub(since) > rememberGone
	})
}

// troubleOf returns what of sandboxes is on nodes that take no pods.
func (s *nodeStates) troubleOf(sandboxes []*v1alpha1.Sandbox) nodeTrouble {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.since) == 0 {
		return nodeTrouble{} // the common case, without a walk through the pool
	}
	t := nodeTrouble{since: map[types.UID]time.Time{}}
	for _, sandbox := range sandboxes {
		if since, found := s.since[sandbox.Status.NodeName]; found {
			t.since[sandbox.UID] = since
		}
	}
	t.most = 2*s.usable < len(s.takePods)
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
