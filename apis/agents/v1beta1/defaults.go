// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// SetDefaults_Sandbox fills in what a sandbox left out.
func SetDefaults_Sandbox(sandbox *Sandbox) {
	if sandbox.Spec.OperatingMode == "" {
		sandbox.Spec.OperatingMode = OperatingModeRunning
	}
	if sandbox.Spec.ShutdownPolicy == "" {
		sandbox.Spec.ShutdownPolicy = ShutdownRetain
	}
}
