// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package lifetime

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// pauseTime returns when a sandbox is to be paused, and reports whether it ever is: not
// one that is paused already, has ended or is being deleted. This and the rules below
// are pure. Both controllers must agree on them.
func pauseTime(sandbox *v1alpha1.Sandbox) (time.Time, bool) {
	if sandbox.Spec.PauseTime == nil || sandbox.Spec.Paused || sandbox.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	switch sandbox.Status.Phase {
	case v1alpha1.SandboxSucceeded, v1alpha1.SandboxFailed:
		return time.Time{}, false
	}
	return sandbox.Spec.PauseTime.Time, true
}

// shutdownTime returns when a sandbox is to be deleted, and reports whether it ever is:
// not one that is kept, of which the controller of pods deletes the pod.
//
// Where the time to pause has come as well, and the sandbox is to be kept for a
// while after that (see retainedUntil), the pause comes first, even if both are due: it
// moves the time of the deletion.
func shutdownTime(sandbox *v1alpha1.Sandbox, now time.Time) (time.Time, bool) {
	if sandbox.Spec.ShutdownTime == nil || sandbox.DeletionTimestamp != nil || v1alpha1.KeptAtShutdown(sandbox) {
		return time.Time{}, false
	}
	if _, retained := retainedUntil(sandbox, now); retained {
		if at, ok := pauseTime(sandbox); ok && !now.Before(at) {
			return time.Time{}, false
		}
	}
	return sandbox.Spec.ShutdownTime.Time, true
}

// retainedUntil returns until when a sandbox that is paused at its pause time, now, is
// kept, and reports whether the sandbox asks for that: one without a shutdown time is
// kept anyway.
func retainedUntil(sandbox *v1alpha1.Sandbox, now time.Time) (metav1.Time, bool) {
	if sandbox.Spec.ShutdownTime == nil {
		return metav1.Time{}, false
	}
	retention, err := v1alpha1.PausedRetention(sandbox.Annotations[v1alpha1.AnnotationReservePausedSandboxDuration])
	if err != nil || retention == 0 {
		return metav1.Time{}, false // the server refuses wrong values
	}
	return metav1.NewTime(now.Add(retention).Truncate(time.Second)), true
}
