// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// AnnotationSafeToEvict on a pod tells the cluster autoscaler whether it may evict the
	// pod to take its node away: SafeToEvict is that it may. On a sandbox of a pool it says
	// what its pod has.
	AnnotationSafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// SafeToEvict is the value of AnnotationSafeToEvict of pods that may be evicted.
	SafeToEvict = "true"
)

// IsAgentSandboxPool reports whether a set is a warm pool in the sense of agent-sandbox, which has
// rules of its own for unused sandboxes: its update type is one of agent-sandbox's, as
// that of every SandboxWarmPool is by default.
func IsAgentSandboxPool(set *SandboxSet) bool {
	switch set.Spec.UpdateStrategy.Type {
	case SetUpdateRecreate, SetUpdateOnReplenish:
		return true
	}
	return false
}
