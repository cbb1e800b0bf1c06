// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Change is a patch of a Sandbox: one write.
type Change struct {
	sb   *v1alpha1.Sandbox
	spec map[string]any
}

// Patch returns the change as a merge patch. The patch fails with a conflict if the sandbox has changed
// since it was read, or another sandbox has its name.
func (c *Change) Patch() ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.sb.UID, "resourceVersion": c.sb.ResourceVersion},
		"spec":     c.spec,
	})
}

// IsEmpty reports whether there is nothing to write.
func (c *Change) IsEmpty() bool { return len(c.spec) == 0 }

// NoChange returns a change that writes nothing.
func NoChange(sb *v1alpha1.Sandbox) *Change { return &Change{sb: sb} }

// HasTimeout reports whether a sandbox has a timeout. One that was created with never-timeout has none,
// and never gets one.
func HasTimeout(sb *v1alpha1.Sandbox) bool {
	return sb.Spec.ShutdownTime != nil || sb.Spec.PauseTime != nil
}

// SetTimeout lets the timeout of a running sandbox end at end.
func SetTimeout(sb *v1alpha1.Sandbox, end time.Time) *Change {
	c := &Change{sb: sb, spec: map[string]any{}}
	if HasTimeout(sb) {
		c.setEnd(end)
	}
	return c
}

// Extend moves the end of the timeout to end, if that is later.
func Extend(sb *v1alpha1.Sandbox, end time.Time) *Change {
	c := &Change{sb: sb, spec: map[string]any{}}
	current := sb.Spec.PauseTime
	if current == nil {
		current = sb.Spec.ShutdownTime
	}
	if current != nil && current.Time.Before(end) {
		c.setEnd(end)
	}
	return c
}

// setEnd sets the times at which the sandbox is paused and deleted.
func (c *Change) setEnd(at time.Time) {
	c.spec["pauseTime"], c.spec["shutdownTime"] = pauseAndShutdownTimes(c.sb.Annotations, at)
}

// pauseAndShutdownTimes returns when a sandbox is paused and when it is deleted, if its timeout ends at a
// time. Without auto-pause in its annotations it is deleted then. With auto-pause it is paused then, and
// deleted after its retention.
func pauseAndShutdownTimes(annotations map[string]string, at time.Time) (pause, shutdown *metav1.Time) {
	end := metav1.NewTime(at.UTC().Truncate(time.Second))
	if annotations[v1alpha1.AnnotationE2BAutoPause] != "true" {
		return nil, &end
	}
	until := metav1.NewTime(end.Add(keptPaused(annotations[v1alpha1.AnnotationReservePausedSandboxDuration])))
	return &end, &until
}

// keptPaused returns how long a paused sandbox with a timeout is kept. An empty retention is no limit.
func keptPaused(retention string) time.Duration {
	kept, err := v1alpha1.PausedRetention(retention)
	if err != nil || kept == 0 {
		return endless
	}
	return kept
}

// Pause pauses a sandbox. A sandbox with a timeout is kept for the retention from now. An empty retention
// means the one of its create, or else no limit.
func Pause(sb *v1alpha1.Sandbox, retention string, now time.Time) *Change {
	c := &Change{sb: sb, spec: map[string]any{"paused": true}}
	if !HasTimeout(sb) {
		return c
	}
	if retention == "" {
		retention = sb.Annotations[v1alpha1.AnnotationReservePausedSandboxDuration]
	}
	until := rfc3339(now.Add(keptPaused(retention)))
	c.spec["shutdownTime"] = until
	if sb.Spec.PauseTime != nil {
		c.spec["pauseTime"] = until
	}
	return c
}

// Resume resumes a sandbox, and lets its timeout end at end, in one write.
func Resume(sb *v1alpha1.Sandbox, end time.Time) *Change {
	c := &Change{sb: sb, spec: map[string]any{"paused": false}}
	if HasTimeout(sb) {
		c.setEnd(end)
	}
	return c
}
