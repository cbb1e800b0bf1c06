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
	// firstLook is how long it takes until a sandbox that is resumed is looked at again; each
	// look is twice as late, up to lastLook.
	firstLook = 25 * time.Millisecond
	lastLook  = time.Second
)

// errNotResumed means that a paused sandbox does not run although traffic came for it.
var errNotResumed = errors.New("the sandbox is paused")

// wake resumes a sandbox and waits until it runs. All who come for it meanwhile share that.
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

// awaitRunning waits until a sandbox that was resumed runs. The cluster is asked too: the
// table may be behind for longer than anybody waits.
func (p *Proxy) awaitRunning(ctx context.Context, resumed routes.Route) (routes.Route, error) {
	target := sandboxproxy.Target{Namespace: resumed.Namespace, Name: resumed.Name, UID: resumed.UID, Claim: resumed.Claim}
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
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
		case <-p.options.Clock.After(pause):
		}
	}
}
