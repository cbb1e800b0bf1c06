// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
)

// recycleSandbox does the pod's part of recycling: it deletes the pod and, once the sandbox has
// been given back to its pool, creates a new one. What comes in between is not done here. A
// pause that is asked for meanwhile comes after that.
func recycleSandbox(o *observation, p *plan) {
	switch {
	case recycle.IsStarting(o.sandbox):
		run(o, p)
		switch p.status.Phase {
		case v1alpha1.SandboxRunning:
			recycle.Finish(&p.status, &o.sandbox.Spec, o.sandbox.Generation, o.now)
		case v1alpha1.SandboxFailed, v1alpha1.SandboxSucceeded:
			recycle.Fail(&p.status, v1alpha1.ReasonRecyclingFailed, p.status.Message, o.sandbox.Generation, o.now)
		}
	case recycle.IsCleaned(o.sandbox):
	case o.ownsPod():
		if o.pod.DeletionTimestamp == nil {
			p.action = actionRemove
		}
	case !o.isFromServer:
		p.action = actionReadFromServer
	default:
		recycle.Clean(&p.status, o.sandbox.Generation, o.now)
	}
}

// isRecycling reports whether a sandbox is being recycled.
func isRecycling(sandbox *v1alpha1.Sandbox) bool {
	return sandbox.Status.Phase == v1alpha1.SandboxRecycling
}
