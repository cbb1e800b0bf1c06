// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
)

// State is the state of a node.
type State struct {
	// TakesPods reports whether the node takes pods.
	TakesPods bool
	// Since is the time since which it takes none, by the clock of the cluster; zero if the object
	// does not have it.
	Since time.Time
}

// Handler handles the events of a watch of nodes. Its methods are called from one goroutine.
type Handler interface {
	// NodesListed is called with all nodes, by name: first, and again when the watch has broken.
	// The handler may keep the map.
	NodesListed(map[string]State)
	// NodeChanged is called when a node is new or has changed. Most changes do not change its
	// state.
	NodeChanged(name string, state State)
	// NodeDeleted is called when a node is gone.
	NodeDeleted(name string)
	// NodesUnknown is called when the client has no right to read nodes.
	NodesUnknown()
}

// Handlers are handlers that hear of all events, one after the other.
type Handlers []Handler

var _ Handler = Handlers(nil)

// NodesListed implements Handler.
func (hs Handlers) NodesListed(states map[string]State) {
	for _, h := range hs {
		h.NodesListed(maps.Clone(states)) // which a handler may keep
	}
}

// NodeChanged implements Handler.
func (hs Handlers) NodeChanged(name string, state State) {
	for _, h := range hs {
		h.NodeChanged(name, state)
	}
}

// NodeDeleted implements Handler.
func (hs Handlers) NodeDeleted(name string) {
	for _, h := range hs {
		h.NodeDeleted(name)
	}
}

// NodesUnknown implements Handler.
func (hs Handlers) NodesUnknown() {
	for _, h := range hs {
		h.NodesUnknown()
	}
}

// Watch watches the nodes of a cluster for a handler until ctx is done. It keeps none of them.
func Watch(ctx context.Context, client corev1client.NodeInterface, handler Handler) {
	check := func(err error) error {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			handler.NodesUnknown()
		}
		return err
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, o)
			return list, check(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events, err := client.Watch(ctx, o)
			return events, check(err)
		},
	}
	options := cache.ReflectorOptions{Name: "nodes"}
	cache.NewReflectorWithOptions(lw, &corev1.Node{}, store{handler}, options).RunWithContext(ctx)
}

// store is the store of a reflector that hands everything to a handler.
type store struct{ handler Handler }

var _ cache.TransformingStore = store{}

// Transformer implements cache.TransformingStore: while a list comes in, nothing is kept of
// each node but what StateOf looks at. A node has many kilobytes of images and addresses.
func (s store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		node, err := asNode(object)
		if err != nil {
			return nil, err
		}
		trimmed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, ResourceVersion: node.ResourceVersion, DeletionTimestamp: node.DeletionTimestamp,
		}}
		trimmed.Spec.Unschedulable, trimmed.Spec.Taints = node.Spec.Unschedulable, node.Spec.Taints
		trimmed.Status.Conditions = node.Status.Conditions
		return trimmed, nil
	}
}

// Add implements cache.ReflectorStore.
func (s store) Add(object any) error { return s.Update(object) }

// Update implements cache.ReflectorStore.
func (s store) Update(object any) error {
	node, err := asNode(object)
	if err == nil {
		s.handler.NodeChanged(node.Name, StateOf(node))
	}
	return err
}

// Delete implements cache.ReflectorStore.
func (s store) Delete(object any) error {
	node, err := asNode(object)
	if err == nil {
		s.handler.NodeDeleted(node.Name)
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (s store) Replace(objects []any, _ string) error {
	states := make(map[string]State, len(objects))
	for _, object := range objects {
		node, err := asNode(object)
		if err != nil {
			return err
		}
		states[node.Name] = StateOf(node)
	}
	s.handler.NodesListed(states)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s store) Resync() error { return nil }

func asNode(object any) (*corev1.Node, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("got a %T from the watch of nodes", object)
	}
	return node, nil
}
