// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
)

type choiceKey struct{}

// choice is whether a request chooses what pods run.
type choice struct {
	needed func(obj, old runtime.Object) []Right
	// requested is the answer for the object as it was requested, once that is known.
	requested, known bool
}

// Observe returns a context for one update. ObserveUpdate records there what is requested.
func (g *Guard) Observe(ctx context.Context) context.Context {
	if g.ToChoose == nil {
		return ctx
	}
	return context.WithValue(ctx, choiceKey{}, &choice{needed: g.ToChoose})
}

// ObserveUpdate records what an update requests, before mutating admission changes obj. A user
// needs no right for what admission adds, such as a sidecar that it injects into all objects.
func ObserveUpdate(ctx context.Context, obj, old runtime.Object) {
	if c, ok := ctx.Value(choiceKey{}).(*choice); ok {
		c.requested, c.known = len(c.needed(obj, old)) > 0, true
	}
}

// toChoose returns the rights that an update takes because it chooses what pods run.
func (g *Guard) toChoose(ctx context.Context, obj, old runtime.Object) []Right {
	if g.ToChoose == nil {
		return nil
	}
	if c, ok := ctx.Value(choiceKey{}).(*choice); ok && c.known && !c.requested {
		return nil
	}
	return g.ToChoose(obj, old)
}
