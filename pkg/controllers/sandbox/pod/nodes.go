// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sandlot-io/sandlot/pkg/controllers/index"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/nodes"
)

// The pods of a node that does not answer become not ready: the cluster sees to that. The pods of a
// node whose object is deleted stay as they were, for about a minute, until the cluster deletes them.
// So a sandbox on such a node is not ready by the node.

const nodeIndex = "sandlot.io/pod-node"

// nodeSeenWithin is how long after the start of a pod its node is not gone although it was never seen: the
// watch of nodes may be behind that of pods.
const nodeSeenWithin = time.Minute

// knownNodes are the names of the nodes of the cluster.
type knownNodes struct {
	mu    sync.Mutex
	names map[string]bool // nil if they are not known; false is one that was seen to go, and had pods then
	pods  toolscache.Indexer
	queue queue.Interface // nil until the controller has started
}

var _ nodes.Handler = (*knownNodes)(nil)

// NodesListed implements nodes.Handler.
func (k *knownNodes) NodesListed(states map[string]nodes.State) {
	listed := make(map[string]bool, len(states))
	for name := range states {
		listed[name] = true
	}
	k.replace(listed)
}

// NodeChanged implements nodes.Handler.
func (k *knownNodes) NodeChanged(name string, _ nodes.State) { k.set(name, true) }

// NodeDeleted implements nodes.Handler.
func (k *knownNodes) NodeDeleted(name string) { k.set(name, false) }

// NodesUnknown implements nodes.Handler.
func (k *knownNodes) NodesUnknown() { k.replace(nil) }

// replace takes in all names. nil is that they are not known.
func (k *knownNodes) replace(names map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if names == nil && k.names == nil {
		return
	}
	before := k.names
	k.names = names
	for _, name := range k.withPods() {
		if _, seen := before[name]; seen && names != nil && !names[name] {
			names[name] = false
		}
		if isMissing(before, name) != isMissing(names, name) {
			k.enqueue(name)
		}
	}
}

func (k *knownNodes) set(name string, exists bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.names == nil || k.names[name] == exists {
		return
	}
	k.names[name] = exists
	k.enqueue(name)
	if !exists {
		k.forgetGone()
	}
}

// forgetGone forgets the nodes that are gone and have no pods. The caller holds the lock.
func (k *knownNodes) forgetGone() {
	maps.DeleteFunc(k.names, func(name string, exists bool) bool {
		if exists {
			return false
		}
		keys, err := k.pods.IndexKeys(nodeIndex, name)
		return err == nil && len(keys) == 0
	})
}

// isGone reports whether a pod is on a node that is not there at a time. nil is no pod.
func (k *knownNodes) isGone(pod *corev1.Pod, now time.Time) bool {
	if k == nil || pod == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !isMissing(k.names, pod.Spec.NodeName) {
		return false
	}
	_, seen := k.names[pod.Spec.NodeName]
	start := pod.Status.StartTime
	return seen || start != nil && now.Sub(start.Time) > nodeSeenWithin
}

func isMissing(names map[string]bool, name string) bool {
	return names != nil && name != "" && !names[name]
}

// withPods returns the nodes that have pods. The caller holds the lock.
func (k *knownNodes) withPods() []string {
	if k.queue == nil {
		return nil // the first reconciles look at what came before the queue
	}
	return k.pods.ListIndexFuncValues(nodeIndex)
}

// enqueue queues the sandboxes of a node. The caller holds the lock.
func (k *knownNodes) enqueue(name string) {
	if k.queue == nil {
		return
	}
	keys, err := k.pods.IndexKeys(nodeIndex, name)
	if err != nil {
		log.Log.Error(err, "Failed to find the pods of a node", "node", name)
		return
	}
	for _, key := range keys {
		namespace, name, err := toolscache.SplitMetaNamespaceKey(key)
		if err == nil {
			k.queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
		}
	}
}

// register indexes the pods of a cache by their nodes. Call it before the cache starts.
func (k *knownNodes) register(ctx context.Context, c cache.Cache) (err error) {
	k.pods, err = index.Add(ctx, c, &corev1.Pod{}, nodeIndex, podNode)
	return err
}

// podNode is the function of the index.
func podNode(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	switch {
	case !ok:
		return nil, fmt.Errorf("indexing pods by node: got a %T", object)
	case pod.Spec.NodeName == "":
		return nil, nil
	}
	return []string{pod.Spec.NodeName}, nil
}

// source takes the queue of the controller, once that has started.
func (k *knownNodes) source() source.Source {
	return queue.Source(func(q queue.Interface) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.queue = q
	})
}
