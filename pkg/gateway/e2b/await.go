// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// stateTimeout is how long a request waits for the state that it has asked for.
const stateTimeout = 50 * time.Second

// isPauseOver reports whether the pause of a sandbox is complete, or another client has resumed it.
func isPauseOver(sb *v1alpha1.Sandbox, _ time.Time) bool {
	return mapping.IsPaused(sb) || !sb.Spec.Paused
}

// isResumeOver reports whether a sandbox can be used, or another client has paused it.
func isResumeOver(sb *v1alpha1.Sandbox, now time.Time) bool {
	return mapping.StateOf(sb, now) == mapping.StateRunning || sb.Spec.Paused
}

// startWaiting takes a slot of requests that wait for a sandbox, and releases the slot of the request, so
// that other requests of its team can use it. ok is false if too many requests of the team wait.
func (c *call) startWaiting() (stop func(), ok bool) {
	stop, ok = c.api.waitSlots.Take(c.caller.Team)
	if ok {
		c.release()
	}
	return stop, ok
}

// await waits until isDone returns true for a sandbox, and returns the sandbox. If that takes too long, or
// if too many requests of the team wait, it returns a 503 with message.
func (c *call) await(sb *v1alpha1.Sandbox, isDone func(*v1alpha1.Sandbox, time.Time) bool, message string) (*v1alpha1.Sandbox, error) {
	if isDone(sb, c.cluster.now()) {
		return sb, nil
	}
	later := &Error{Code: http.StatusServiceUnavailable, Message: message, RetryAfter: time.Second}
	stopWaiting, ok := c.startWaiting()
	if !ok {
		return nil, later
	}
	defer stopWaiting()
	ctx, cancel := context.WithTimeout(c.r.Context(), stateTimeout)
	defer cancel()
	sb, err := c.cluster.pollUntil(ctx, sb, isDone)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, later
	}
	return sb, err
}

// pollUntil reads a sandbox until isDone returns true for it, and returns the sandbox. If the sandbox
// ends meanwhile, it returns a 404. It retries reads that fail.
func (t *teamClient) pollUntil(ctx context.Context, sb *v1alpha1.Sandbox, isDone func(*v1alpha1.Sandbox, time.Time) bool) (*v1alpha1.Sandbox, error) {
	if isDone(sb, t.now()) {
		return sb, nil
	}
	sb = withoutPod(sb)
	backoff := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 12, Cap: time.Second}
	err := backoff.DelayFunc().Until(ctx, false, true, func(ctx context.Context) (bool, error) {
		found, err := t.getSandboxByName(ctx, sb.Name)
		switch {
		case apierrors.IsNotFound(err), err == nil && found.UID != sb.UID, err == nil && mapping.StateOf(found, t.now()) == mapping.StateGone:
			return false, &Error{Code: http.StatusNotFound, Message: "the sandbox has ended"}
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return false, err
		case err == nil:
			sb = withoutPod(found)
		}
		return err == nil && isDone(sb, t.now()), nil
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
