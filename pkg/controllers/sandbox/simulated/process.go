// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// Processes run an agent-runtime for each sandbox that declares one.
type Processes interface {
	// Start starts the process of a sandbox at an address, and returns when it listens. An earlier process of a
	// sandbox of that name ends before.
	Start(ctx context.Context, sandbox types.NamespacedName, uid types.UID, address string) error
	// Stop ends the process of a sandbox, if it has one.
	Stop(sandbox types.NamespacedName) error
	// IsRunning reports whether the process of a sandbox runs.
	IsRunning(sandbox types.NamespacedName, uid types.UID) bool
	// OnEnd sets what is called with the name of a sandbox when its process has ended.
	OnEnd(call func(types.NamespacedName))
}

const (
	processMessage = "its agent-runtime is a process of this machine, which isolates nothing"
	lostMessage    = "the process of its agent-runtime has ended"
)

// agentRuntimes starts and ends Processes with the steps of sandboxes. Without Processes it does nothing. A runtime that
// gets no token takes commands from all users of the machine, so it is not started.
type agentRuntimes struct{ Processes }

// enqueueEnded queues sandboxes whose processes have ended.
func (r agentRuntimes) enqueueEnded(_ context.Context, q queue.Interface) error {
	r.OnEnd(func(sandbox types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: sandbox}) })
	return nil
}

// hasEnded reports whether a sandbox has no pod any more, or none until it is resumed.
func hasEnded(sandbox *v1alpha1.Sandbox) bool {
	switch sandbox.Status.Phase {
	case v1alpha1.SandboxFailed, v1alpha1.SandboxSucceeded, v1alpha1.SandboxPaused:
		return true
	}
	return sandbox.DeletionTimestamp != nil
}

// isLost reports whether the process of a sandbox has ended.
func (r agentRuntimes) isLost(sandbox *v1alpha1.Sandbox) bool {
	return r.Processes != nil && !hasEnded(sandbox) && v1alpha1.HasRuntimeToken(sandbox) && sandbox.Status.SandboxIP != "" &&
		sandbox.Status.Phase != v1alpha1.SandboxRecycling && // its process may have been ended
		!r.IsRunning(client.ObjectKeyFromObject(sandbox), sandbox.UID)
}

// change starts or ends the process of a sandbox before a status is written that a step leads to.
func (r agentRuntimes) change(ctx context.Context, s step, sandbox *v1alpha1.Sandbox, status *v1alpha1.SandboxStatus) error {
	if r.Processes == nil || !v1alpha1.HasRuntimeToken(sandbox) {
		return nil
	}
	if status.Phase == v1alpha1.SandboxRunning {
		status.Message = processMessage
	}
	switch name := client.ObjectKeyFromObject(sandbox); {
	case s == clean:
		return r.Stop(name)
	case s != start || status.SandboxIP == "" || status.Phase == v1alpha1.SandboxFailed:
		return nil
	case sandbox.Status.SandboxIP == "" && sandbox.Status.Phase != v1alpha1.SandboxResuming && r.IsRunning(name, sandbox.UID):
		return nil // the cache is behind: it may have its token already
	default:
		return r.Start(ctx, name, sandbox.UID, status.SandboxIP)
	}
}

// stopEnded ends the process of a sandbox that has ended; nil is one that is gone.
func (r agentRuntimes) stopEnded(name types.NamespacedName, sandbox *v1alpha1.Sandbox) error {
	if r.Processes == nil || sandbox != nil && !hasEnded(sandbox) {
		return nil
	}
	return r.Stop(name)
}

// statusLost returns the status of a sandbox whose process has ended, from the one before.
func statusLost(before *v1alpha1.SandboxStatus, generation int64, now time.Time) v1alpha1.SandboxStatus {
	status := *before
	status.Phase, status.Message = v1alpha1.SandboxFailed, lostMessage
	setter(&status, generation, now)(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStartContainerFailed, lostMessage)
	return status
}
