// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/writepace"
)

// flips spaces the writes of statuses for changes that a process in a sandbox can cause again and
// again. All other changes, such as those of the phase, happen a few times in the life of a sandbox
// or for each request of a user, and are written at once.
type flips struct {
	// readiness is for changes of what says how the pod is, and addresses for those of its
	// address. A new address does not wait because of readiness.
	readiness, addresses *writepace.Pacer
}

func newFlips(c clock.PassiveClock) flips {
	return flips{writepace.New(c), writepace.New(c)}
}

// left returns for how long a change of the status must wait.
func (f *flips) left(key types.NamespacedName, before, after *v1alpha1.SandboxStatus) time.Duration {
	if pacer := f.pacerFor(before, after); pacer != nil {
		return pacer.Left(key)
	}
	return 0
}

// wrote records a change of the status that was written.
func (f *flips) wrote(before *v1alpha1.SandboxStatus, after *v1alpha1.Sandbox) {
	if pacer := f.pacerFor(before, &after.Status); pacer != nil {
		pacer.Wrote(after)
	}
}

// forget drops what is remembered of a sandbox that is gone.
func (f *flips) forget(key types.NamespacedName) {
	f.readiness.Forget(key)
	f.addresses.Forget(key)
}

// pacerFor returns what spaces a change of the status; nil is nothing.
func (f *flips) pacerFor(before, after *v1alpha1.SandboxStatus) *writepace.Pacer {
	same := withConditionsOf(before, after)
	if equality.Semantic.DeepEqual(before, same) {
		return f.readiness
	}
	if before.SandboxIP != "" && after.SandboxIP == "" {
		return nil // it may be the address of another pod soon
	}
	same.SandboxIP, same.PodInfo.PodIP = before.SandboxIP, before.PodInfo.PodIP
	if equality.Semantic.DeepEqual(before, same) {
		return f.addresses
	}
	return nil
}

// withConditionsOf returns a status with what it says of the state of the pod as it was before:
// Ready and SchedulingGated, and messages. A condition that is about another generation stays as it
// is.
func withConditionsOf(before, after *v1alpha1.SandboxStatus) *v1alpha1.SandboxStatus {
	same := *after
	same.Message = before.Message
	same.Conditions = slices.Clone(after.Conditions)
	for i := range same.Conditions {
		is := &same.Conditions[i]
		if was := meta.FindStatusCondition(before.Conditions, is.Type); was != nil && onlyFlips(was, is) {
			*is = *was
		}
	}
	return &same
}

// onlyFlips reports whether a condition changes in nothing but what a process in the sandbox can
// cause.
func onlyFlips(was, is *metav1.Condition) bool {
	if was.ObservedGeneration != is.ObservedGeneration {
		return false
	}
	switch is.Type {
	case v1alpha1.SandboxConditionReady, v1alpha1.SandboxConditionSchedulingGated:
		return true
	}
	return was.Status == is.Status && was.Reason == is.Reason
}
