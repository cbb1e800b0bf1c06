// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"net/http"
	"runtime"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// WithProcessorSlots lets the lists, large gets and large answers to deletions of a user be converted and encoded on half
// of the processors at a time. Otherwise those of one user could keep all of them busy, and claims would wait for a
// processor. A request has its slot from base.WaitForProcessor until it ends, but not while it writes: its client may take
// its time to read. Long-running requests need none. AccountOf says who a user counts for. It has to be inside of
// authentication.
func WithProcessorSlots(handler http.Handler, isLongRunning request.LongRunningRequestCheck) http.Handler {
	ofUser := max(runtime.GOMAXPROCS(0)/2, 1)
	slots := fairness.NewSlots(2*ofUser, ofUser)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if _, known := request.UserFrom(req.Context()); !ok || !known || isLongRunning(req, info) {
			handler.ServeHTTP(w, req)
			return
		}
		response := &encodedResponse{ResponseWriter: w, ctx: req.Context(), slots: slots, account: accountOf(req)}
		defer response.pause()
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(response), req.WithContext(base.WithProcessor(req.Context(), response.wait)))
	})
}

// encodedResponse is a response that gives up its slot while it writes. It is not safe for concurrent use.
type encodedResponse struct {
	http.ResponseWriter
	ctx     context.Context
	slots   *fairness.Slots
	account string
	// release releases the slot, and is nil if it has none.
	release func()
}

// wait waits for a slot, if the response has none. The error is that of ctx.
func (r *encodedResponse) wait(ctx context.Context) error {
	if r.release != nil {
		return nil
	}
	release, err := r.slots.Wait(ctx, r.account)
	if err != nil {
		return err
	}
	r.release = release
	return nil
}

// pause releases the slot, and reports whether the response had one.
func (r *encodedResponse) pause() bool {
	if r.release == nil {
		return false
	}
	r.release()
	r.release = nil
	return true
}

// Write implements http.ResponseWriter.
func (r *encodedResponse) Write(p []byte) (int, error) {
	had := r.pause()
	n, err := r.ResponseWriter.Write(p)
	if had && err == nil {
		err = r.wait(r.ctx)
	}
	return n, err
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (r *encodedResponse) Unwrap() http.ResponseWriter { return r.ResponseWriter }
