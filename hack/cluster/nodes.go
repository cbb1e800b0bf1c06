// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/realnode"
)

// realNodes are those that run.
type realNodes []*realnode.Node

// startNodes starts the real nodes. Those of the last time that are not among them are no longer
// nodes of the cluster.
func startNodes(ctx context.Context, o *options, plane *controlplane.ControlPlane) (realNodes, error) {
	var names []string
	for i := range o.realNodes {
		names = append(names, fmt.Sprintf("real-%d", i))
	}
	if err := forgetNodes(ctx, plane, names); err != nil || len(names) == 0 {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.dir, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	images, err := realnode.MakeImages(ctx, dir, filepath.Dir(self))
	if err != nil {
		return nil, err
	}
	var nodes realNodes
	for _, name := range names {
		node, err := realnode.Start(ctx, plane, realnode.Options{Name: name, Images: []string{images}, Tainted: o.plane.Nodes > 0})
		if err != nil {
			return nil, errors.Join(err, nodes.stop())
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

func (n realNodes) stop() error {
	var errs []error
	for _, node := range n {
		errs = append(errs, node.Stop())
	}
	return errors.Join(errs...)
}

// forgetNodes deletes the real nodes that have no such name.
func forgetNodes(ctx context.Context, plane *controlplane.ControlPlane, names []string) error {
	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		return err
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: realnode.Label})
	if err != nil {
		return err
	}
	kept := sets.New(names...)
	for i := range list.Items {
		if name := list.Items[i].Name; !kept.Has(name) {
			if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// next is what to try in the cluster.
func (s *state) next() string {
	if s.RealNodes == 0 {
		return `  bin/kubectl apply -f artifacts/example/
  bin/kubectl get sandboxsets,sandboxes,pods
  bin/kubectl create -f artifacts/example/claims/one.yaml
  bin/kubectl get sandboxclaims
`
	}
	return `  bin/kubectl apply -f hack/cluster/shell.yaml
  bin/kubectl wait --for=condition=Available sandboxsets/shell
  bin/kubectl get sandboxes,pods -o wide
  PATH="$PWD/bin:$PATH" bin/kubectl sandlot claim shell --rm --exec -- sh
`
}
