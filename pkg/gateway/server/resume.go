// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

// trafficResumer resumes sandboxes because of traffic, as the users of their teams.
type trafficResumer struct {
	teams teamClients
	api   *e2b.API
}

// Resume resumes the sandbox of a route, and returns when it runs. The caller limits how long that may
// take (proxy.Options.ResumeTimeout).
func (t trafficResumer) Resume(ctx context.Context, route routes.Route) error {
	client, err := t.teams.For(route.Namespace)
	if err != nil {
		return err
	}
	id := v1alpha1.E2BSandboxID(route.Namespace, route.Claim)
	if err := t.api.Resume(ctx, client.AgentsV1alpha1(), id, route.Name, route.UID); err != nil {
		return fmt.Errorf("resuming sandbox %s/%s: %w", route.Namespace, route.Name, asUnavailable(err))
	}
	return nil
}

// asUnavailable wraps errors that say nothing about the sandbox in routes.ErrUnavailable, so that the
// client retries: the sandbox may run by now.
func asUnavailable(err error) error {
	var apiErr *e2b.Error
	switch {
	case errors.As(err, &apiErr), errors.Is(err, e2b.ErrPausedAgain), errors.Is(err, context.DeadlineExceeded),
		apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return err
	}
	return fmt.Errorf("%w: %w", routes.ErrUnavailable, err)
}
