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
)

// firstDelay is the delay before a request is forwarded again. It doubles with each try.
const firstDelay = 25 * time.Millisecond

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
		// The table may be late. If the address is, the request is tried again.
		route.State = routes.Running
		return route, nil
	})
}
