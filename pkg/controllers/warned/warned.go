// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package warned hands a caller the warnings that the API gives along with the
// answer to a request of its own.
package warned

import (
	"context"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
)

// Warnings are those that came with the answers to requests of one context.
type Warnings struct {
	mu    sync.Mutex
	texts []string
}

type contextKey struct{}

// With returns a context whose requests leave their warnings in the Warnings that
// it returns as well, instead of in the log.
func With(ctx context.Context) (context.Context, *Warnings) {
	w := &Warnings{}
	return context.WithValue(ctx, contextKey{}, w), w
}

// Texts are the warnings so far, in the order in which they came.
func (w *Warnings) Texts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.texts)
}

// Handler is for the rest.Config of a client. Warnings of requests that nobody
// asked them of go to next.
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
