// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/gateway/flight"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// RuntimePort is the port of the runtime in a sandbox, which checks access tokens itself.
const RuntimePort = v1alpha1.DefaultRuntimePort

// Defaults of Options. A request takes up to 100 KiB, if its client sends a body that the sandbox does not
// read. So all of them take up to 1 GiB.
const (
	DefaultMaxForwardedRequests = 10_000
	DefaultMaxResumes           = 64
	DefaultResumeTimeout        = time.Minute
)

// minChecks is how many tokens are checked at a time, if that is more than a fifth of MaxForwardedRequests.
const minChecks = 64

// Table knows the sandboxes. Errors are those of routes.Table.
type Table interface {
	// Find returns what is known of an id.
	Find(ctx context.Context, id string) (routes.Route, error)
	// Resolve returns the address of a sandbox, read from the cluster.
	Resolve(ctx context.Context, target sandboxproxy.Target) (sandboxproxy.Address, error)
}

// Forwarder forwards requests to the sandboxes. sandboxproxy.Proxy is one.
type Forwarder interface {
	Forward(w http.ResponseWriter, r *http.Request, target sandboxproxy.Target)
}

var _ Forwarder = &sandboxproxy.Proxy{}

// Options are what a Proxy is made with.
type Options struct {
	// Table knows the sandboxes.
	Table Table
	// Forwarder is a sandboxproxy.Proxy whose option Error is ForwardError, or SimulatedForwardError.
	Forwarder Forwarder
	// Token returns the access token of the runtime of a sandbox. It is called for each request to a
	// private sandbox that has a token, so it should cache. It is empty if there is none.
	Token func(ctx context.Context, route routes.Route) (string, error)
	// Resume resumes a paused sandbox, and returns when it runs or ctx ends.
	Resume func(ctx context.Context, route routes.Route) error
	// Domains are those below which hosts are named <port>-<id>. None means any.
	Domains []string

	// MaxForwardedRequests is how many requests are forwarded at a time, WebSockets included. Zero is
	// DefaultMaxForwardedRequests.
	MaxForwardedRequests int
	// PerSandbox is how many of those may be to one sandbox. Zero is a fifth of MaxForwardedRequests. A team
	// has at most what it leaves free for others. Requests without the token of a private sandbox count
	// apart from others, as those of another team and sandbox. All teams share a fifth of
	// MaxForwardedRequests for these, of which one has half at most.
	PerSandbox int
	// MaxResumes is how many sandboxes are resumed at a time, and ResumeTimeout how long a
	// resume may take. Zero is the default.
	MaxResumes    int
	ResumeTimeout time.Duration
	// Clock is the time; nil is that of the machine.
	Clock clock.Clock
}

// Proxy serves the requests that Match.
type Proxy struct {
	options Options
	teams   *fairness.Slots
	// untrusted are slots of requests without a token, which take one of teams as well.
	untrusted *fairness.Slots
	sandboxes *fairness.Slots
	resumes   *fairness.Slots
	// checks are the slots of requests whose token is checked.
	checks *fairness.Sources
	waking flight.Group[routes.Route]
}

// New returns a Proxy.
func New(options Options) *Proxy {
	options.MaxForwardedRequests = cmp.Or(options.MaxForwardedRequests, DefaultMaxForwardedRequests)
	options.PerSandbox = cmp.Or(options.PerSandbox, max(options.MaxForwardedRequests/5, 1))
	options.MaxResumes = cmp.Or(options.MaxResumes, DefaultMaxResumes)
	options.ResumeTimeout = cmp.Or(options.ResumeTimeout, DefaultResumeTimeout)
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	domains := make([]string, 0, len(options.Domains))
	for _, domain := range options.Domains {
		domains = append(domains, canonical(domain))
	}
	options.Domains = domains
	return &Proxy{
		options:   options,
		teams:     fairness.NewSlots(options.MaxForwardedRequests, options.MaxForwardedRequests),
		untrusted: fairness.NewSlots(max(options.MaxForwardedRequests/5, 1), max(options.MaxForwardedRequests/10, 1)),
		// The total is large enough that only PerSandbox limits: those of all teams are limited above.
		sandboxes: fairness.NewSlots(3*options.MaxForwardedRequests, options.PerSandbox),
		resumes:   fairness.NewSlots(options.MaxResumes, options.MaxResumes),
		checks:    fairness.NewSources(max(options.MaxForwardedRequests/5, minChecks), options.MaxForwardedRequests),
	}
}
