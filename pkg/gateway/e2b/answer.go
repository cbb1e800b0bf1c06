// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

const (
	// maxBody is how long the body of a request may be.
	maxBody = 256 << 10
	// readTimeout is how long it may take to come, also what is left of it when the answer is
	// written, and writeTimeout how long the answer may take to be taken.
	readTimeout  = 15 * time.Second
	writeTimeout = 30 * time.Second
)

// Error is what is returned in place of an answer. It is the body, too: SDKs look for
// the integer code.
type Error struct {
	// Code is the HTTP status.
	Code int `json:"code"`
	// Message says what happened to what, and what to do.
	Message string `json:"message"`
	// RetryAfter is when to come again; 0 says nothing about it.
	RetryAfter time.Duration `json:"-"`
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Message) }

// setReadDeadline bounds how long what is left of a request may take to come. It must not
// stand while a request is processed: when it is over, the server takes the client for gone.
// Errors: a ResponseWriter of a test has no deadlines, and needs none.
func setReadDeadline(w http.ResponseWriter, at time.Time) {
	_ = http.NewResponseController(w).SetReadDeadline(at)
}

// setDeadlines bounds how long an answer may take.
func setDeadlines(w http.ResponseWriter) {
	now := clock.RealClock{}.Now()
	setReadDeadline(w, now.Add(readTimeout))
	_ = http.NewResponseController(w).SetWriteDeadline(now.Add(writeTimeout)) // as above
}

// writeEmpty answers without a body.
func writeEmpty(w http.ResponseWriter, code int) {
	setDeadlines(w)
	w.WriteHeader(code)
}

func writeError(w http.ResponseWriter, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: http.StatusInternalServerError, Message: "internal error"}
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(e.RetryAfter.Seconds())), 10))
	}
	if e.Code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `ApiKey header="X-API-Key"`)
	}
	writeJSON(w, e.Code, e)
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	setDeadlines(w)
	text, err := json.Marshal(body)
	if err != nil {
		code, text = http.StatusInternalServerError, []byte(`{"code":500,"message":"internal error"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // a client that is gone gets nothing
}

// read reads the JSON body of a request. An empty one is an empty object; fields that are
// not known are those of a newer SDK.
func (c *call) read(into any) error { return c.decode(into, func(*json.Decoder) {}) }

// decode reads the JSON body of a request to its end, as set says.
func (c *call) decode(into any, set func(*json.Decoder)) error {
	setReadDeadline(c.w, clock.RealClock{}.Now().Add(c.api.readTimeout))
	defer setReadDeadline(c.w, time.Time{})
	decoder := json.NewDecoder(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	set(decoder)
	err := decoder.Decode(into)
	if err == nil {
		// From its end on the server notices when the client goes away.
		if _, err = decoder.Token(); err == nil {
			err = errors.New("there is more than one JSON value")
		}
	}
	var large *http.MaxBytesError
	switch {
	case isEOF(err):
		return nil
	case errors.As(err, &large):
		return &Error{Code: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the body is longer than %d bytes", maxBody)}
	}
	return &Error{Code: http.StatusBadRequest, Message: "the body is not the JSON that is expected: " + err.Error()}
}

// fail answers with what an error means.
func (c *call) fail(err error) {
	writeError(c.w, c.toError(err))
}

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
		// Most often the client is gone.
		return &Error{Code: http.StatusServiceUnavailable, Message: "the request was given up; it is not known whether it had an effect"}
	}
	after, _ := client.RetryAfter(err)
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return internal(c.r, err)
	}
	told := &Error{Code: int(status.Status().Code), Message: status.Status().Message, RetryAfter: after}
	switch {
	case client.IsShortage(err):
		told.Message, told.RetryAfter = "no sandbox is available now: "+told.Message, max(after, time.Second)
	case told.Code == http.StatusTooManyRequests:
		told.RetryAfter = max(after, time.Second)
	case told.Code == http.StatusUnprocessableEntity:
		told.Code = http.StatusBadRequest
	case told.Code < http.StatusBadRequest, told.Code == http.StatusUnauthorized:
		// It is the gateway that the cluster does not know, not the caller.
		return internal(c.r, err)
	case told.Code >= http.StatusInternalServerError:
		klog.FromContext(c.r.Context()).Error(err, "Failed to call the cluster", "team", c.caller.Team, "path", c.r.URL.Path)
		return &Error{Code: http.StatusServiceUnavailable, Message: "the cluster did not answer; it is not known whether the request had an effect", RetryAfter: max(after, time.Second)}
	}
	return told
}

// internal logs what users are not told.
func internal(r *http.Request, err error) error {
	klog.FromContext(r.Context()).Error(err, "Request of the E2B API failed", "method", r.Method, "path", r.URL.Path)
	return &Error{Code: http.StatusServiceUnavailable, Message: "the request could not be carried out now", RetryAfter: time.Second}
}
