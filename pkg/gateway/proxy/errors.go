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

// problem is the body of an error response of the gateway itself.
type problem struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	SandboxID string `json:"sandboxId,omitempty"`
	// retryAfter is in seconds; 0 is none.
	retryAfter int
}

// write writes the problem. SDKs take a 502 to mean that the sandbox does not run, and may make another one.
func (p problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"code":500,"message":"the answer could not be written"}`)
	}
	markGatewayResponse(w)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	w.WriteHeader(p.Code)
	_, _ = w.Write(body) // the client may be gone
}

// errBusy means that all slots are taken.
var errBusy = errors.New("too many requests are under way")

// problemOf returns the problem for an error.
func problemOf(err error, to destination) problem {
	is := problem{Code: http.StatusBadGateway, SandboxID: to.id}
	switch {
	case errors.Is(err, errForbidden):
		is.Code, is.Message = http.StatusForbidden, errForbidden.Error()
	case errors.Is(err, errInit):
		is.Code, is.Message = http.StatusForbidden, errInit.Error()
	case errors.Is(err, errBusy):
		is.Code, is.Message, is.retryAfter = http.StatusTooManyRequests, err.Error(), 1
	case errors.Is(err, routes.ErrUnavailable):
		// The cause is only logged: it may name parts of the installation.
		is.Code, is.Message, is.retryAfter = http.StatusServiceUnavailable, routes.ErrUnavailable.Error()+": try again", 1
	case errors.Is(err, routes.ErrNotFound):
		is.Message = "The sandbox was not found"
	case errors.Is(err, routes.ErrSetupFailed):
		is.Message = "The sandbox is running, but its agent-runtime could not be set up with its access token: pause the sandbox and connect"
	case errors.Is(err, sandboxproxy.ErrRuntimeNotSetUp):
		is.Code, is.Message, is.retryAfter = http.StatusServiceUnavailable, "The sandbox is running, but its agent-runtime is not set up with its access token yet: try again", 1
	case errors.Is(err, errNotResumed) && errors.Is(err, context.DeadlineExceeded):
		is.Code, is.Message, is.retryAfter = http.StatusServiceUnavailable, "The sandbox is being resumed and does not run yet: try again", 1
	case errors.Is(err, sandboxproxy.ErrNotRunning), errors.Is(err, errNotResumed):
		is.Message = "The sandbox is not running"
	case errors.Is(err, sandboxproxy.ErrStopped):
		is.Message = "The sandbox was stopped during the request"
	case errors.Is(err, syscall.ECONNREFUSED):
		is.Message = fmt.Sprintf("The sandbox is running but port %d is not open", to.port)
	default:
		is.Message = fmt.Sprintf("The connection to port %d of the sandbox failed", to.port)
	}
	return is
}

// ForwardError is the option Error of the sandboxproxy.Proxy that a Proxy forwards with. If the request
// can be retried, it stores the error in the forwardTry of the request. Otherwise it writes an error
// response.
func ForwardError(w http.ResponseWriter, r *http.Request, err error) {
	try, _ := r.Context().Value(forwardTryKey).(*forwardTry)
	switch {
	case try == nil:
		problemOf(err, destination{}).write(w)
	case try.canRetry && errors.Is(err, sandboxproxy.ErrNotRunning) && !try.body.begun():
		try.retryErr = err
	default:
		writeProblem(w, r, err, try.to)
	}
}

// writeProblem writes an error response, unless the client is gone.
func writeProblem(w http.ResponseWriter, r *http.Request, err error, to destination) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	klog.FromContext(r.Context()).V(4).Info("Failed to forward request to sandbox", "id", to.id, "port", to.port, "err", err)
	problemOf(err, to).write(w)
}
