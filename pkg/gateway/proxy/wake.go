// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

const (
	// firstDelay is the delay between two reads of a sandbox that is being resumed. It doubles with
	// each read, up to maxDelay.
	firstDelay = 25 * time.Millisecond
	maxDelay   = time.Second
)

// errNotResumed means that a paused sandbox does not run although there is a request for it.
var errNotResumed = errors.New("the sandbox is paused")

// wake resumes a sandbox and waits until it runs. Requests for the sandbox that come meanwhile share that.
func (p *Proxy) wake(ctx context.Context, route routes.Route) (routes.Route, error) {
	return p.waking.Do(ctx, route.ID, func(ctx context.Context) (routes.Route, error) {
		release, ok := p.resumes.Take(route.Namespace)
		if !ok {
			return routes.Route{}, fmt.Errorf("%w: too many sandboxes are being resumed", errBusy)
		}
		defer release()
		ctx, cancel := context.WithTimeout(ctx, p.options.ResumeTimeout)
		defer cancel()
		if err := p.options.Resume(ctx, route); err != nil {
			if errors.Is(err, routes.ErrUnavailable) {
				return routes.Route{}, err
			}
			klog.FromContext(ctx).Info("Failed to resume sandbox", "id", route.ID, "err", err)
			return routes.Route{}, fmt.Errorf("%w, and could not be resumed: %w", errNotResumed, err)
		}
		return p.awaitRunning(ctx, route)
	})
}

// awaitRunning waits until a sandbox that was resumed runs. It asks the cluster too, because the table may
// be late.
func (p *Proxy) awaitRunning(ctx context.Context, resumed routes.Route) (routes.Route, error) {
	target := sandboxproxy.Target{Namespace: resumed.Namespace, Name: resumed.Name, UID: resumed.UID, Claim: resumed.Claim}
	for delay := firstDelay; ; delay = min(2*delay, maxDelay) {
		if _, err := p.options.Table.Resolve(ctx, target); err == nil {
			resumed.State = routes.Running
			return resumed, nil
		}
		route, err := p.options.Table.Find(ctx, resumed.ID)
		switch {
		case ctx.Err() != nil:
			return routes.Route{}, fmt.Errorf("%w, and does not run yet: %w", errNotResumed, context.Cause(ctx))
		case err == nil && route.State == routes.Running:
			return route, nil
		case err != nil && !errors.Is(err, routes.ErrUnavailable):
			return routes.Route{}, err
		}
		select {
		case <-ctx.Done():
			return routes.Route{}, fmt.Errorf("%w, and does not run yet: %w", errNotResumed, context.Cause(ctx))
		case <-p.options.Clock.After(delay):
		}
	}
}
