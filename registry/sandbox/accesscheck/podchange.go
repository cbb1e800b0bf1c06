// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package accesscheck

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
)

type podChangeKey struct{}

// podChange is whether a request changes what pods run.
type podChange struct {
	rights func(obj, old runtime.Object) []Right
	// requested is whether the requested update changes what pods run, once that is known.
	requested, known bool
}

// WithRequested returns a context in which RecordRequested stores whether the requested update
// changes what pods run.
func (c *Checker) WithRequested(ctx context.Context) context.Context {
	if c.PodRights == nil {
		return ctx
	}
	return context.WithValue(ctx, podChangeKey{}, &podChange{rights: c.PodRights})
}

// RecordRequested records whether an update changes what pods run, before mutating admission
// changes obj. A user needs no right for what only admission changes, such as a sidecar that it
// injects into all objects.
func RecordRequested(ctx context.Context, obj, old runtime.Object) {
	if c, ok := ctx.Value(podChangeKey{}).(*podChange); ok {
		c.requested, c.known = len(c.rights(obj, old)) > 0, true
	}
}

// podRights returns the rights that an update requires because the user changes what pods run.
func (c *Checker) podRights(ctx context.Context, obj, old runtime.Object) []Right {
	if c.PodRights == nil {
		return nil
	}
	if change, ok := ctx.Value(podChangeKey{}).(*podChange); ok && change.known && !change.requested {
		return nil
	}
	return c.PodRights(obj, old)
}
