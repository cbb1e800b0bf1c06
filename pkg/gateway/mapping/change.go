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

// Patch is the change as a merge patch of the very sandbox that was seen, as it was seen:
// another one of its name is left alone, and one that was paused, resumed or recycled since.
func (c *Change) Patch() ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.sb.UID, "resourceVersion": c.sb.ResourceVersion},
		"spec":     c.spec,
	})
}

// IsEmpty reports whether there is nothing to write.
func (c *Change) IsEmpty() bool { return len(c.spec) == 0 }

// Nothing changes nothing.
func Nothing(sb *v1alpha1.Sandbox) *Change { return &Change{sb: sb} }

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

// end sets the times at which the sandbox is paused and deleted.
func (c *Change) end(at time.Time) {
	c.spec["pauseTime"], c.spec["shutdownTime"] = ends(c.sb.Annotations, at)
}

// ends returns when a sandbox is paused and when it is deleted, if its timeout ends at a
// time. It is deleted then, or paused and deleted when it was kept as long as a paused one
// is. Which of both, say the annotations that it was ordered with.
func ends(ordered map[string]string, at time.Time) (pause, shutdown *metav1.Time) {
	end := metav1.NewTime(at.UTC().Truncate(time.Second))
	if ordered[v1alpha1.AnnotationE2BAutoPause] != "true" {
		return nil, &end
	}
	until := metav1.NewTime(end.Add(keptPaused(ordered[v1alpha1.AnnotationReservePausedSandboxDuration])))
	return &end, &until
}

// keptPaused is how long a paused sandbox with a timeout is kept. Nothing means for ever.
func keptPaused(retention string) time.Duration {
	kept, err := v1alpha1.PausedRetention(retention)
	if err != nil || kept == 0 {
		return endless
	}
	return kept
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
	until := rfc3339(now.Add(keptPaused(retention)))
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
