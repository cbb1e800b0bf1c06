// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// problem is the body of an answer that is not the sandbox's.
type problem struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	SandboxID string `json:"sandboxId,omitempty"`
	// retryAfter is in seconds; 0 is none.
	retryAfter int
}

// write answers with the problem. 502 means to the SDKs that the sandbox does not run.
func (p problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"code":500,"message":"the answer could not be written"}`)
	}
	ours(w)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	w.WriteHeader(p.Code)
	_, _ = w.Write(body) // the client may be gone
}

// errBusy means that all places are taken.
var errBusy = errors.New("too many requests are under way")

// problemOf says what an error means to the client.
func problemOf(err error, to destination) problem {
	is := problem{Code: http.StatusBadGateway, SandboxID: to.id}
	switch {
	case errors.Is(err, errForbidden):
		is.Code, is.Message = http.StatusForbidden, errForbidden.Error()
	case errors.Is(err, errBusy):
		is.Code, is.Message, is.retryAfter = http.StatusTooManyRequests, err.Error(), 1
	case errors.Is(err, routes.ErrUnavailable):
		// Why is for the log: it may name parts of the installation.
		is.Code, is.Message, is.retryAfter = http.StatusServiceUnavailable, routes.ErrUnavailable.Error()+": try again", 1
	case errors.Is(err, routes.ErrNotFound):
		is.Message = "The sandbox was not found"
	case errors.Is(err, sandboxproxy.ErrNotRunning), errors.Is(err, errNotResumed):
		is.Message = "The sandbox is not running"
	case errors.Is(err, syscall.ECONNREFUSED):
		is.Message = fmt.Sprintf("The sandbox is running but port %d is not open", to.port)
	default:
		is.Message = fmt.Sprintf("The connection to port %d of the sandbox failed", to.port)
	}
	return is
}

type contextKey int

const attemptKey contextKey = 0

// ForwardError is the option Error of a sandboxproxy.Proxy that a Proxy uses.
func ForwardError(w http.ResponseWriter, r *http.Request, err error) {
	a, _ := r.Context().Value(attemptKey).(*attempt)
	switch {
	case a == nil:
		problemOf(err, destination{}).write(w)
	case a.again && errors.Is(err, sandboxproxy.ErrNotRunning) && !a.body.begun():
		a.failed = err
	default:
		answer(w, r, err, a.to)
	}
}

// answer tells the client about an error, unless it has gone.
func answer(w http.ResponseWriter, r *http.Request, err error, to destination) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	klog.FromContext(r.Context()).V(4).Info("Failed to forward request to sandbox", "id", to.id, "port", to.port, "err", err)
	problemOf(err, to).write(w)
}
