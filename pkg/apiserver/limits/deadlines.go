// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// deadlines sets the deadlines of a request until its outermost handler has returned. The generic timeout lets that
// return while the handlers inside still run, and the writer of HTTP/2 may not be used then.
type deadlines struct {
	mu sync.Mutex
	// controller is nil when the outermost handler has returned.
	controller *http.ResponseController
}

// deadlinesKey is the key of the deadlines of a request in its context.
type deadlinesKey struct{}

// withDeadlines sets the deadline of each response, and lets the handlers inside set others by deadlinesOf. It has to be
// outside of the generic timeout. limit is the time limit of requests.
func withDeadlines(handler http.Handler, limit time.Duration, clock clock.PassiveClock) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		d := &deadlines{controller: http.NewResponseController(w)}
		defer d.end()
		_ = d.controller.SetWriteDeadline(clock.Now().Add(limit + responseGrace)) // every connection of the server has deadlines
		handler.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), deadlinesKey{}, d)))
	})
}

// deadlinesOf returns the deadlines of a request. It panics outside of withDeadlines.
func deadlinesOf(req *http.Request) *deadlines {
	return req.Context().Value(deadlinesKey{}).(*deadlines)
}

// setRead sets the deadline of the body, unless the outermost handler has returned. Zero is none.
func (d *deadlines) setRead(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.controller != nil {
		_ = d.controller.SetReadDeadline(at) // as above
	}
}

// setWrite sets the deadline of the response, unless the outermost handler has returned. Zero is none.
func (d *deadlines) setWrite(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.controller != nil {
		_ = d.controller.SetWriteDeadline(at) // as above
	}
}

// end notes that the outermost handler returns.
func (d *deadlines) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.controller = nil
}
