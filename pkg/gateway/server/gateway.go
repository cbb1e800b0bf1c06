// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server puts the gateway together: the E2B API, the proxy to sandboxes, the routes
// and the keys, behind one listener.
package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	versioned "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys/limit"
	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/identity"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// Config is what a gateway is made with.
type Config struct {
	Options
	// Client reaches the cluster as the gateway itself. Its limit (QPS and Burst) is that of
	// each team, for what it asks and for what is asked of its sandboxes.
	Client *rest.Config
	// Groups are those of the users that the gateway acts for. None leaves them to the
	// cluster, which knows the groups of a ServiceAccount.
	Groups []string
	// Keys knows the API keys.
	Keys *apikeys.Keys
	// Source learns of changes of the keys; nil where there are none by others.
	Source KeySource
}

// KeySource learns of API keys.
type KeySource interface {
	// Run does so until ctx is done.
	Run(ctx context.Context)
	// Synced reports whether all keys that were there at the start are known.
	Synced() bool
}

// Gateway serves the E2B API and the proxy to sandboxes.
type Gateway struct {
	source      KeySource
	table       *routes.Table
	forwarder   *sandboxproxy.Proxy
	handler     http.Handler
	connections *connections
}

// New returns a gateway. Nothing runs yet.
func New(c Config) (*Gateway, error) {
	registerMetrics()
	// What it reads it reads for teams, each of which has a limit for itself.
	unlimited := rest.CopyConfig(c.Client)
	unlimited.RateLimiter, unlimited.QPS = nil, -1
	own, err := versioned.NewForConfig(unlimited)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	pods, err := corev1client.NewForConfig(unlimited)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	teams := identity.New(c.Client, c.Groups...)
	limiter := limit.New(limit.Options{Rate: c.KeyRate, Burst: c.KeyBurst, Clock: clock.RealClock{}})
	table := routes.New(own, routes.Options{AllowLoopback: c.AllowLoopback, QPS: c.Client.QPS, Burst: c.Client.Burst, Pods: pods})
	forwarder := sandboxproxy.New(sandboxproxy.Options{Resolve: table.Resolve, Error: proxy.ForwardError})
	var domain string
	if len(c.Domains) > 0 {
		domain = c.Domains[0]
	}
	api := e2b.New(e2b.Options{
		Keys: c.Keys, Allow: limiter.Allow, Clients: teams.For, Limits: mapping.Limits{MaxTimeout: c.MaxTimeout}, Domain: domain,
		EnvdVersion: c.EnvdVersion, AllowKeys: c.AllowKeys, MaxInFlight: c.MaxRequests, Stopped: stopped{table}.await, Clock: clock.RealClock{},
	})
	agents := newAgent(teams, api)
	sandboxes := proxy.New(proxy.Options{Table: table, Forwarder: forwarder, Token: agents.token, Resume: agents.resume, Domains: c.Domains, MaxRequests: c.MaxForwarded})
	return &Gateway{
		source: c.Source, table: table, forwarder: forwarder, handler: counted(api, sandboxes, sandboxes.Match),
		connections: newConnections(c.MaxRequests + c.MaxForwarded),
	}, nil
}

// Run watches keys and routes until ctx is cancelled, and returns when the watches have ended.
func (g *Gateway) Run(ctx context.Context) {
	defer g.forwarder.Close()
	var watches sync.WaitGroup
	if g.source != nil {
		watches.Go(func() { g.source.Run(ctx) })
	}
	watches.Go(func() { g.table.Run(ctx) })
	watches.Wait()
}

// Ready returns nil when the gateway knows the keys and the routes.
func (g *Gateway) Ready() error {
	if g.source != nil && !g.source.Synced() {
		return errors.New("the API keys are not known yet")
	}
	if !g.table.HasSynced() {
		return errors.New("the routes are not known yet")
	}
	return nil
}

// ServeHTTP serves one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }
