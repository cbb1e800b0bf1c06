// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The defaults of fields, as clients of OpenKruise Agents expect them.
const (
	// DefaultClaimReplicas is the default of a claim's replicas.
	DefaultClaimReplicas int32 = 1
	// DefaultClaimTimeout is the default of a claim's claimTimeout.
	DefaultClaimTimeout = time.Minute
	// DefaultTTLAfterCompleted is the default of a claim's ttlAfterCompleted without a
	// lifecycle. With one the claim is kept: its lifecycle says when it ends.
	DefaultTTLAfterCompleted = 60 * time.Minute
	// DefaultWaitReadyTimeout is the default of a claim's waitReadyTimeout.
	DefaultWaitReadyTimeout = 30 * time.Second
	// DefaultUpdateMaxUnavailable is the default of a set's
	// updateStrategy.maxUnavailable.
	DefaultUpdateMaxUnavailable = "20%"
	// DefaultUpgradeTimeoutSeconds is the default of an upgrade command's
	// timeoutSeconds.
	DefaultUpgradeTimeoutSeconds int32 = 60
)

// SetDefaults_SandboxClaim fills in what a claim left out.
//
// createOnNoStock depends on onShortage and warmPool, so they come first: a claim
// that asks to fail on a shortage means a shortage of warm sandboxes, and would
// never fail if fresh ones were made; but one that takes no warm ones cannot mean
// that. An explicit value always wins, because Go clients of OpenKruise Agents
// always send one.
func SetDefaults_SandboxClaim(claim *SandboxClaim) {
	spec := &claim.Spec
	if spec.Replicas == nil {
		replicas := DefaultClaimReplicas
		spec.Replicas = &replicas
	}
	if spec.Allocation == "" {
		spec.Allocation = AllocationBestEffort
	}
	if spec.OnShortage == "" {
		spec.OnShortage = ShortageWait
	}
	if spec.WarmPool == "" {
		spec.WarmPool = WarmPoolDefault
		if claim.Annotations[AnnotationE2BPrewarmStrategy] == WarmPoolNone || spec.Annotations[AnnotationE2BPrewarmStrategy] == WarmPoolNone ||
			NeedsFresh(spec) {
			spec.WarmPool = WarmPoolNone
		}
	}
	if spec.CreateOnNoStock == nil {
		createOnNoStock := spec.OnShortage != ShortageFail || spec.WarmPool == WarmPoolNone
		spec.CreateOnNoStock = &createOnNoStock
	}
	if spec.ReclaimPolicy == "" {
		spec.ReclaimPolicy = ReclaimRetain
	}
	defaultDuration(&spec.ClaimTimeout, DefaultClaimTimeout)
	defaultDuration(&spec.TTLAfterCompleted, TTLAfterCompletedOf(spec))
	defaultDuration(&spec.WaitReadyTimeout, DefaultWaitReadyTimeout)
	if spec.Lifecycle != nil && spec.Lifecycle.ShutdownPolicy == "" {
		spec.Lifecycle.ShutdownPolicy = ShutdownRetain
	}
}

// NeedsFresh reports whether a claim asks for something that only sandboxes made for it
// can have.
func NeedsFresh(spec *SandboxClaimSpec) bool {
	return len(spec.Env) > 0 || len(spec.VolumeClaimTemplates) > 0
}

// SetDefaults_SandboxSet fills in what a set left out.
func SetDefaults_SandboxSet(set *SandboxSet) {
	if set.Spec.UpdateStrategy.MaxUnavailable == nil {
		maxUnavailable := intstr.FromString(DefaultUpdateMaxUnavailable)
		set.Spec.UpdateStrategy.MaxUnavailable = &maxUnavailable
	}
	if defaults := set.Spec.ClaimDefaults; defaults != nil && defaults.Lifecycle != nil && defaults.Lifecycle.ShutdownPolicy == "" {
		defaults.Lifecycle.ShutdownPolicy = ShutdownRetain
	}
}

// SetDefaults_UpgradeAction fills in what an upgrade command left out.
func SetDefaults_UpgradeAction(action *UpgradeAction) {
	if action.TimeoutSeconds == 0 {
		action.TimeoutSeconds = DefaultUpgradeTimeoutSeconds
	}
}

func defaultDuration(field **metav1.Duration, value time.Duration) {
	if *field == nil {
		*field = &metav1.Duration{Duration: value}
	}
}
