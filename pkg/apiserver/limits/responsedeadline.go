// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/connections"
	"github.com/sandlot-io/sandlot/pkg/fairness"
)

const (
	// responseGrace is how long the response of a request may take beyond the time limit of the request.
	responseGrace = 10 * time.Second
	// unreadAfter is after what time a response that is being written counts as unread. A client that reads is
	// quicker. After as long again it ends if its user has too many.
	unreadAfter = time.Second
	// minWrite is how long each write has before it is judged, however late in the response it is.
	minWrite = 100 * time.Millisecond
	// maxUnread is how many unread responses there may be, and maxUnreadOfUser how many of one user.
	maxUnread, maxUnreadOfUser = 512, 64
)

// deadlines sets the deadlines of a request until its outermost handler has returned. The generic timeout lets that
// return while the handlers inside still run, and the writer of HTTP/2 may not be used then.
type deadlines struct {
	// response is the deadline of the response that withDeadlines has set.
	response time.Time

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
		d := &deadlines{controller: http.NewResponseController(w), response: clock.Now().Add(limit + responseGrace)}
		defer d.end()
		_ = d.controller.SetWriteDeadline(d.response) // every connection of the server has deadlines
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

// WithResponseDeadline ends responses whose clients do not read: at the deadline that WithConnections has set, and sooner
// those that a user has beyond maxUnreadOfUser. Each of them has a seat of API priority and fairness. The generic timeout
// does not end them: it waits for the write that stands. Long-running requests have no deadline here; watches have their
// own, for each write. It has to be inside of authentication and of WithConnections.
func WithResponseDeadline(handler http.Handler, isLongRunning request.LongRunningRequestCheck, clock clock.PassiveClock) http.Handler {
	unread := fairness.NewSlots(maxUnread, maxUnreadOfUser)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || isLongRunning(req, info) {
			deadlinesOf(req).setWrite(time.Time{})
			handler.ServeHTTP(w, req)
			return
		}
		bounded := &boundedResponse{ResponseWriter: w, req: req, clock: clock, unread: unread}
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(bounded), req)
		if req.ProtoMajor >= 2 {
			bounded.flush()
		}
	})
}

// boundedResponse is a response that ends if its client does not read it.
type boundedResponse struct {
	http.ResponseWriter
	req    *http.Request
	clock  clock.PassiveClock
	unread *fairness.Slots
	// began is when the first write began.
	began time.Time
	// mu is held when a write returns, and while one that stands gets another deadline, so that no later one gets it.
	mu sync.Mutex
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (r *boundedResponse) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Write implements http.ResponseWriter.
func (r *boundedResponse) Write(p []byte) (n int, err error) {
	r.write(func() { n, err = r.ResponseWriter.Write(p) })
	return n, err
}

// flush sends what net/http has buffered when the handler has returned: all of a short response of HTTP/2. After that
// it would wait for the client without a limit.
func (r *boundedResponse) flush() {
	r.write(func() { _ = http.NewResponseController(r.ResponseWriter).Flush() }) // the client is gone, or does not read
}

// write calls do, which writes, and bounds how long that takes.
func (r *boundedResponse) write(do func()) {
	if r.began.IsZero() {
		r.began = r.clock.Now()
	}
	returned := make(chan struct{})
	timer := time.AfterFunc(max(unreadAfter-r.clock.Since(r.began), minWrite), func() { r.bound(returned) })
	defer func() {
		timer.Stop()
		r.mu.Lock()
		close(returned)
		r.mu.Unlock()
	}()
	do()
}

// bound runs while a write stands of a response that is unread. It ends the response if there is no slot for it.
// With HTTP/2, a write that has a deadline does not return if the client reads nothing from the whole connection.
// Then the connection is closed.
func (r *boundedResponse) bound(returned chan struct{}) {
	until := deadlinesOf(r.req).response
	if release, ok := r.slot(returned); ok {
		defer release()
	} else {
		until = past
		r.expire(returned)
	}
	select {
	case <-returned:
	case <-time.After(max(until.Sub(r.clock.Now()), 0) + unreadAfter):
		if conn := connections.Find(r.req); conn != nil {
			_ = conn.Close()
		}
		<-returned
	}
}

// slot takes a slot of the user for a write that stands. A response that is not unread for long waits for one.
func (r *boundedResponse) slot(returned chan struct{}) (release func(), ok bool) {
	account := accountOf(r.req)
	if release, ok = r.unread.Take(account); ok {
		return release, true
	}
	waiting, stop := context.WithTimeout(wait.ContextForChannel(returned), 2*unreadAfter-r.clock.Since(r.began))
	defer stop()
	release, err := r.unread.Wait(waiting, account)
	return release, err == nil
}

// expire lets a write return that stands, and later ones of the response fail.
func (r *boundedResponse) expire(returned chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-returned:
	default:
		deadlinesOf(r.req).setWrite(past)
	}
}
