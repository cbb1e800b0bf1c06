// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	versioned "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/flight"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

const (
	// maxTokens is how many tokens are kept, for tokenLifetime each. Failures to get one, and that there is
	// none, are kept for failureLifetime.
	maxTokens       = 10000
	tokenLifetime   = 10 * time.Minute
	failureLifetime = time.Second
	// proxyTokenTimeout limits one read of a token, as other reads for a request to a sandbox are limited: while
	// the API server is away, the request fails then.
	proxyTokenTimeout = 5 * time.Second
)

// teamClients has a client for each team.
type teamClients interface {
	For(team string) (versioned.Interface, error)
}

// tokenCache keeps the access tokens of sandboxes. The proxy needs one for each request to a private
// sandbox.
type tokenCache struct {
	teams teamClients
	kept  *cache.LRUExpireCache
	reads flight.Group[string]
}

func newTokenCache(teams teamClients) *tokenCache {
	return &tokenCache{teams: teams, kept: cache.NewLRUExpireCache(maxTokens)}
}

// tokenKey is what a token is kept by: it stays the same as long as the claim has the sandbox.
type tokenKey struct {
	claim string
	uid   types.UID
}

// tokenResult is a token, or why there is none.
type tokenResult struct {
	token string
	err   error
}

// Get returns the access token of the runtime in a sandbox, which is empty if it has none. Concurrent calls for one sandbox share a read.
func (c *tokenCache) Get(ctx context.Context, route routes.Route) (string, error) {
	key := tokenKey{route.Claim, route.UID}
	if kept, ok := c.kept.Get(key); ok {
		result := kept.(tokenResult)
		return result.token, result.err
	}
	return c.reads.Do(ctx, string(route.UID)+"/"+route.Claim, func(ctx context.Context) (string, error) { return c.read(ctx, route, key) })
}

// read reads a token from the API server, and keeps the result.
func (c *tokenCache) read(ctx context.Context, route routes.Route, key tokenKey) (string, error) {
	client, err := c.teams.For(route.Namespace)
	if err != nil {
		return "", err
	}
	reading, cancel := context.WithTimeout(ctx, proxyTokenTimeout)
	defer cancel()
	token, err := e2b.TokenOf(reading, client.AgentsV1alpha1(), route.Namespace, route.Claim, route.Name, route.UID)
	lifetime := tokenLifetime
	if err != nil {
		err = fmt.Errorf("access token of sandbox %s/%s: %w", route.Namespace, route.Name, err)
	}
	if err != nil || token == "" {
		lifetime = failureLifetime
	}
	if ctx.Err() == nil {
		c.kept.Add(key, tokenResult{token, err}, lifetime)
	}
	return token, err
}
