// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity has the clients with which the gateway of the E2B API acts for teams.
// Each impersonates the ServiceAccount of its team, so that the rules of the cluster for
// that user (RBAC, quotas, admission, audit) hold for what the team does.
package identity

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
)

// maxClients bounds the clients that are kept. One that was forgotten is made again: they
// have no connections of their own.
const maxClients = 1024

// Identity has an impersonating client for each team.
type Identity struct {
	config *rest.Config
	groups []string
	shared func() (http.RoundTripper, error)
	// clients are the clients that exist, by team.
	clients *lru.Cache
}

// New returns the clients for a server. They share the connections of one transport and have
// the credentials of config. Each has the limit of config (QPS and Burst) for itself: a limit
// for all teams together would let one hold up the others.
//
// groups are the groups of the impersonated users. Without groups, kube-apiserver adds those of a
// ServiceAccount.
func New(config *rest.Config, groups ...string) *Identity {
	own := rest.CopyConfig(config)
	own.RateLimiter = nil
	// So that the response to a create also returns access tokens (client.Options.AccessTokens).
	own.Wrap(client.ReadAccessTokens)
	return &Identity{
		config: own, groups: groups, clients: lru.New(maxClients),
		shared: sync.OnceValues(func() (http.RoundTripper, error) { return rest.TransportFor(own) }),
	}
}

// For returns the client of a team, which is the name of its namespace.
func (i *Identity) For(team string) (versioned.Interface, error) {
	if kept, ok := i.clients.Get(team); ok {
		return kept.(versioned.Interface), nil
	}
	if len(team) > v1alpha1.MaxE2BNamespace || len(validation.IsDNS1123Label(team)) > 0 {
		return nil, fmt.Errorf("client of team %.64q: it is not the name of a namespace of at most %d characters", team, v1alpha1.MaxE2BNamespace)
	}
	shared, err := i.shared()
	if err != nil {
		return nil, fmt.Errorf("client of team %s: %w", team, err)
	}
	if i.config.Impersonate.UserName != "" {
		return nil, fmt.Errorf("client of team %s: the gateway's own client impersonates %s already", team, i.config.Impersonate.UserName)
	}
	impersonating, err := versioned.NewForConfigAndClient(i.config, &http.Client{
		Transport: &teamTransport{transport.ImpersonationConfig{UserName: v1alpha1.E2BUser(team), Groups: i.groups}, shared},
		Timeout:   i.config.Timeout,
	})
	if err != nil {
		return nil, fmt.Errorf("client of team %s: %w", team, err)
	}
	i.clients.Add(team, impersonating)
	return impersonating, nil
}

// teamTransport impersonates the ServiceAccount of a team. If the context of a request has a key ID,
// it adds the ID as an extra field of the user.
type teamTransport struct {
	as     transport.ImpersonationConfig
	shared http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *teamTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	as := t.as
	if id, ok := r.Context().Value(keyIDKey{}).(string); ok {
		as.Extra = map[string][]string{v1alpha1.AnnotationE2BKeyID: {id}}
	}
	return transport.NewImpersonatingRoundTripper(as, t.shared).RoundTrip(r)
}

type keyIDKey struct{}

// WithKeyID returns a context whose requests name an API key in the extra field
// v1alpha1.AnnotationE2BKeyID of the user, which is in the audit log.
func WithKeyID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, keyIDKey{}, id)
}
