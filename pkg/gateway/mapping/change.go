// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/json"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Change is a patch of a Sandbox: one write.
type Change struct {
	sb   *v1alpha1.Sandbox
	spec map[string]any
}

// Patch is the change as a merge patch of the very sandbox that was seen, by its UID, so
// that another one of its name is left alone.
func (c *Change) Patch() ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.sb.UID},
		"spec":     c.spec,
	})
}

// IsEmpty reports whether there is nothing to write.
func (c *Change) IsEmpty() bool { return len(c.spec) == 0 }

// Timed reports whether a sandbox has a timeout. One made with never-timeout has none, and
// gets none.
func Timed(sb *v1alpha1.Sandbox) bool { return sb.Spec.ShutdownTime != nil || sb.Spec.PauseTime != nil }

// SetTimeout lets the timeout of a sandbox that runs end at a time.
func SetTimeout(sb *v1alpha1.Sandbox, end time.Time) *Change {
	c := &Change{sb: sb, spec: map[string]any{}}
	if Timed(sb) {
		c.end(end)
	}
	return c
}

// Extend does so if that is later than it ends now.
func Extend(sb *v1alpha1.Sandbox, end time.Time) *Change {
	c := &Change{sb: sb, spec: map[string]any{}}
	now := sb.Spec.PauseTime
	if now == nil {
		now = sb.Spec.ShutdownTime
	}
	if now != nil && now.Time.Before(end) {
		c.end(end)
	}
	return c
}

// end sets the time at which the sandbox is paused or deleted. Which of both, says the
// order that it was made by.
func (c *Change) end(at time.Time) {
	end := rfc3339(at)
	if c.sb.Annotations[v1alpha1.AnnotationE2BAutoPause] == "true" {
		c.spec["pauseTime"], c.spec["shutdownTime"] = end, nil
	} else {
		c.spec["pauseTime"], c.spec["shutdownTime"] = nil, end
	}
}

// Pause pauses a sandbox. One with a timeout is kept for as long as retention says from
// now; empty is what it was made with, or else for ever.
func Pause(sb *v1alpha1.Sandbox, retention string, now time.Time) *Change {
	c := &Change{sb: sb, spec: map[string]any{"paused": true}}
	if !Timed(sb) {
		return c
	}
	if retention == "" {
		retention = sb.Annotations[v1alpha1.AnnotationReservePausedSandboxDuration]
	}
	kept, err := v1alpha1.PausedRetention(retention)
	if err != nil || kept == 0 {
		kept = endless
	}
	until := rfc3339(now.Add(kept))
	c.spec["shutdownTime"] = until
	if sb.Spec.PauseTime != nil {
		c.spec["pauseTime"] = until
	}
	return c
}

// Resume resumes a sandbox, and lets its timeout end at a time, in one write.
func Resume(sb *v1alpha1.Sandbox, end time.Time) *Change {
	c := &Change{sb: sb, spec: map[string]any{"paused": false}}
	if Timed(sb) {
		c.end(end)
	}
	return c
}
