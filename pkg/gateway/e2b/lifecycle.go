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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
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

// lifecycleRequest is the body of timeout, refreshes, pause, connect and resume. Memory is ignored.
type lifecycleRequest struct {
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
	if n < 0 || n > c.api.Limits.MaxTimeout {
		return 0, &Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("timeout %d: must be from 0 to %d seconds", n, c.api.Limits.MaxTimeout)}
	}
	return time.Duration(n) * time.Second, nil
}

// setTimeout sets a new timeout, which begins now. 0 ends the sandbox at once.
func (c *call) setTimeout() error {
	var body lifecycleRequest
	if err := c.read(&body); err != nil {
		return err
	}
	if body.Timeout == nil {
		return &Error{Code: http.StatusBadRequest, Message: "timeout is required, in seconds"}
	}
	timeout, err := c.seconds(body.Timeout, 0)
	if err != nil {
		return err
	}
	return c.changeTimeout(func(sb *v1alpha1.Sandbox) *mapping.Change { return mapping.SetTimeout(sb, c.now().Add(timeout)) })
}

// refresh extends the life of a sandbox, for old SDKs. A timeout of 0 leaves its end as it is.
func (c *call) refresh() error {
	var body lifecycleRequest
	if err := c.read(&body); err != nil {
		return err
	}
	timeout, err := c.seconds(body.Duration, mapping.DefaultTimeout)
	if err != nil {
		return err
	}
	return c.changeTimeout(func(sb *v1alpha1.Sandbox) *mapping.Change { return c.extended(sb, timeout) })
}

// changeTimeout changes the timeout of a sandbox whose pod runs, ready or not: a client can extend the
// timeout of a sandbox whose readiness probe fails.
func (c *call) changeTimeout(change func(*v1alpha1.Sandbox) *mapping.Change) error {
	_, _, err := c.change(func(sb *v1alpha1.Sandbox) (*mapping.Change, error) {
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

// pause pauses a sandbox, and returns when its pod is gone. For a sandbox that is being paused
// already, it waits for that.
func (c *call) pause() error {
	var body lifecycleRequest
	if err := c.read(&body); err != nil {
		return err
	}
	retention := c.r.Header.Get(retentionHeader)
	if retention != "" {
		if err := mapping.CheckRetention(retention); err != nil {
			return err
		}
	}
	_, sb, err := c.change(func(sb *v1alpha1.Sandbox) (*mapping.Change, error) {
		switch {
		case mapping.IsPaused(sb):
			return nil, &Error{Code: http.StatusConflict, Message: "the sandbox is paused already"}
		case sb.Spec.Paused && retention == "":
			return mapping.Nothing(sb), nil // the retention of the first pause stays
		}
		return mapping.Pause(sb, retention, c.now()), nil
	})
	if err != nil {
		return err
	}
	if _, err = c.await(sb, isDown, "the sandbox is being paused and its pod has not stopped yet: pause again to wait for it"); err != nil {
		return err
	}
	c.stopped()
	writeEmpty(c.w, http.StatusNoContent)
	return nil
}

// forHowLong reads how long a sandbox is to run.
func (c *call) forHowLong() (time.Duration, error) {
	var body lifecycleRequest
	if err := c.read(&body); err != nil {
		return 0, err
	}
	return c.seconds(body.Timeout, mapping.DefaultTimeout)
}

// resume is the connect of SDKs before 2.8. They call it for a sandbox that is not running.
func (c *call) resume() error {
	timeout, err := c.forHowLong()
	if err != nil {
		return err
	}
	before, sb, err := c.change(func(sb *v1alpha1.Sandbox) (*mapping.Change, error) {
		if mapping.StateOf(sb, c.now()) == mapping.StateRunning {
			return nil, &Error{Code: http.StatusConflict, Message: "the sandbox is running already"}
		}
		return c.connected(sb, timeout), nil
	})
	if err != nil {
		return err
	}
	return c.answerWhenReady(before, sb)
}

// connect resumes a sandbox that is paused, and waits until it can be used. It never shortens the
// timeout of a sandbox that is not paused.
func (c *call) connect() error {
	timeout, err := c.forHowLong()
	if err != nil {
		return err
	}
	before, sb, err := c.change(func(sb *v1alpha1.Sandbox) (*mapping.Change, error) { return c.connected(sb, timeout), nil })
	if err != nil {
		return err
	}
	return c.answerWhenReady(before, sb)
}

// connected returns the change of a connect. A sandbox that is paused, or is being paused, is
// resumed. The end of any other is moved to a timeout from now, if that is later.
func (c *call) connected(sb *v1alpha1.Sandbox, timeout time.Duration) *mapping.Change {
	if sb.Spec.Paused {
		return mapping.Resume(sb, c.now().Add(max(timeout, resumedAtLeast)))
	}
	return c.extended(sb, timeout)
}

// extended returns a change that moves the end of a sandbox to a timeout from now, if that is
// later. A timeout of 0 leaves the end as it is, even if it has passed.
func (c *call) extended(sb *v1alpha1.Sandbox, timeout time.Duration) *mapping.Change {
	if timeout == 0 {
		return mapping.Nothing(sb)
	}
	return mapping.Extend(sb, c.now().Add(timeout))
}

// answerWhenReady answers when a sandbox can be used: with 200 if it could be used before the change, and
// with 201 if it had to be waited for.
func (c *call) answerWhenReady(before, sb *v1alpha1.Sandbox) error {
	if mapping.StateOf(before, c.now()) == mapping.StateRunning {
		return c.answerSandbox(http.StatusOK, sb)
	}
	sb, err := c.await(sb, isUp, "the sandbox is not ready yet: connect again to wait for it")
	switch {
	case err != nil:
		return err
	case sb.Spec.Paused:
		return &Error{Code: http.StatusConflict, Message: "the sandbox was paused again meanwhile: connect again"}
	}
	return c.answerSandbox(http.StatusCreated, sb)
}

func (c *call) answerSandbox(code int, sb *v1alpha1.Sandbox) error {
	token, err := c.token(c.r.Context(), sb)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return err
	}
	id, _ := v1alpha1.IsE2B(sb)
	writeJSON(c.w, code, c.made(sb, id, mapping.TemplateID(sb), token))
	return nil
}

// isDown reports whether the pause of a sandbox is complete, or another client has resumed it.
func isDown(sb *v1alpha1.Sandbox, _ time.Time) bool {
	return mapping.IsPaused(sb) || !sb.Spec.Paused
}

// isUp reports whether a sandbox can be used, or another client has paused it.
func isUp(sb *v1alpha1.Sandbox, now time.Time) bool {
	return mapping.StateOf(sb, now) == mapping.StateRunning || sb.Spec.Paused
}

// await waits until is returns true for a sandbox, and returns the sandbox. If that takes too
// long, or if too many requests of the team wait, it returns a 503 with message. A request that
// waits gives back its place, so that other requests of its team can use it.
func (c *call) await(sb *v1alpha1.Sandbox, is func(*v1alpha1.Sandbox, time.Time) bool, message string) (*v1alpha1.Sandbox, error) {
	if is(sb, c.now()) {
		return sb, nil
	}
	later := &Error{Code: http.StatusServiceUnavailable, Message: message, RetryAfter: time.Second}
	end, ok := c.api.waits.Take(c.caller.Team)
	if !ok {
		return nil, later
	}
	defer end()
	c.release()
	ctx, cancel := context.WithTimeout(c.r.Context(), settleTimeout)
	defer cancel()
	sb, err := c.settle(ctx, sb, is)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, later
	}
	return sb, err
}

// settle waits until a sandbox is as it should be, and returns it. One that ends meanwhile is
// not found. What cannot be read is read again.
func (c *call) settle(ctx context.Context, sb *v1alpha1.Sandbox, is func(*v1alpha1.Sandbox, time.Time) bool) (*v1alpha1.Sandbox, error) {
	if is(sb, c.now()) {
		return sb, nil
	}
	sb = withoutPod(sb)
	pace := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 12, Cap: time.Second}
	err := pace.DelayFunc().Until(ctx, false, true, func(ctx context.Context) (bool, error) {
		found, err := c.sandboxNamed(ctx, sb.Name)
		switch {
		case apierrors.IsNotFound(err), err == nil && found.UID != sb.UID, err == nil && mapping.StateOf(found, c.now()) == mapping.StateGone:
			return false, &Error{Code: http.StatusNotFound, Message: "the sandbox has ended"}
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return false, err
		case err == nil:
			sb = withoutPod(found)
		}
		return err == nil && is(sb, c.now()), nil
	})
	return sb, err
}

// withoutPod returns a sandbox without its pod template, which may be large: a request keeps it for
// as long as it waits.
func withoutPod(sb *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	one := *sb
	one.Spec.Template, one.ManagedFields = nil, nil
	return &one
}

// Resume resumes the paused sandbox of an id because of traffic, for as long as its timeout
// was, and returns when it runs. name and uid are those of the sandbox: another one is left
// alone. Errors are ErrPausedAgain, an *Error, or those of the cluster.
func (a *API) Resume(ctx context.Context, agents typed.AgentsV1alpha1Interface, id, name string, uid types.UID) error {
	namespace, _, _ := v1alpha1.SplitE2BSandboxID(id)
	c := &call{api: a, agents: agents, caller: apikeys.Caller{Team: namespace}}
	read := func(ctx context.Context) (*v1alpha1.Sandbox, error) {
		sb, err := c.sandboxNamed(ctx, name)
		if err != nil {
			return nil, err
		}
		if of, ok := v1alpha1.IsE2B(sb); !ok || of != id || sb.UID != uid {
			return nil, apierrors.NewNotFound(v1alpha1.Resource("sandboxes"), name)
		}
		return sb, nil
	}
	_, sb, err := c.changeOf(ctx, read, func(sb *v1alpha1.Sandbox) (*mapping.Change, error) {
		timeout := resumedAtLeast
		if n, err := strconv.ParseInt(sb.Annotations[v1alpha1.AnnotationE2BTimeout], 10, 64); err == nil {
			timeout = max(timeout, time.Duration(n)*time.Second)
		}
		if !sb.Spec.Paused {
			return mapping.Nothing(sb), nil
		}
		return mapping.Resume(sb, c.now().Add(timeout)), nil
	})
	if err != nil {
		return err
	}
	if sb, err = c.settle(ctx, sb, isUp); err == nil && sb.Spec.Paused {
		err = ErrPausedAgain
	}
	return err
}

// ErrPausedAgain means that a sandbox was paused by others while it was being resumed.
var ErrPausedAgain = errors.New("the sandbox was paused again")
