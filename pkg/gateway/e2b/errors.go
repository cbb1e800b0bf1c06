// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// Error is an error response. It is also the body of the response: SDKs read the integer code from it.
type Error struct {
	// Code is the HTTP status.
	Code int `json:"code"`
	// Message says what happened to what, and what to do.
	Message string `json:"message"`
	// RetryAfter is when the client may retry; 0 says nothing about it.
	RetryAfter time.Duration `json:"-"`
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Message) }

// toError returns the *Error for an error of a handler. Errors of the cluster keep their code and
// message, if they are about the request.
func (c *call) toError(err error) error {
	var known *Error
	var bad *mapping.InvalidError
	var unserved *mapping.UnservedError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &bad):
		return &Error{Code: http.StatusBadRequest, Message: bad.Message}
	case errors.As(err, &unserved):
		return &Error{Code: http.StatusNotImplemented, Message: unserved.Error()}
	case c.r.Context().Err() != nil:
		// Most often the client is gone. Else the cluster has not answered for requestTimeout.
		return &Error{Code: http.StatusServiceUnavailable, Message: "the request was given up; it is not known whether it had an effect", RetryAfter: time.Second}
	}
	after, _ := client.RetryAfter(err)
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unanswered(c.r, err)
	}
	apiErr := &Error{Code: int(status.Status().Code), Message: status.Status().Message, RetryAfter: after}
	switch {
	case client.IsShortage(err):
		apiErr.Message, apiErr.RetryAfter = "no sandbox is available now: "+apiErr.Message, max(after, time.Second)
	case apiErr.Code == http.StatusTooManyRequests:
		apiErr.RetryAfter = max(after, time.Second)
	case apiErr.Code == http.StatusUnprocessableEntity:
		apiErr.Code = http.StatusBadRequest
	case apiErr.Code < http.StatusBadRequest, apiErr.Code == http.StatusUnauthorized:
		// The cluster does not accept the credentials of the gateway. The key of the caller is good.
		return unavailable(c.r, err)
	case apiErr.Code >= http.StatusInternalServerError:
		return unanswered(c.r, err)
	}
	return apiErr
}

// isNotFound reports whether an error is a 404 for the client.
func isNotFound(err error) bool {
	var known *Error
	return errors.As(err, &known) && known.Code == http.StatusNotFound
}

// unanswered logs an error of a request that the cluster may have carried out, and returns a 503 for it.
func unanswered(r *http.Request, err error) error {
	logFailure(r, err)
	after, _ := client.RetryAfter(err)
	return &Error{Code: http.StatusServiceUnavailable, Message: "the cluster did not answer; it is not known whether the request had an effect", RetryAfter: max(after, time.Second)}
}

// logFailure logs an error whose text is not for users. Any client can cause one by going away, so that
// is logged with verbosity 4 only.
func logFailure(r *http.Request, err error) {
	logger := klog.FromContext(r.Context())
	if r.Context().Err() != nil {
		logger.V(4).Info("Client of a request of the E2B API is gone", "method", r.Method, "path", r.URL.Path, "err", err)
		return
	}
	logger.Error(err, "Request of the E2B API failed", "method", r.Method, "path", r.URL.Path)
}

// unavailable logs an error of a request that had no effect, and returns a 503 for it.
func unavailable(r *http.Request, err error) error {
	logFailure(r, err)
	return &Error{Code: http.StatusServiceUnavailable, Message: "the request could not be carried out now", RetryAfter: time.Second}
}

// fromKeyError returns the *Error for an error of Keys. It returns other errors, such as those of the
// cluster, as they are.
func fromKeyError(err error) error {
	switch {
	case errors.Is(err, apikeys.ErrNotFound):
		return &Error{Code: http.StatusNotFound, Message: "there is no such key of this team"}
	case errors.Is(err, apikeys.ErrForbidden):
		return &Error{Code: http.StatusForbidden, Message: err.Error()}
	case errors.Is(err, apikeys.ErrLimit):
		return &Error{Code: http.StatusForbidden, Message: err.Error()}
	case errors.Is(err, apikeys.ErrUnknownKey):
		return &Error{Code: http.StatusUnauthorized, Message: "the API key is not known"}
	case errors.Is(err, apikeys.ErrInvalid):
		return &Error{Code: http.StatusBadRequest, Message: err.Error()}
	}
	return err
}

// quoted returns text of a client, shortened so that a message can contain it.
func quoted(s string) string {
	if len(s) > 128 {
		s = s[:128] + "..."
	}
	return s
}
