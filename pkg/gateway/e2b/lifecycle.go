// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

const (
	// settleTimeout is how long a pause or a resume is waited for.
	settleTimeout = 50 * time.Second
	// resumedAtLeast is the shortest timeout of a sandbox that is resumed.
	resumedAtLeast = 300 * time.Second
	// retentionHeader says how long a paused sandbox is kept.
	retentionHeader = "X-E2b-Kruise-Reserve-Paused-Sandbox-Duration"
)

// timeoutBody is the body of timeout, connect and resume.
type timeoutBody struct {
	Timeout  *int64 `json:"timeout"`
	Duration *int64 `json:"duration"`
	Memory   *bool  `json:"memory"`
}

// seconds is how many seconds a request asks for, within what is allowed.
func (c *call) seconds(given *int64, otherwise int64) (time.Duration, error) {
	n := otherwise
	if given != nil {
		n = *given
	}
	if n < 1 || n > c.api.Limits.MaxTimeout {
		return 0, &Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("timeout %d: must be from 1 to %d seconds", n, c.api.Limits.MaxTimeout)}
	}
	return time.Duration(n) * time.Second, nil
}

// setTimeout lets the timeout begin anew, longer or shorter.
func (c *call) setTimeout() error {
	var body timeoutBody
	if err := c.read(&body); err != nil {
		return err
	}
	if body.Timeout == nil {
		return &Error{Code: http.StatusBadRequest, Message: "timeout is required, in seconds"}
	}
	// 0 ends a sandbox at once, as E2B does it.
	timeout := time.Duration(0)
	if *body.Timeout != 0 {
		var err error
		if timeout, err = c.seconds(body.Timeout, 0); err != nil {
			return err
		}
	}
	return c.retime(func(sb *v1alpha1.Sandbox) *mapping.Change { return mapping.SetTimeout(sb, c.now().Add(timeout)) })
}

// refresh makes a sandbox live longer, as SDKs of the first days do.
func (c *call) refresh() error {
	var body timeoutBody
	if err := c.read(&body); err != nil {
		return err
	}
	timeout, err := c.seconds(body.Duration, mapping.DefaultTimeout)
	if err != nil {
		return err
	}
	return c.retime(func(sb *v1alpha1.Sandbox) *mapping.Change { return mapping.Extend(sb, c.now().Add(timeout)) })
}

// retime changes the timeout of a sandbox that runs.
func (c *call) retime(change func(*v1alpha1.Sandbox) *mapping.Change) error {
	sb, err := c.sandbox()
	if err != nil {
		return err
	}
	if mapping.StateOf(sb, c.now()) != mapping.StateRunning {
		return &Error{Code: http.StatusConflict, Message: "the sandbox is paused: connect to it first"}
	}
	changed, err := c.change(c.r.Context(), sb, change(sb))
	if err != nil {
		return err
	}
	if changed.Spec.Paused { // in between
		return &Error{Code: http.StatusConflict, Message: "the sandbox is paused: connect to it first"}
	}
	writeEmpty(c.w, http.StatusNoContent)
	return nil
}

// pause pauses a sandbox, and returns when that is done.
func (c *call) pause() error {
	var body timeoutBody
	if err := c.read(&body); err != nil {
		return err
	}
	retention := c.r.Header.Get(retentionHeader)
	if retention != "" {
		if err := mapping.CheckRetention(retention); err != nil {
			return err
		}
	}
	sb, err := c.sandbox()
	if err != nil {
		return err
	}
	if mapping.StateOf(sb, c.now()) == mapping.StatePaused {
		return &Error{Code: http.StatusConflict, Message: "the sandbox is paused already"}
	}
	if sb, err = c.change(c.r.Context(), sb, mapping.Pause(sb, retention, c.now())); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), settleTimeout)
	defer cancel()
	err = c.settle(ctx, sb, isDown)
	// A pause that takes long is under way all the same.
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	c.stopped()
	writeEmpty(c.w, http.StatusNoContent)
	return nil
}

// toRun reads which sandbox is to run, and for how long.
func (c *call) toRun() (*v1alpha1.Sandbox, time.Duration, error) {
	var body timeoutBody
	if err := c.read(&body); err != nil {
		return nil, 0, err
	}
	timeout, err := c.seconds(body.Timeout, mapping.DefaultTimeout)
	if err != nil {
		return nil, 0, err
	}
	sb, err := c.sandbox()
	return sb, timeout, err
}

// resume is connect of SDKs before 2.8: it is for paused sandboxes alone.
func (c *call) resume() error {
	sb, timeout, err := c.toRun()
	if err != nil {
		return err
	}
	if mapping.StateOf(sb, c.now()) == mapping.StateRunning {
		return &Error{Code: http.StatusConflict, Message: "the sandbox is running already"}
	}
	return c.wake(sb, timeout)
}

// connect resumes a sandbox that is paused, and never shortens the time of one that runs.
func (c *call) connect() error {
	sb, timeout, err := c.toRun()
	if err != nil {
		return err
	}
	if mapping.StateOf(sb, c.now()) == mapping.StatePaused {
		return c.wake(sb, timeout)
	}
	if sb, err = c.change(c.r.Context(), sb, mapping.Extend(sb, c.now().Add(timeout))); err != nil {
		return err
	}
	if sb.Spec.Paused { // in between
		return c.wake(sb, timeout)
	}
	return c.tell(http.StatusOK, sb)
}

// wake resumes a sandbox and tells of it when it runs.
func (c *call) wake(sb *v1alpha1.Sandbox, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), settleTimeout)
	defer cancel()
	sb, err := c.change(ctx, sb, mapping.Resume(sb, c.now().Add(max(timeout, resumedAtLeast))))
	if err != nil {
		return err
	}
	if err := c.settle(ctx, sb, isUp); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return &Error{Code: http.StatusServiceUnavailable, Message: "the sandbox is being resumed and does not run yet: connect again", RetryAfter: time.Second}
		}
		return err
	}
	return c.tell(http.StatusCreated, sb)
}

func (c *call) tell(code int, sb *v1alpha1.Sandbox) error {
	token, err := c.token(c.r.Context(), sb)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return err
	}
	id, _ := v1alpha1.IsE2B(sb)
	writeJSON(c.w, code, c.made(sb, id, mapping.TemplateID(sb), token))
	return nil
}

// isDown reports whether a sandbox is paused, or resumed by others.
func isDown(sb *v1alpha1.Sandbox, _ time.Time) bool {
	return sb.Status.Phase == v1alpha1.SandboxPaused || !sb.Spec.Paused
}

// isUp reports whether a sandbox runs and can be used, or never will again.
func isUp(sb *v1alpha1.Sandbox, now time.Time) bool {
	return v1alpha1.StateOf(sb, now) == v1alpha1.StateRunning || sb.Spec.Paused
}

// settle waits until a sandbox is as it should be. One that ends meanwhile is not found.
func (c *call) settle(ctx context.Context, sb *v1alpha1.Sandbox, is func(*v1alpha1.Sandbox, time.Time) bool) error {
	if is(sb, c.now()) {
		return nil
	}
	pace := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 12, Cap: time.Second}
	return pace.DelayFunc().Until(ctx, false, true, func(ctx context.Context) (bool, error) {
		found, err := c.agents.Sandboxes(sb.Namespace).Get(ctx, sb.Name, getOptions)
		switch {
		case apierrors.IsNotFound(err), err == nil && found.UID != sb.UID, err == nil && mapping.StateOf(found, c.now()) == mapping.StateGone:
			return false, &Error{Code: http.StatusNotFound, Message: "the sandbox has ended"}
		case err != nil:
			return false, err
		}
		return is(found, c.now()), nil
	})
}

// Resume resumes a paused sandbox because of traffic, for as long as its timeout was, and
// returns when it runs. Another one of its name is left alone.
func Resume(ctx context.Context, agents typed.AgentsV1alpha1Interface, sb *v1alpha1.Sandbox, clk clock.PassiveClock) error {
	timeout := resumedAtLeast
	if n, err := strconv.ParseInt(sb.Annotations[v1alpha1.AnnotationE2BTimeout], 10, 64); err == nil {
		timeout = max(timeout, time.Duration(n)*time.Second)
	}
	c := &call{api: &API{Options: Options{Clock: clk}}, agents: agents}
	sb, err := c.change(ctx, sb, mapping.Resume(sb, c.now().Add(timeout)))
	if err != nil {
		return err
	}
	return c.settle(ctx, sb, isUp)
}
