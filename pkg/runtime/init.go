// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/wait"
)

// InitRequest is what a runtime is initialized with. All of it is secret.
type InitRequest struct {
	// EnvVars are for the processes that the runtime starts.
	EnvVars map[string]string `json:"envVars,omitempty"`
	// AccessToken is what later calls of the runtime need. A runtime that was never
	// initialized takes any; afterwards it takes that one only.
	AccessToken string `json:"accessToken,omitempty"`
	// Before is called before each attempt; its error ends the call and is the error of it.
	// It may be nil.
	Before func(ctx context.Context) error `json:"-"`
	// InBackground is for calls that no request waits for, and that the caller repeats. Such a
	// call is one attempt, and takes none of the places of other calls.
	InBackground bool `json:"-"`
}

// Init initializes a runtime. It tries 5 times where the runtime cannot be reached or
// answers 5xx. The same request once more is answered with success, so an attempt whose
// answer is lost does no harm.
//
// The error is an *Error, or that of ctx.
func (c *Client) Init(ctx context.Context, t Target, request InitRequest) error {
	base, err := t.base()
	if err != nil {
		return err
	}
	address := base.JoinPath("init").String()
	attempts, backoff, places := 0, initBackoff, c.inits
	if request.InBackground {
		backoff.Steps, places = 1, c.background
	}
	var last *Error
	err = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		// Each waits for its turn anew, so that the pauses are the others'.
		release, err := places.Wait(ctx, t.Namespace)
		if err != nil {
			return false, err
		}
		defer release()
		if request.Before != nil {
			if err := request.Before(ctx); err != nil {
				last = nil // it is not what the call fails for
				return false, err
			}
		}
		attempts++
		if last = c.initOnce(ctx, address, request); last == nil {
			return true, nil
		}
		if last.kind == unreachable {
			return false, nil
		}
		return false, last
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("initializing the agent-runtime at %s: %w", base.Host, ctx.Err())
	case last != nil && request.InBackground:
		return last
	case last != nil && last.kind == unreachable:
		return &Error{last.kind, last.status, fmt.Sprintf("%s, the last of %d times", last.message, attempts)}
	}
	return err
}

// initOnce makes one attempt. The body is made for it: of many sandboxes that wait, few
// are in it.
func (c *Client) initOnce(ctx context.Context, address string, request InitRequest) *Error {
	body, err := json.Marshal(request)
	if err != nil {
		return &Error{kind: unable, message: "the request to initialize the agent-runtime cannot be encoded"}
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.AttemptTimeout)
	defer cancel()
	answer, failed := c.post(ctx, address, "application/json", request.AccessToken, body, nil)
	if failed != nil {
		return failed
	}
	_ = answer.Body.Close() // success is in the status
	return nil
}
