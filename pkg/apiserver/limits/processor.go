// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

const (
	// slotWait is how long a read, a deletion or the begin of a watch waits for a slot until it is refused.
	slotWait = 10 * time.Second
	// slotWaitBetween is how long a response that has begun waits for a slot until it continues without. It must not fail:
	// its client would get half of an answer.
	slotWaitBetween = time.Second
	// slowWrite is how long a write may take until it loses the slot: its client does not read.
	slowWrite = time.Millisecond
	// backlog is from how many bytes that were not flushed a watch waits for a slot: it has many events.
	backlog = 32 << 10
	// firstEvent is how long a watch keeps its slot until it writes its first event. A watch that begins with the
	// objects that exist writes the first at once, if there are any.
	firstEvent = 5 * time.Millisecond
)

// WithProcessorSlots bounds how many requests of one user are converted and encoded at a time, to half of the processors.
// Otherwise one user could keep all of them busy, and claims would wait for a processor. These are lists, gets and
// deletions of large objects, watches while they send events, and answers to deletecollection. A request holds its slot
// from base.WaitForProcessor until it ends, except while its client does not read, and a watch until it has no more events.
// Kubernetes components, system:masters and the exempt users, our controllers, need no slots. AccountOf says who a user
// counts for. It has to be inside of authentication.
func WithProcessorSlots(handler http.Handler, exempt sets.Set[string]) http.Handler {
	ofUser := max(runtime.GOMAXPROCS(0)/2, 1)
	slots := fairness.NewSlots(2*ofUser, ofUser) // all users together have one for each processor
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		reader, known := request.UserFrom(req.Context())
		if !ok || !known || exempt.Has(reader.GetName()) || isSystem(reader) || info.Subresource == "proxy" {
			handler.ServeHTTP(w, req)
			return
		}
		response := &slottedResponse{ResponseWriter: w, ctx: req.Context(), slots: slots, account: accountOf(req), isWatch: info.Verb == "watch"}
		defer response.end()
		wait := response.acquire
		if response.isWatch {
			wait = response.acquireForFirst
		}
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(response), req.WithContext(base.WithProcessorWait(req.Context(), wait)))
	})
}

// slottedResponse is the response to a read that has a slot.
type slottedResponse struct {
	http.ResponseWriter
	ctx     context.Context
	slots   *fairness.Slots
	account string
	isWatch bool
	// first is the timer of firstEvent, and nil if no slot has been waited for.
	first *time.Timer
	// unflushed is how many bytes were written since the last flush. A watch is flushed when it has no more events.
	unflushed int
	// hasLost is set if the response has lost its slot by a slow write.
	hasLost bool

	// mu is for what timers use, and for a deletion, which may still be under way when its request has ended.
	mu sync.Mutex
	// release releases the slot, and is nil if it has none.
	release  func()
	hasEnded bool
}

// acquire waits for a slot, if the response has none. The error is an API status error.
func (r *slottedResponse) acquire(ctx context.Context) error {
	if r.has() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	release, err := r.slots.Wait(ctx, r.account)
	if err != nil {
		return apierrors.NewTooManyRequests("too many reads and deletions of this user are under way, please try again later", 1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.hasEnded:
		release()
		return errEnded
	case r.release != nil: // a deletion and its response may wait at the same time
		release()
	default:
		r.release = release
	}
	return nil
}

// acquireSoon waits for a slot for slotWaitBetween, and continues without.
func (r *slottedResponse) acquireSoon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, slotWaitBetween)
	defer cancel()
	_ = r.acquire(ctx)
}

// acquireForFirst waits for the slot of a watch for its first event. The error is an API status error.
func (r *slottedResponse) acquireForFirst(ctx context.Context) error {
	if err := r.acquire(ctx); err != nil {
		return err
	}
	r.first = time.AfterFunc(firstEvent, r.releaseSlot)
	return nil
}

// has reports whether the response has a slot.
func (r *slottedResponse) has() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.release != nil
}

// releaseSlot releases the slot, if the response has one.
func (r *slottedResponse) releaseSlot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releaseLocked()
}

// releaseLocked is releaseSlot for a caller that has the lock.
func (r *slottedResponse) releaseLocked() {
	if r.release != nil {
		r.release()
		r.release = nil
	}
}

// end notes that the request has ended.
func (r *slottedResponse) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hasEnded = true
	r.releaseLocked()
}

// Write implements http.ResponseWriter.
func (r *slottedResponse) Write(p []byte) (int, error) {
	if r.first != nil {
		r.first.Stop()
	}
	if r.hasLost || r.isWatch && r.unflushed >= backlog {
		r.acquireSoon(r.ctx)
		r.hasLost = r.hasLost && !r.has()
	}
	r.unflushed += len(p)
	if !r.has() {
		return r.ResponseWriter.Write(p)
	}
	slow := time.AfterFunc(slowWrite, r.releaseSlot)
	n, err := r.ResponseWriter.Write(p)
	r.hasLost = !slow.Stop()
	return n, err
}

// Flush implements http.Flusher. The handler of a watch flushes before the first event, and whenever it has no more.
func (r *slottedResponse) Flush() {
	if r.unflushed > 0 {
		r.unflushed, r.hasLost = 0, false
		r.releaseSlot()
	}
	r.ResponseWriter.(http.Flusher).Flush()
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (r *slottedResponse) Unwrap() http.ResponseWriter { return r.ResponseWriter }
