// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Handler takes in what a watch of nodes tells. Its methods are called from one goroutine.
type Handler interface {
	// NodesListed takes in all nodes, by name, and whether they take pods. It is called
	// first, and again whenever the watch has broken. The map is the handler's.
	NodesListed(takePods map[string]bool)
	// NodeChanged takes in whether a node takes pods. Most changes of a node change nothing
	// of that.
	NodeChanged(name string, takesPods bool)
	// NodeDeleted takes in that a node is gone.
	NodeDeleted(name string)
}

// Watch tells a handler of the nodes of a cluster until ctx is done. It keeps none of them.
func Watch(ctx context.Context, client corev1client.NodeInterface, handler Handler) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}
	options := cache.ReflectorOptions{Name: "nodes"}
	cache.NewReflectorWithOptions(lw, &corev1.Node{}, store{handler}, options).RunWithContext(ctx)
}

// store is the store of a reflector that hands everything to a handler.
type store struct{ handler Handler }

var _ cache.TransformingStore = store{}

// Transformer implements cache.TransformingStore: while a list comes in, nothing is kept of
// each node but what TakePods looks at. A node has many kilobytes of images and addresses.
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
		s.handler.NodeChanged(node.Name, TakePods(node))
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
	takePods := make(map[string]bool, len(objects))
	for _, object := range objects {
		node, err := asNode(object)
		if err != nil {
			return err
		}
		takePods[node.Name] = TakePods(node)
	}
	s.handler.NodesListed(takePods)
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
