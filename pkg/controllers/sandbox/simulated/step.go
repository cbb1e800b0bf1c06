// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

// step is what happens to a sandbox next.
type step int

const (
	none step = iota
	start
	pause
	resume
	// settingUp: its new pod would be ready, and its agent-runtime is to be set up.
	settingUp
	// resumed: it was resumed, and nothing is left to wait for.
	resumed
	// resized: it runs, and gets the resources and the image that its claim asks for.
	resized
	// observe: its spec has changed, and only the observed generation has to follow.
	observe
	// clean: it is being recycled, and is still as it was.
	clean
	// lost: the process of its agent-runtime has ended.
	lost
	// release: it is being deleted, and has the finalizer of a controller of pods.
	release
)

// stepOf returns the next step of a sandbox. If no action is needed, as for a sandbox that is
// paused or has ended, its status still has to follow the generation of its spec.
func stepOf(sandbox *v1alpha1.Sandbox, now time.Time) step {
	next := actionOf(sandbox, now)
	if next == none && sandbox.DeletionTimestamp == nil && !claims.IsObserved(&sandbox.Status, sandbox.Generation) {
		return observe
	}
	return next
}

// actionOf returns the next step of a sandbox other than observe.
func actionOf(sandbox *v1alpha1.Sandbox, now time.Time) step {
	if sandbox.DeletionTimestamp != nil {
		if controllerutil.ContainsFinalizer(sandbox, v1alpha1.FinalizerSandbox) {
			return release
		}
		return none
	}
	if sandbox.Spec.Template == nil && sandbox.Spec.TemplateRef == nil {
		return none
	}
	switch phase := sandbox.Status.Phase; {
	case isOver(sandbox, now):
		return none
	case phase == v1alpha1.SandboxRecycling:
		return recyclingStep(sandbox)
	case phase == v1alpha1.SandboxPaused || sandbox.Spec.Paused:
		return pauseStep(sandbox)
	case phase == v1alpha1.SandboxResuming:
		return resumingStep(sandbox)
	case phase == "" || phase == v1alpha1.SandboxPending:
		return start
	case phase == v1alpha1.SandboxRunning && inplace.InProgress(sandbox):
		return resized
	}
	return none
}

// isOver reports whether a sandbox has ended, or is kept past its shutdownTime (expiry.go).
// One whose time has been moved since then is not.
func isOver(sandbox *v1alpha1.Sandbox, now time.Time) bool {
	switch sandbox.Status.Phase {
	case v1alpha1.SandboxSucceeded, v1alpha1.SandboxFailed:
		return true
	}
	return v1alpha1.SandboxExpired(sandbox) && v1alpha1.KeptAtShutdown(sandbox) && v1alpha1.ShutdownDue(sandbox, now)
}

// resumingStep returns the next step of a sandbox that is resumed.
func resumingStep(sandbox *v1alpha1.Sandbox) step {
	switch {
	case sandbox.Status.PodInfo.PodIP == "":
		return start
	case claims.SetsUpAgain(sandbox) && claims.SetupPending(&sandbox.Status):
		return settingUp
	}
	return resumed
}

// recyclingStep returns the next step of a sandbox that is being recycled. Once it is
// clean, another controller gives it back to its pool.
func recyclingStep(sandbox *v1alpha1.Sandbox) step {
	switch {
	case recycle.IsStarting(sandbox):
		return start
	case recycle.IsCleaned(sandbox):
		return none
	}
	return clean
}

// pauseStep returns the next step of a sandbox that is paused, or is to be.
func pauseStep(sandbox *v1alpha1.Sandbox) step {
	switch paused := sandbox.Status.Phase == v1alpha1.SandboxPaused; {
	case !paused:
		return pause
	case !sandbox.Spec.Paused:
		return resume
	case v1alpha1.SandboxExpired(sandbox): // its shutdownTime was moved, so it is only paused
		return pause
	}
	return none
}
