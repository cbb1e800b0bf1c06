// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server puts the gateway together: the E2B API, the proxy to sandboxes, the routes
// and the keys, behind one listener. dispatch.go decides between API and proxy.
package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	versioned "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/connections"
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
	// RESTConfig reaches the cluster as the gateway itself. Its limit (QPS and Burst) applies to each
	// team separately, for requests of its users and for reads of its sandboxes.
	RESTConfig *rest.Config
	// ImpersonateGroups are the groups of the users that the gateway acts for. If it is empty, the
	// cluster sets the groups of the ServiceAccount.
	ImpersonateGroups []string
	// Keys knows the API keys.
	Keys *apikeys.Keys
	// KeyWatcher watches the keys. It is nil if only this process changes keys.
	KeyWatcher KeyWatcher
}

// KeyWatcher watches API keys.
type KeyWatcher interface {
	// Run watches until ctx is done.
	Run(ctx context.Context)
	// Synced reports whether all keys that existed at the start are known.
	Synced() bool
}

// Gateway serves the E2B API and the proxy to sandboxes.
type Gateway struct {
	keyWatcher  KeyWatcher
	table       *routes.Table
	forwarder   *sandboxproxy.Proxy
	handler     http.Handler
	connections *connections.Pool
}

// New returns a gateway. Nothing runs yet.
func New(c Config) (*Gateway, error) {
	registerMetrics()
	// Requests are JSON, which an API server of an earlier version takes alone.
	c.RESTConfig = rest.CopyConfig(c.RESTConfig)
	c.RESTConfig.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	// No client-side limit: routes.Table limits the reads for each team.
	unlimited := rest.CopyConfig(c.RESTConfig)
	unlimited.RateLimiter, unlimited.QPS = nil, -1
	own, err := versioned.NewForConfig(unlimited)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	pods, err := corev1client.NewForConfig(unlimited)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	teams := identity.New(c.RESTConfig, c.ImpersonateGroups...)
	limiter := limit.New(limit.Options{Rate: c.KeyRate, Burst: c.KeyBurst, Clock: clock.RealClock{}})
	forwarded := sandboxproxy.NewConnections()
	table := routes.New(own, routes.Options{
		AllowLoopback: c.AllowLoopback, QPS: c.RESTConfig.QPS, Burst: c.RESTConfig.Burst, Pods: pods, Connections: forwarded,
	})
	forwardError := proxy.ForwardError
	if c.AllowLoopback {
		forwardError = proxy.SimulatedForwardError
	}
	forwarder := sandboxproxy.New(sandboxproxy.Options{Resolve: table.Resolve, Error: forwardError, Connections: forwarded})
	var domain string
	if len(c.Domains) > 0 {
		domain = c.Domains[0]
	}
	api := e2b.New(e2b.Options{
		Keys: c.Keys, Allow: limiter.Allow, Clients: teams.For, Limits: mapping.Limits{MaxTimeout: c.MaxTimeout}, Domain: domain,
		EnvdVersion: c.EnvdVersion, CanCreateKeys: c.CanCreateKeys, MaxAPIRequests: c.MaxAPIRequests, WaitUntilStopped: table.WaitUntilStopped, Clock: clock.RealClock{},
	})
	sandboxes := proxy.New(proxy.Options{
		Table: table, Forwarder: forwarder, Token: newTokenCache(teams).Get, Resume: trafficResumer{teams, api}.Resume,
		Domains: c.Domains, MaxForwardedRequests: c.MaxForwardedRequests,
	})
	return &Gateway{
		keyWatcher: c.KeyWatcher, table: table, forwarder: forwarder, handler: dispatch(api, sandboxes),
		connections: newConnectionPool(c.MaxAPIRequests + c.MaxForwardedRequests),
	}, nil
}

// Watch watches keys and routes until ctx is cancelled, and returns when the watches have ended.
func (g *Gateway) Watch(ctx context.Context) {
	defer g.forwarder.Close()
	var watches sync.WaitGroup
	if g.keyWatcher != nil {
		watches.Go(func() { g.keyWatcher.Run(ctx) })
	}
	watches.Go(func() { g.table.Run(ctx) })
	watches.Wait()
}

// Ready returns nil when the gateway knows the keys and the routes.
func (g *Gateway) Ready() error {
	if g.keyWatcher != nil && !g.keyWatcher.Synced() {
		return errors.New("the API keys are not known yet")
	}
	if !g.table.HasSynced() {
		return errors.New("the routes are not known yet")
	}
	return nil
}

// ServeHTTP serves one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }
