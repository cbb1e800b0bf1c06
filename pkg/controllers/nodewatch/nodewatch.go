// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodewatch reports the nodes of the cluster to controllers, by one watch. Nothing waits for it:
// without the right to read nodes no sandbox is judged by its node.
package nodewatch

import (
	"context"
	"fmt"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sandlot-io/sandlot/pkg/nodes"
)

// Controller watches nodes for the controllers that judge sandboxes by them. It reconciles nothing.
type Controller struct {
	handlers nodes.Handlers
	client   corev1client.NodeInterface
}

// New returns a Controller for some handlers.
func New(handlers ...nodes.Handler) *Controller { return &Controller{handlers: handlers} }

// Name is the name of the controller in logs.
func (c *Controller) Name() string { return "node-watch" }

// Register adds the watch to a manager.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	client, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("building the client of nodes: %w", err)
	}
	c.client = client.Nodes()
	if err := mgr.Add(c); err != nil {
		return fmt.Errorf("adding the watch of nodes: %w", err)
	}
	return nil
}

// Start implements manager.Runnable.
func (c *Controller) Start(ctx context.Context) error {
	nodes.Watch(ctx, c.client, c.handlers)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. Nodes are watched whether the manager
// leads or not, so a new leader knows since when they take no pods.
func (c *Controller) NeedLeaderElection() bool { return false }
