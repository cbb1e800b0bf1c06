// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// lifecycleRequest is the body of timeout, refreshes, pause, connect and resume. Memory is ignored.
type lifecycleRequest struct {
	Timeout  *int64 `json:"timeout"`
	Duration *int64 `json:"duration"`
	Memory   *bool  `json:"memory"`
}

// readTimeoutBody returns the timeout in the body of connect and resume.
func (c *call) readTimeoutBody() (time.Duration, error) {
	var body lifecycleRequest
	if err := c.decodeBody(&body); err != nil {
		return 0, err
	}
	return c.api.options.Limits.Timeout(body.Timeout, 0)
}

// setTimeout sets a new timeout, which starts now. 0 ends the sandbox at once.
func setTimeout(c *call) error {
	var body lifecycleRequest
	if err := c.decodeBody(&body); err != nil {
		return err
	}
	if body.Timeout == nil {
		return &Error{Code: http.StatusBadRequest, Message: "timeout is required, in seconds"}
	}
	timeout, err := c.api.options.Limits.Timeout(body.Timeout, 0)
	if err != nil {
		return err
	}
	return c.changeTimeout(func(sb *v1alpha1.Sandbox) *mapping.Change {
		return mapping.SetTimeout(sb, c.cluster.now().Add(timeout))
	})
}

// refresh extends the life of a sandbox, for old SDKs. A timeout of 0 leaves its end as it is.
func refresh(c *call) error {
	var body lifecycleRequest
	if err := c.decodeBody(&body); err != nil {
		return err
	}
	timeout, err := c.api.options.Limits.Timeout(body.Duration, 0)
	if err != nil {
		return err
	}
	return c.changeTimeout(func(sb *v1alpha1.Sandbox) *mapping.Change { return extendChange(sb, timeout, c.cluster.now()) })
}

// changeTimeout changes the timeout of a sandbox whose pod runs, ready or not: a client can extend the
// timeout of a sandbox whose readiness probe fails.
func (c *call) changeTimeout(change func(*v1alpha1.Sandbox) *mapping.Change) error {
	_, _, err := c.patchByID(func(sb *v1alpha1.Sandbox) (*mapping.Change, error) {
		if !mapping.IsStarted(sb) {
			return nil, &Error{Code: http.StatusConflict, Message: "the sandbox is not running: connect to it first"}
		}
		return change(sb), nil
	})
	if err != nil {
		return err
	}
	writeEmpty(c.w, http.StatusNoContent)
	return nil
}

// extendChange returns a change that moves the end of a sandbox to a timeout from now, if that is
// later. A timeout of 0 leaves the end as it is, even if it has passed.
func extendChange(sb *v1alpha1.Sandbox, timeout time.Duration, now time.Time) *mapping.Change {
	if timeout == 0 {
		return mapping.NoChange(sb)
	}
	return mapping.Extend(sb, now.Add(timeout))
}
