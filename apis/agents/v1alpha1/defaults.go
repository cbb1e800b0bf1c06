// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "github.com/sandlot-io/sandlot/apis/agents/v1beta1"

// DefaultReplicas is the default of a sandbox's replicas.
const DefaultReplicas int32 = 1

// SetDefaults_Sandbox fills in what a sandbox left out.
func SetDefaults_Sandbox(sandbox *Sandbox) {
	spec := &sandbox.Spec
	if spec.ShutdownPolicy == "" {
		spec.ShutdownPolicy = v1beta1.ShutdownRetain
	}
	if spec.Replicas == nil {
		replicas := DefaultReplicas
		spec.Replicas = &replicas
	}
}
