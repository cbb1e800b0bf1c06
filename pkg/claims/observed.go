// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Observe sets observedGeneration in the status of a sandbox and in each of its conditions, also
// in those that the change of the spec does not affect. kubectl wait and deployment tools ignore
// a condition of an older generation.
//
// The conditions of an agent-runtime whose setup is pending are left alone, because their
// generation is that of the attempt. They follow when the setup has ended.
func Observe(status *v1alpha1.SandboxStatus, generation int64) {
	status.ObservedGeneration = generation
	pending := SetupPending(status)
	for i := range status.Conditions {
		if c := &status.Conditions[i]; !pending || !isOfSetup(c) {
			c.ObservedGeneration = max(c.ObservedGeneration, generation)
		}
	}
}

// IsObserved reports whether Observe would change nothing.
func IsObserved(status *v1alpha1.SandboxStatus, generation int64) bool {
	if status.ObservedGeneration != generation {
		return false
	}
	pending := SetupPending(status)
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.ObservedGeneration < generation && (!pending || !isOfSetup(c)) {
			return false
		}
	}
	return true
}

// isOfSetup reports whether a condition is about the setup of an agent-runtime.
func isOfSetup(c *metav1.Condition) bool {
	return c.Type == v1alpha1.SandboxConditionRuntimeInitialized || c.Type == v1alpha1.SandboxConditionVolumesMounted
}
