// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// resumedAtLeast is the shortest timeout of a sandbox that is resumed.
const resumedAtLeast = 300 * time.Second

// resume is the connect of SDKs before 2.8. They call it for a sandbox that is not running.
func resume(c *call) error {
	return c.connectIf(func(sb *v1alpha1.Sandbox) error {
		if mapping.StateOf(sb, c.cluster.now()) == mapping.StateRunning && !c.cluster.hasLostWrite {
			return &Error{Code: http.StatusConflict, Message: "the sandbox is running already"}
		}
		return nil
	})
}

// connect resumes a sandbox that is paused, and waits until it can be used. It never shortens the
// timeout of a sandbox that is not paused.
func connect(c *call) error { return c.connectIf(func(*v1alpha1.Sandbox) error { return nil }) }

// connectIf is connect for a sandbox of which check returns no error.
func (c *call) connectIf(check func(*v1alpha1.Sandbox) error) error {
	timeout, err := c.readTimeoutBody()
	if err != nil {
		return err
	}
	before, sb, err := c.patchByID(func(sb *v1alpha1.Sandbox) (*mapping.Change, error) {
		return connectChange(sb, timeout, c.cluster.now()), check(sb)
	})
	if err != nil {
		return err
	}
	return c.respondWhenReady(before, sb)
}

// connectChange returns the change of a connect. A sandbox that is paused, or is being paused, is
// resumed. The end of any other is moved to a timeout from now, if that is later.
func connectChange(sb *v1alpha1.Sandbox, timeout time.Duration, now time.Time) *mapping.Change {
	if sb.Spec.Paused {
		return mapping.Resume(sb, now.Add(max(timeout, resumedAtLeast)))
	}
	return extendChange(sb, timeout, now)
}

// respondWhenReady responds when a sandbox can be used: with 200 if it could be used before the change,
// and with 201 if the request had to wait, or may have resumed it by a write whose response was lost.
func (c *call) respondWhenReady(before, sb *v1alpha1.Sandbox) error {
	if mapping.StateOf(before, c.cluster.now()) == mapping.StateRunning && !c.cluster.hasLostWrite {
		return c.respondWithSandbox(http.StatusOK, sb)
	}
	sb, err := c.await(sb, isResumeOver, "the sandbox is not ready yet: connect again to wait for it")
	switch {
	case err != nil:
		return err
	case sb.Spec.Paused:
		return &Error{Code: http.StatusConflict, Message: "the sandbox was paused again meanwhile: connect again"}
	}
	if err := c.checkKey(); err != nil {
		return err
	}
	return c.respondWithSandbox(http.StatusCreated, sb)
}

// respondWithSandbox responds with a sandbox that runs, and with its access token. It returns an error if the
// setup of the sandbox after a resume or a restart has failed, so that it cannot be used.
func (c *call) respondWithSandbox(code int, sb *v1alpha1.Sandbox) error {
	if failed := mapping.SetupFailure(sb); failed != "" {
		return &Error{Code: http.StatusInternalServerError, Message: "the sandbox runs, but cannot be used: " + failed + ": pause it, and connect to try again"}
	}
	token, err := c.token(c.r.Context(), sb)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return err
	}
	id, _ := v1alpha1.IsE2B(sb)
	writeJSON(c.w, code, c.sandboxResponse(sb, id, mapping.TemplateID(sb), token))
	return nil
}
