// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// SandboxToHub converts a sandbox to what is stored. What is absent gets the meaning that
// it has in this API, in which a sandbox is kept at its shutdownTime.
func SandboxToHub(in *Sandbox, out *hub.Sandbox) {
	out.ObjectMeta = in.ObjectMeta
	spec := &out.Spec
	spec.Template, spec.VolumeClaimTemplates, spec.Service = in.Spec.PodTemplate, in.Spec.VolumeClaimTemplates, in.Spec.Service
	spec.ShutdownTime = in.Spec.ShutdownTime
	spec.ShutdownPolicy = hub.ShutdownPolicy(in.Spec.ShutdownPolicy)
	if spec.ShutdownPolicy == "" {
		spec.ShutdownPolicy = hub.ShutdownRetain
	}
	spec.Paused = in.Spec.OperatingMode == OperatingModeSuspended
}

// SandboxFromHub converts a stored sandbox. A sandbox of a pool is stored with a reference to
// its template, and the storage sets spec.template before the conversion.
func SandboxFromHub(in *hub.Sandbox, out *Sandbox) {
	out.ObjectMeta = in.ObjectMeta
	spec := &out.Spec
	spec.PodTemplate, spec.VolumeClaimTemplates, spec.Service = in.Spec.Template, in.Spec.VolumeClaimTemplates, in.Spec.Service
	spec.ShutdownTime = in.Spec.ShutdownTime
	switch {
	case in.Spec.ShutdownPolicy != "":
		spec.ShutdownPolicy = ShutdownPolicy(in.Spec.ShutdownPolicy)
	case hub.KeptAtShutdown(in):
		spec.ShutdownPolicy = ShutdownRetain
	default:
		spec.ShutdownPolicy = ShutdownDelete
	}
	spec.OperatingMode = OperatingModeRunning
	if in.Spec.Paused {
		spec.OperatingMode = OperatingModeSuspended
	}
	out.Status = StatusOf(in)
}

// StatusOf derives the status that a stored sandbox has in this API. It is pure.
func StatusOf(sandbox *hub.Sandbox) SandboxStatus {
	status := SandboxStatus{
		Conditions:  ConditionsOf(sandbox),
		ServiceFQDN: sandbox.Status.ServiceFQDN,
		NodeName:    sandbox.Status.NodeName,
	}
	if status.ServiceFQDN != "" {
		status.Service = sandbox.Name
	}
	if ip := sandbox.Status.SandboxIP; ip != "" {
		status.PodIPs = []string{ip}
	}
	status.Selector = SelectorOf(sandbox)
	return status
}

// SelectorOf is the label selector for the pod of a sandbox, and empty for one that has
// expired or has no name yet.
func SelectorOf(sandbox *hub.Sandbox) string {
	if sandbox.Name == "" || hub.SandboxExpired(sandbox) {
		return ""
	}
	return hub.AgentLabelNameHash + "=" + hub.NameHash(sandbox.Name)
}
