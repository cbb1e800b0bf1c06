// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Observe records in the status of a sandbox that a controller has seen this generation of
// its spec: in the status, and in each condition, also in those that the spec does not
// change. kubectl wait and deployment tools ignore a condition of an older generation.
//
// The conditions of an agent-runtime that is still to be set up are left alone: their
// generation belongs to the attempt. They follow when it has ended.
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

func isOfSetup(c *metav1.Condition) bool {
	return c.Type == v1alpha1.SandboxConditionRuntimeInitialized || c.Type == v1alpha1.SandboxConditionVolumesMounted
}
