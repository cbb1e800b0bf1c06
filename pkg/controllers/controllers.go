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

	"github.com/sandlot-io/sandlot/pkg/controllers/garbagecollector"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/lifetime"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/pod"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/service"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/simulated"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandboxclaim/events"
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
	// Clock tells the time. Required.
	Clock clock.PassiveClock
	// Replenish is for the refill of SandboxSets.
	Replenish replenish.Options
	// TTLWorkers is how many expired claims are deleted at the same time.
	TTLWorkers int
	// ShutdownWorkers is how many sandboxes are deleted at the same time when their
	// shutdown time comes, and how many are paused when their pause time comes.
	ShutdownWorkers int
	// PodWorkers is how many sandboxes are run as pods at the same time, as opposed
	// to waiting for their pods, which takes no worker.
	PodWorkers int
	// Namespace is that of the installation in a cluster: it has the runtimes, and its
	// pods may reach sandboxes whose NetworkPolicy is the default.
	Namespace string
	// TemplateWorkers is how many SandboxTemplates are worked on at the same time.
	TemplateWorkers int
	// ClaimEvents is which claims get events in a cluster.
	ClaimEvents ClaimEvents
	// Standalone is set where there is no cluster, and so no kubelet and no garbage
	// collector: controllers here stand in for them.
	Standalone *Standalone
}

// ClaimEvents is which claims get events. An event is a write to the cluster's own etcd.
type ClaimEvents string

const (
	// ClaimEventsNone records none.
	ClaimEventsNone ClaimEvents = "None"
	// ClaimEventsWaiting records events on the claims that had to wait for
	// sandboxes: a burst that the pools can serve costs nothing.
	ClaimEventsWaiting ClaimEvents = "Waiting"
	// ClaimEventsAll records the completion of every claim, and its deletion after
	// its time to live, as well.
	ClaimEventsAll ClaimEvents = "All"
)

// Standalone is for the controllers that stand in for a cluster.
type Standalone struct {
	// Simulated is for sandboxes without pods.
	Simulated simulated.Options
	// GarbageWorkers is how many objects are garbage collected at the same time.
	GarbageWorkers int
}

// DefaultNamespace is where Sandlot is installed by default.
const DefaultNamespace = "sandlot-system"

// DefaultOptions returns options for one machine and for a cluster.
func DefaultOptions() Options {
	return Options{
		Clock: clock.RealClock{},
		Replenish: replenish.Options{
			Workers:           4,
			RefillConcurrency: 16,
			QuietPeriod:       100 * time.Millisecond,
		},
		TTLWorkers:      4,
		ShutdownWorkers: 8,
		PodWorkers:      32,
		TemplateWorkers: 2,
		Namespace:       DefaultNamespace,
		ClaimEvents:     ClaimEventsWaiting,
	}
}

// New returns all controllers. They read and write through c; reader asks the
// server itself, for the rare reads that must not come from a cache.
func New(c client.Client, reader client.Reader, o Options) []Controller {
	o.Replenish.Events = o.Standalone == nil // without a cluster there is no API for them
	lookup := &templates.Lookup{Cache: c, Server: reader, Cluster: o.Standalone == nil}
	o.Replenish.Lookup = lookup
	all := []Controller{
		replenish.New(c, o.Clock, o.Replenish),
		ttl.New(c, o.Clock, o.TTLWorkers, o.Standalone == nil && o.ClaimEvents == ClaimEventsAll),
		lifetime.NewShutdown(c, o.Clock, o.ShutdownWorkers),
		lifetime.NewPause(c, o.Clock, o.ShutdownWorkers),
	}
	if s := o.Standalone; s != nil {
		return append(all,
			simulated.New(c, lookup, o.Clock, s.Simulated),
			garbagecollector.New(c, reader, s.GarbageWorkers),
		)
	}
	if o.ClaimEvents != ClaimEventsNone {
		all = append(all, events.New(c, o.Clock, o.ClaimEvents == ClaimEventsAll))
	}
	return append(all,
		pod.New(pod.Options{
			Client: c, Reader: reader, Lookup: lookup, Clock: o.Clock, Workers: o.PodWorkers,
			QuietPeriod: o.Replenish.QuietPeriod, Namespace: o.Namespace,
		}),
		service.New(service.Options{Client: c, Reader: reader, Lookup: lookup, Workers: o.ShutdownWorkers}),
		networkpolicy.New(networkpolicy.Options{Client: c, Reader: reader, Namespace: o.Namespace, Workers: o.TemplateWorkers}),
	)
}
