// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// sandboxToHub converts a sandbox to what is stored: one of no replicas is suspended.
func sandboxToHub(in *Sandbox, out *hub.Sandbox) {
	mode := v1beta1.OperatingModeRunning
	if replicas := in.Spec.Replicas; replicas != nil && *replicas == 0 {
		mode = v1beta1.OperatingModeSuspended
	}
	v1beta1.SandboxToHub(&v1beta1.Sandbox{
		ObjectMeta: in.ObjectMeta,
		Spec: v1beta1.SandboxSpec{
			SandboxBlueprint: in.Spec.SandboxBlueprint,
			ShutdownTime:     in.Spec.ShutdownTime,
			ShutdownPolicy:   in.Spec.ShutdownPolicy,
			OperatingMode:    mode,
		},
	}, out)
}

// sandboxFromHub converts a stored sandbox.
func sandboxFromHub(in *hub.Sandbox, out *Sandbox) {
	var sandbox v1beta1.Sandbox
	v1beta1.SandboxFromHub(in, &sandbox)
	replicas := DefaultReplicas
	if sandbox.Spec.OperatingMode == v1beta1.OperatingModeSuspended {
		replicas = 0
	}
	out.ObjectMeta = sandbox.ObjectMeta
	out.Spec = SandboxSpec{
		SandboxBlueprint: sandbox.Spec.SandboxBlueprint,
		ShutdownTime:     sandbox.Spec.ShutdownTime,
		ShutdownPolicy:   sandbox.Spec.ShutdownPolicy,
		Replicas:         &replicas,
	}
	out.Status.SandboxStatus = sandbox.Status
	if v1beta1.HasPod(in) {
		out.Status.Replicas = 1
	}
}
