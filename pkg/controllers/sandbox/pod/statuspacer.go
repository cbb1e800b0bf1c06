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
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/writepace"
)

// statusPacer delays writes of the status for changes that a process in a sandbox can repeat without
// end. All other changes are rare, such as a new phase, or follow a request of a user. They are
// written at once.
type statusPacer struct {
	// readiness delays changes of conditions and messages, and addresses changes of the address.
	// They are separate, so a new address does not wait because readiness has changed often.
	readiness, addresses *writepace.Pacer
}

func newStatusPacer(c clock.PassiveClock) statusPacer {
	return statusPacer{writepace.New(c), writepace.New(c)}
}

// delay returns how long the write of a changed status of a sandbox must wait.
func (s *statusPacer) delay(key types.NamespacedName, before *v1alpha1.Sandbox, after *v1alpha1.SandboxStatus) time.Duration {
	if pacer := s.pacerFor(before, after); pacer != nil {
		return pacer.Delay(key)
	}
	return 0
}

// recordWrite records that a changed status was written.
func (s *statusPacer) recordWrite(before, after *v1alpha1.Sandbox) {
	if pacer := s.pacerFor(before, &after.Status); pacer != nil {
		pacer.RecordWrite(after)
	}
}

// forget removes the state of a deleted sandbox.
func (s *statusPacer) forget(key types.NamespacedName) {
	s.readiness.Forget(key)
	s.addresses.Forget(key)
}

// pacerFor returns the pacer that delays a change of the status; nil if it must not be delayed.
func (s *statusPacer) pacerFor(sandbox *v1alpha1.Sandbox, after *v1alpha1.SandboxStatus) *writepace.Pacer {
	before := &sandbox.Status
	if isRuntimeRestarted(before) != isRuntimeRestarted(after) {
		return nil // the API server waits for it, or clients do
	}
	rest := ignoreRepeatable(before, after)
	if !restartIsRepeatable(sandbox) {
		rest.PodInfo.RestartCount = after.PodInfo.RestartCount
	}
	if equality.Semantic.DeepEqual(before, rest) {
		return s.readiness
	}
	if before.SandboxIP != "" && after.SandboxIP == "" {
		return nil // write at once: another pod may get the address
	}
	rest.SandboxIP, rest.PodInfo.PodIP = before.SandboxIP, before.PodInfo.PodIP
	if equality.Semantic.DeepEqual(before, rest) {
		return s.addresses
	}
	return nil
}

// ignoreRepeatable returns a copy of after in which the message, the restarts and the conditions that
// a process in the sandbox can change are as in before. If the copy equals before, nothing else has
// changed.
func ignoreRepeatable(before, after *v1alpha1.SandboxStatus) *v1alpha1.SandboxStatus {
	rest := *after
	rest.Message = before.Message
	rest.PodInfo.RestartCount = before.PodInfo.RestartCount
	rest.Conditions = slices.Clone(after.Conditions)
	for i := range rest.Conditions {
		is := &rest.Conditions[i]
		if was := meta.FindStatusCondition(before.Conditions, is.Type); was != nil && isRepeatable(was, is) {
			*is = *was
		}
	}
	return &rest
}

// isRuntimeRestarted reports whether a sandbox is not Ready because its agent-runtime is set up again
// after a restart.
func isRuntimeRestarted(status *v1alpha1.SandboxStatus) bool {
	return hasReason(status.Conditions, v1alpha1.SandboxConditionReady, v1alpha1.ReasonRuntimeRestarted)
}

// restartIsRepeatable reports whether the write of a restart can be delayed. It is written at once if
// the agent-runtime has a token, or is to get one: a runtime that was restarted has no token, and
// nothing may reach it until it has one again. The kubelet delays restarts. While that of a sandbox in
// use is set up, further restarts can wait: nothing reaches it.
func restartIsRepeatable(sandbox *v1alpha1.Sandbox) bool {
	return !isPrepared(sandbox) && claims.SetupPending(&sandbox.Status) ||
		meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized) == nil
}

// isRepeatable reports whether a process in the sandbox can repeat a change of a condition without
// end. A change for another generation follows a request of a user, so it is not repeatable.
func isRepeatable(was, is *metav1.Condition) bool {
	if was.ObservedGeneration != is.ObservedGeneration {
		return false
	}
	switch is.Type {
	case v1alpha1.SandboxConditionReady, v1alpha1.SandboxConditionSchedulingGated:
		return true
	}
	return was.Status == is.Status && was.Reason == is.Reason
}
