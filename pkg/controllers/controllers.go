// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers has the list of all controllers.
package controllers

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
	"github.com/sandlot-io/sandlot/pkg/controllers/garbagecollector"
	"github.com/sandlot-io/sandlot/pkg/controllers/nodewatch"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/census"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/lifetime"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/pod"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/runtimepolicy"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/service"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/simulated"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandboxclaim/events"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandboxclaim/expire"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandboxclaim/follow"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandboxclaim/ttl"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandboxset/replenish"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandboxtemplate/networkpolicy"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
)

// Controller is one concern of one kind.
type Controller interface {
	// Name is the name in logs and metrics.
	Name() string
	// Register adds the controller and what it needs of the cache to a manager
	// that has not started.
	Register(context.Context, ctrl.Manager) error
}

// Options configure the controllers.
type Options struct {
	// SandboxSetWorkers, SandboxClaimWorkers and SandboxWorkers are how many objects
	// of a kind each controller works on at the same time.
	SandboxSetWorkers   int
	SandboxClaimWorkers int
	SandboxWorkers      int
	// PodWorkers is how many sandboxes are run as pods at the same time, as opposed
	// to waiting for their pods.
	PodWorkers int
	// RefillConcurrency is how many sandboxes of one set are created or deleted at
	// the same time.
	RefillConcurrency int
	// QuietPeriod is how long claims on a set must pause before its refill begins. It
	// begins anyway when less than half of the pool is left, and five seconds after the
	// first of them. Negative is no time.
	QuietPeriod time.Duration
	// EnableWarmPoolEviction lets the cluster autoscaler evict the pods of unused sandboxes
	// of warm pools: sets with an update type of agent-sandbox.
	EnableWarmPoolEviction bool
	// MaxPendingTimeout is for how long a sandbox of a pool may be Pending before it counts
	// as one that fails to start.
	MaxPendingTimeout time.Duration
	// NodeTimeout is for how long a node must take no pods before the unused sandboxes of pools on
	// it are replaced.
	NodeTimeout time.Duration
	// RecycleTimeout is how long it may take to recycle a sandbox.
	RecycleTimeout time.Duration
	// ClaimEvents is which claims get events in a cluster.
	ClaimEvents ClaimEvents
	// Namespace is where Sandlot is installed. Runtimes are looked for there, and its
	// API servers and gateways may reach sandboxes whose NetworkPolicy is made for them.
	Namespace string
	// SandboxRouterNamespace is where the router of agent-sandbox runs, which may reach
	// those sandboxes too. Empty means Namespace.
	SandboxRouterNamespace string
	// ClusterDomain is the domain of Services in the cluster, which the status of a sandbox
	// with a Service names it by.
	ClusterDomain string

	// Simulate plays the parts of a cluster where there is none: sandboxes become
	// Running without pods, and what a deleted object owned is deleted.
	Simulate bool
	// SimulatedStartDelay is how long a simulated sandbox takes to become Running.
	SimulatedStartDelay time.Duration
	// SimulatedProcesses run agent-runtimes in simulated sandboxes; nil runs nothing in them.
	SimulatedProcesses simulated.Processes
}

// ClaimEvents is which claims get events. An event is a write to the cluster's own etcd.
type ClaimEvents string

const (
	// ClaimEventsNone records none.
	ClaimEventsNone ClaimEvents = "None"
	// ClaimEventsWaiting records events on the claims that had to wait for
	// sandboxes: a burst that the pools can serve costs nothing.
	ClaimEventsWaiting ClaimEvents = "Waiting"
	// ClaimEventsAll records the completion of every claim, and its expiry and its
	// deletion after its time to live, as well.
	ClaimEventsAll ClaimEvents = "All"
)

// DefaultNamespace is where Sandlot is installed by default.
const DefaultNamespace = "sandlot-system"

// DefaultOptions returns options for one machine and for a cluster.
func DefaultOptions() Options {
	return Options{
		SandboxSetWorkers:   4,
		SandboxClaimWorkers: 4,
		SandboxWorkers:      8,
		PodWorkers:          32,
		RefillConcurrency:   16,
		QuietPeriod:         100 * time.Millisecond,
		MaxPendingTimeout:   replenish.DefaultMaxPendingTimeout,
		NodeTimeout:         replenish.DefaultNodeTimeout,
		RecycleTimeout:      recycle.DefaultTimeout,
		ClaimEvents:         ClaimEventsWaiting,
		Namespace:           DefaultNamespace,
		ClusterDomain:       service.DefaultClusterDomain,

		EnableWarmPoolEviction: true,
	}
}

// templateWorkers and namespaceWorkers are how many SandboxTemplates, and how many
// namespaces with agent-runtimes, are worked on at the same time.
const (
	templateWorkers  = 2
	namespaceWorkers = 2
)

// New returns all controllers. They read and write through c; reader asks the
// server itself, for the rare reads that must not come from a cache.
func New(c client.Client, reader client.Reader, o Options) []Controller {
	clk, quiet := clock.RealClock{}, max(o.QuietPeriod, 0)
	lookup := &templates.Lookup{Cache: c, Server: reader, Cluster: !o.Simulate}
	pools := replenish.New(c, clk, replenish.Options{
		Workers: o.SandboxSetWorkers, RefillConcurrency: o.RefillConcurrency, QuietPeriod: quiet, Lookup: lookup,
		MaxPendingTimeout: o.MaxPendingTimeout, NodeTimeout: o.NodeTimeout, Cluster: !o.Simulate,
	})
	all := []Controller{
		pools,
		ttl.New(c, clk, o.SandboxClaimWorkers, !o.Simulate && o.ClaimEvents == ClaimEventsAll),
		follow.New(c, reader, clk, o.SandboxClaimWorkers),
		expire.New(c, reader, clk, o.SandboxClaimWorkers, !o.Simulate && o.ClaimEvents == ClaimEventsAll),
		census.New(),
		lifetime.NewShutdown(c, clk, o.SandboxWorkers),
		lifetime.NewPause(c, clk, o.SandboxWorkers),
		recycle.New(recycle.Options{
			Client: c, Reader: reader, Lookup: lookup, Clock: clk, Workers: o.SandboxWorkers, Timeout: o.RecycleTimeout, Events: !o.Simulate,
		}),
	}
	if o.Simulate {
		return append(all,
			simulated.New(c, lookup, clk, simulated.Options{
				Workers: o.SandboxWorkers, StartDelay: o.SimulatedStartDelay, Processes: o.SimulatedProcesses,
			}),
			simulated.NewExpiry(c, clk, o.SandboxWorkers),
			garbagecollector.New(c, reader, o.SandboxWorkers),
		)
	}
	if o.ClaimEvents != ClaimEventsNone {
		all = append(all, events.New(c, clk, o.ClaimEvents == ClaimEventsAll))
	}
	from := callers.Callers{Namespace: o.Namespace, RouterNamespace: o.SandboxRouterNamespace}
	pods := pod.New(pod.Options{
		Client: c, Reader: reader, Lookup: lookup, Clock: clk, Workers: o.PodWorkers, QuietPeriod: quiet, Namespace: o.Namespace,
		KeepUnused: !o.EnableWarmPoolEviction,
	})
	return append(all,
		pods,
		nodewatch.New(pools.NodeHandler(), pods.NodeHandler()),
		service.New(service.Options{
			Client: c, Reader: reader, Clock: clk, Lookup: lookup, Workers: o.SandboxWorkers, ClusterDomain: o.ClusterDomain,
		}),
		networkpolicy.New(networkpolicy.Options{Client: c, Reader: reader, Clock: clk, Callers: from, Workers: templateWorkers}),
		runtimepolicy.New(runtimepolicy.Options{
			Client: c, Reader: reader, Lookup: lookup, Clock: clk, Callers: from, Workers: namespaceWorkers,
		}),
	)
}
