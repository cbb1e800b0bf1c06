// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiwarning hands a caller the warnings that the API server sends with the
// responses to the caller's own requests.
package apiwarning

import (
	"context"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
)

// Warnings are the warnings that came with the responses to requests of one context.
type Warnings struct {
	mu    sync.Mutex
	texts []string
}

type contextKey struct{}

// Collect returns a context whose requests add their warnings to the returned Warnings
// instead of logging them.
func Collect(ctx context.Context) (context.Context, *Warnings) {
	w := &Warnings{}
	return context.WithValue(ctx, contextKey{}, w), w
}

// Texts returns the warnings so far, in the order in which they came.
func (w *Warnings) Texts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.texts)
}

// Handler returns a handler for the rest.Config of a client. Warnings of requests whose
// context does not collect them go to next.
func Handler(next rest.WarningHandlerWithContext) rest.WarningHandlerWithContext {
	return handler{next}
}

type handler struct {
	next rest.WarningHandlerWithContext
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (h handler) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	w, ok := ctx.Value(contextKey{}).(*Warnings)
	if !ok {
		h.next.HandleWarningHeaderWithContext(ctx, code, agent, text)
		return
	}
	if code != 299 || text == "" { // nothing else is a warning of the API
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}
