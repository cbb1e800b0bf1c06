// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// bodyLimits bound how long bodies of requests may take.
type bodyLimits struct {
	// slots are taken by bodies that have not arrived within slowAfter. Users share them.
	slots     *fairness.Slots
	slowAfter time.Duration
	// timeout is how long a body may take, and a second longer for each bodyRate bytes.
	timeout time.Duration
	// maxBytes is how many bytes of a body are read.
	maxBytes int64
}

// bodyRate is how many bytes of a body arrive in a second at least.
const bodyRate = 64 << 10

func newBodyLimits(maxBytes int64) *bodyLimits {
	return &bodyLimits{slots: fairness.NewSlots(512, 64), slowAfter: time.Second, timeout: 10 * time.Second, maxBytes: maxBytes}
}

// withBodies reads the body of a request before the request is handled. A request whose body does not arrive has a
// seat of API priority and fairness, here and in kube-apiserver, so a user with many of them would take all seats.
// Where all slots of the user are taken it is refused with 429, and after the timeout with 408. AccountOf says who a
// user counts for. Long-running requests have no seat. It has to be inside of authentication.
func withBodies(handler http.Handler, limits *bodyLimits, isLongRunning request.LongRunningRequestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || req.ContentLength == 0 || req.Body == nil || isLongRunning(req, info) {
			handler.ServeHTTP(w, req)
			return
		}
		body, err := limits.read(w, req)
		if err != nil {
			refuse(w, req, info, err)
			return
		}
		req.Body = body
		handler.ServeHTTP(w, req)
	})
}

// read reads the body of a request, up to one byte more than maxBytes. Handlers refuse such a body, and meet the errors
// of the client when they read it.
// Errors are API status errors.
func (l *bodyLimits) read(w http.ResponseWriter, req *http.Request) (io.ReadCloser, error) {
	expected := req.ContentLength
	if expected < 0 || expected > l.maxBytes {
		expected = l.maxBytes
	}
	controller := http.NewResponseController(w)
	_ = controller.SetReadDeadline(clock.RealClock{}.Now().Add(l.timeout + time.Duration(expected/bodyRate)*time.Second)) // writers of tests have none
	slow := &slowBody{take: func() (func(), bool) { return l.slots.Take(accountOf(req)) }, end: func() { endBody(req.Context(), controller) }}
	timer := time.AfterFunc(l.slowAfter, slow.begin)
	read, err := io.ReadAll(io.LimitReader(req.Body, l.maxBytes+1)) // as far as the handlers read
	timer.Stop()
	switch refused := slow.done(); {
	case refused:
		return nil, apierrors.NewTooManyRequests("too many requests of this user have bodies that do not arrive, please try again later", 1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusRequestTimeout, Reason: metav1.StatusReasonTimeout,
			Message: "the body of the request did not arrive in time",
		}}
	}
	if req.Context().Err() == nil {
		_ = controller.SetReadDeadline(time.Time{})
	}
	rest := io.Reader(req.Body)
	if err != nil {
		rest = failed{err}
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), rest), req.Body}, nil
}

// endBody lets the read of a body fail. When the request has been given up, the handlers around this one may have
// returned, and the writer of HTTP/2 panics then.
func endBody(ctx context.Context, controller *http.ResponseController) {
	if ctx.Err() != nil {
		return
	}
	defer func() { _ = recover() }()
	_ = controller.SetReadDeadline(past)
}

// slowBody takes a slot for a body that is being read, if it is slow. If there is none, it ends the body.
type slowBody struct {
	take func() (release func(), ok bool)
	end  func()

	mu             sync.Mutex
	isRead, isOver bool
	release        func()
}

// begin is called when the body is slow.
func (b *slowBody) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isRead {
		return
	}
	var ok bool
	if b.release, ok = b.take(); !ok {
		b.isOver = true
		b.end()
	}
}

// done is called when the body is read. It releases the slot, and reports whether there was none.
func (b *slowBody) done() (refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isRead = true
	if b.release != nil {
		b.release()
	}
	return b.isOver
}

// failed is a reader that fails.
type failed struct{ err error }

// Read implements io.Reader.
func (f failed) Read([]byte) (int, error) { return 0, f.err }
