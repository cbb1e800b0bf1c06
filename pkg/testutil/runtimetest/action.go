// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimetest

import (
	"net/http"
	"time"
)

// Action is how a runtime deals with one call. The zero value is envd's way.
type Action struct {
	// Delay is how long the runtime waits before it deals with the call.
	Delay time.Duration
	// Hold lets it wait until the channel is closed.
	Hold <-chan struct{}
	// Linger lets it wait with its answer, after it did what was asked for, until the
	// channel is closed or the client is gone.
	Linger <-chan struct{}
	// Status is answered in place of doing anything. 0 does what was asked for.
	Status int
	// Body is sent with Status.
	Body string
	// Header is set on the answer with Status.
	Header http.Header
	// Die closes the connection without an answer: Before does nothing of what was asked
	// for, After does all of it first.
	Die Point
}

// Point is when a runtime dies.
type Point int

// The points.
const (
	Never Point = iota
	Before
	After
)

// Script says how a runtime deals with a call.
type Script func(rt *Runtime, call Call) Action

// Answer answers with a status in place of doing anything.
func Answer(status int) Action { return Action{Status: status} }

// Slow does all that is asked for, but later.
func Slow(delay time.Duration) Action { return Action{Delay: delay} }

// Hang does nothing until release is closed, and then all that was asked for.
func Hang(release <-chan struct{}) Action { return Action{Hold: release} }

// Die closes the connection before or after it did what was asked for.
func Die(at Point) Action { return Action{Die: at} }

// Call is one request as a runtime got it.
type Call struct {
	// Method and Path are those of the request.
	Method, Path string
	// Header is the request's.
	Header http.Header
	// Body is the request's, whole.
	Body []byte
	// Status is what was answered; 0 if the connection was closed instead.
	Status int
}
