// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	versioned "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/flight"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

const (
	// tokensKept is how many tokens are remembered, for tokenLifetime each, and failures to
	// get one for failureLifetime.
	tokensKept      = 10000
	tokenLifetime   = 10 * time.Minute
	failureLifetime = time.Second
)

// agent acts for teams where traffic needs it.
type agent struct {
	teams interface {
		For(team string) (versioned.Interface, error)
	}
	resumer resumer
	tokens  *cache.LRUExpireCache
	asking  flight.Group[string]
}

// resumer resumes sandboxes because of traffic, as e2b.API does.
type resumer interface {
	Resume(ctx context.Context, agents typed.AgentsV1alpha1Interface, id, name string, uid types.UID) error
}

func newAgent(teams interface {
	For(team string) (versioned.Interface, error)
}, resumer resumer) *agent {
	return &agent{teams: teams, resumer: resumer, tokens: cache.NewLRUExpireCache(tokensKept)}
}

// remembered is a token, or why there was none.
type remembered struct {
	token string
	err   error
}

// token returns the access token of the runtime in a sandbox. It stays the same as long as
// the claim has the sandbox, so it is remembered by the sandbox's UID and the claim's name.
func (a *agent) token(ctx context.Context, route routes.Route) (string, error) {
	key := tokenKey{route.Claim, route.UID}
	if was, ok := a.tokens.Get(key); ok {
		r := was.(remembered)
		return r.token, r.err
	}
	return a.asking.Do(ctx, string(route.UID)+"/"+route.Claim, func(ctx context.Context) (string, error) { return a.ask(ctx, route, key) })
}

// ask asks the API server for a token, and remembers what it says.
func (a *agent) ask(ctx context.Context, route routes.Route, key tokenKey) (string, error) {
	client, err := a.teams.For(route.Namespace)
	if err != nil {
		return "", err
	}
	token, err := e2b.TokenOf(ctx, client.AgentsV1alpha1(), route.Namespace, route.Claim, route.Name, route.UID)
	switch {
	case err == nil && token == "":
		err = errors.New("the sandbox has no access token")
		fallthrough
	case err != nil:
		if ctx.Err() == nil {
			a.tokens.Add(key, remembered{err: err}, failureLifetime)
		}
		return "", fmt.Errorf("access token of sandbox %s/%s: %w", route.Namespace, route.Name, err)
	}
	a.tokens.Add(key, remembered{token: token}, tokenLifetime)
	return token, nil
}

type tokenKey struct {
	claim string
	uid   types.UID
}

// resume resumes the sandbox of a route because of traffic, and returns when it runs. The caller
// limits how long that may take (proxy.Options.ResumeTimeout).
func (a *agent) resume(ctx context.Context, route routes.Route) error {
	client, err := a.teams.For(route.Namespace)
	if err != nil {
		return err
	}
	id := v1alpha1.E2BSandboxID(route.Namespace, route.Claim)
	if err := a.resumer.Resume(ctx, client.AgentsV1alpha1(), id, route.Name, route.UID); err != nil {
		return fmt.Errorf("resuming sandbox %s/%s: %w", route.Namespace, route.Name, meaning(err))
	}
	return nil
}

// meaning says of errors that are not about the sandbox that its state could not be found
// out: it may run by now, and is asked for again.
func meaning(err error) error {
	var told *e2b.Error
	switch {
	case errors.As(err, &told), errors.Is(err, e2b.ErrPausedAgain), errors.Is(err, context.DeadlineExceeded),
		apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return err
	}
	return fmt.Errorf("%w: %w", routes.ErrUnavailable, err)
}
