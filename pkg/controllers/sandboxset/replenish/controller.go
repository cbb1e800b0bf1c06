// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/index"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/nodes"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Options bound what the controller does at a time.
type Options struct {
	// Workers is how many sets are reconciled at the same time.
	Workers int
	// RefillConcurrency is how many sandboxes of one set are created or deleted at
	// the same time, while claims pause.
	RefillConcurrency int
	// QuietPeriod is how long claims must pause before a refill begins, as long as
	// half of the pool is there. It is also how long changes of sandboxes are gathered
	// before the set is counted again.
	QuietPeriod time.Duration
	// MaxPendingTimeout is for how long a sandbox may be Pending before it counts as one
	// that fails to start.
	MaxPendingTimeout time.Duration
	// NodeTimeout is for how long a node must take no pods before the unused sandboxes on it are
	// replaced.
	NodeTimeout time.Duration
	// Cluster: there is a cluster, which runs the pods, may have PodTemplates, and takes events.
	Cluster bool
	// Lookup finds the templates that sets refer to. Required.
	Lookup *templates.Lookup
}

// Controller keeps the pools of SandboxSets at their size.
type Controller struct {
	client    client.Client
	clock     clock.PassiveClock
	options   Options
	indexes   *indexes
	states    *setStates
	revisions *revisions
	holders   *holders
	demand    *demand
	writer    *writer
	watches   *watches
	nodes     *nodeStates
	report    *reporter
}

// New returns a Controller that reads and writes through c. Its parts share empty indexes; Register
// fills them, because they need the manager's cache. Tests put their own in their place.
func New(c client.Client, clk clock.PassiveClock, o Options) *Controller {
	found, states, claims, report := &indexes{}, newSetStates(o.QuietPeriod), newWaitingClaims(), &reporter{nodeTimeout: o.NodeTimeout}
	o.MaxPendingTimeout = clampPendingTimeout(o.MaxPendingTimeout)
	podTemplates := podtemplate.NewCache()
	tmpl := &holders{
		client: c, server: o.Lookup.Server, clock: clk, indexes: found, states: states, report: report, podTemplates: podTemplates,
	}
	return &Controller{
		client: c, clock: clk, options: o, indexes: found, states: states, report: report,
		revisions: &revisions{lookup: o.Lookup, states: states, podTemplates: podTemplates, holders: tmpl},
		holders:   tmpl,
		demand:    &demand{client: c, indexes: found, claims: claims},
		writer:    &writer{client: c, clock: clk, states: states, report: report, workers: o.Workers, maxWrites: o.RefillConcurrency},
		watches:   &watches{clock: clk, indexes: found, states: states, claims: claims},
		nodes:     newNodeStates(clk, found, o.NodeTimeout),
	}
}

// NodeHandler returns what has to hear of nodes.
func (c *Controller) NodeHandler() nodes.Handler { return c.nodes }

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandboxset-replenish" }

// Register adds the controller to a manager.
func (c *Controller) Register(ctx context.Context, mgr ctrl.Manager) error {
	sandboxes, err := index.NewByController(ctx, mgr.GetCache(), &v1alpha1.Sandbox{})
	if err != nil {
		return err
	}
	ownedTemplates, err := index.NewByController(ctx, mgr.GetCache(), &v1alpha1.SandboxTemplate{})
	if err != nil {
		return err
	}
	setUsers, err := index.NewByTemplate(ctx, mgr.GetCache(), &v1alpha1.SandboxSet{})
	if err != nil {
		return err
	}
	sandboxUsers, err := index.NewByTemplate(ctx, mgr.GetCache(), &v1alpha1.Sandbox{})
	if err != nil {
		return err
	}
	withBurst, err := indexBurstSets(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	onNodes, err := index.NewPooledByNode(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	recycled, err := index.NewRecycledByPool(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	*c.indexes = indexes{
		sandboxes: sandboxes, holders: ownedTemplates,
		setUsers: setUsers, sandboxUsers: sandboxUsers, burstSets: withBurst,
		recycled: recycled, nodes: onNodes,
	}
	if c.options.Cluster {
		c.report.recorder = mgr.GetEventRecorder(c.Name())
	}
	// SandboxTemplates are watched twice: those that sets refer to, and those that hold revisions.
	b := ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(queue.Options(c.options.Workers)).
		Watches(&v1alpha1.SandboxSet{}, c.watches.sets()).
		Watches(&v1alpha1.Sandbox{}, c.watches.sandboxes()).
		Watches(&v1alpha1.SandboxClaim{}, c.watches.waitingClaims()).
		Watches(&v1alpha1.SandboxTemplate{}, setUsers.Events(enqueue)).
		Watches(&v1alpha1.SandboxTemplate{}, c.watches.holders())
	if c.options.Cluster {
		b = b.Watches(&corev1.PodTemplate{}, setUsers.Events(enqueue)).WatchesRawSource(c.nodes.source())
	}
	return b.Complete(c)
}
