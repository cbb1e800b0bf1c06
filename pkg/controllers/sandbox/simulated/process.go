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
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Processes run an agent-runtime for each sandbox that declares one.
type Processes interface {
	// Start starts the process of a sandbox at an address, and returns when it listens. An earlier process of a
	// sandbox of that name ends before.
	Start(ctx context.Context, sandbox types.NamespacedName, uid types.UID, address string) error
	// Stop ends the process of a sandbox, if it has one. It does nothing if that is the process of the UID keep.
	Stop(sandbox types.NamespacedName, keep types.UID) error
	// IsRunning reports whether the process of a sandbox runs.
	IsRunning(sandbox types.NamespacedName, uid types.UID) bool
	// OnEnd sets what is called with the name of a sandbox when its process has ended.
	OnEnd(call func(types.NamespacedName))
}

// ProcessNodeName is the node, in the status, of sandboxes whose agent-runtimes are Processes. pkg/cli knows it.
const ProcessNodeName = "processes"

const (
	processMessage = "its agent-runtime is a process of this machine, which isolates nothing"
	lostMessage    = "the process of its agent-runtime has ended, or got no access token in the pool"
)

// agentRuntimes starts and ends Processes with the steps of sandboxes. Without Processes it does nothing.
type agentRuntimes struct {
	Processes
	templates *podtemplate.Cache
	lookup    podtemplate.Lookup
}

// enqueueEnded queues sandboxes whose processes have ended.
func (r agentRuntimes) enqueueEnded(_ context.Context, q queue.Interface) error {
	r.OnEnd(func(sandbox types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: sandbox}) })
	return nil
}

// changes reports whether a change of a sandbox may end a process.
func (r agentRuntimes) changes(before, after *v1alpha1.Sandbox) bool {
	return r.Processes != nil && (before.UID != after.UID || !hasNoProcess(before) && hasNoProcess(after) || !missesToken(before) && missesToken(after))
}

// hasNoProcess reports whether a sandbox is to have no process any more, or none until it is resumed.
func hasNoProcess(sandbox *v1alpha1.Sandbox) bool {
	switch sandbox.Status.Phase {
	case v1alpha1.SandboxFailed, v1alpha1.SandboxSucceeded, v1alpha1.SandboxPaused:
		return true
	}
	return sandbox.DeletionTimestamp != nil
}

// declares reports whether a sandbox declares an agent-runtime, by itself or in its pod template.
func (r agentRuntimes) declares(ctx context.Context, sandbox *v1alpha1.Sandbox) (bool, error) {
	if podtemplate.NamesAgentRuntime(sandbox.Spec.Runtimes) {
		return true, nil
	}
	resolved, err := r.templates.ResolveSandbox(ctx, sandbox, r.lookup)
	if err != nil {
		return false, err
	}
	return r.templates.BringsAgentRuntime(resolved.Template), nil
}

// mayBeLost reports whether a sandbox runs, and has no process, or no access token although its pool gives tokens. It is
// lost if it declares an agent-runtime.
func (r agentRuntimes) mayBeLost(sandbox *v1alpha1.Sandbox) bool {
	return r.Processes != nil && !hasNoProcess(sandbox) && sandbox.Status.SandboxIP != "" &&
		sandbox.Status.Phase != v1alpha1.SandboxRecycling && // its process may have been ended
		(!r.IsRunning(client.ObjectKeyFromObject(sandbox), sandbox.UID) || missesToken(sandbox))
}

// missesToken reports whether a sandbox is in a pool of ours, and its agent-runtime, if it has one, got no access token in
// time. All users of the machine could run commands in it. Pools of agent-sandbox give no tokens.
func missesToken(sandbox *v1alpha1.Sandbox) bool {
	pool := v1alpha1.PoolOf(sandbox)
	return pool != nil && pool.Kind != v1alpha1.KindWarmPool && !v1alpha1.OfAgentSandbox(sandbox) && !v1alpha1.HasRuntimeToken(sandbox)
}

// isLost reports whether the process of a sandbox has ended, is open to all users, or was never started: an earlier run
// had no Processes.
func (r agentRuntimes) isLost(ctx context.Context, sandbox *v1alpha1.Sandbox) (bool, error) {
	if !r.mayBeLost(sandbox) {
		return false, nil
	}
	if sandbox.Status.NodeName == ProcessNodeName && !r.IsRunning(client.ObjectKeyFromObject(sandbox), sandbox.UID) {
		return true, nil // whatever its template says now
	}
	declares, err := r.declares(ctx, sandbox)
	if templates.ReasonFor(err) != "" {
		return false, nil // its template is gone
	}
	return declares, err
}

// change starts or ends the process of a sandbox before a status is written that a step leads to.
func (r agentRuntimes) change(ctx context.Context, s step, sandbox *v1alpha1.Sandbox, status *v1alpha1.SandboxStatus) error {
	if r.Processes == nil {
		return nil
	}
	name := client.ObjectKeyFromObject(sandbox)
	if s == clean {
		return r.Stop(name, "")
	}
	// If it runs, the cache is behind, and it may have its token already.
	if s == start && status.SandboxIP != "" && status.Phase != v1alpha1.SandboxFailed && !r.IsRunning(name, sandbox.UID) {
		declares, err := r.declares(ctx, sandbox)
		if err != nil {
			return err
		}
		if declares {
			if err := r.Start(ctx, name, sandbox.UID, status.SandboxIP); err != nil {
				return err
			}
		}
	}
	if !r.IsRunning(name, sandbox.UID) {
		return nil
	}
	if status.Message == runningMessage {
		status.Message = processMessage
	}
	if status.NodeName == NodeName {
		status.NodeName, status.PodInfo.NodeName = ProcessNodeName, ProcessNodeName
	}
	return nil
}

// stopEnded ends the process of a sandbox that has ended, or of an earlier one of its name; nil is one that is gone.
func (r agentRuntimes) stopEnded(name types.NamespacedName, sandbox *v1alpha1.Sandbox) error {
	switch {
	case r.Processes == nil:
		return nil
	case sandbox == nil || hasNoProcess(sandbox):
		return r.Stop(name, "")
	}
	return r.Stop(name, sandbox.UID)
}

// statusLost returns the status of a sandbox whose process has ended, from the one before.
func statusLost(before *v1alpha1.SandboxStatus, generation int64, now time.Time) v1alpha1.SandboxStatus {
	status := *before
	status.Phase, status.Message = v1alpha1.SandboxFailed, lostMessage
	status.SandboxIP, status.PodInfo.PodIP = "", "" // others may listen there now
	setter(&status, generation, now)(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStartContainerFailed, lostMessage)
	return status
}
