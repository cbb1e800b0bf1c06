// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package recycle

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
)

// StartingMessage is the message of a sandbox that is being recycled without problems.
const StartingMessage = "The sandbox is being recycled"

// Begin makes a status that of a sandbox which begins to be recycled. Of what its pod did
// nothing stays, its addresses least of all: they may be another pod's soon.
func Begin(status *v1alpha1.SandboxStatus, generation int64, now time.Time) {
	status.Phase, status.Message = v1alpha1.SandboxRecycling, ""
	status.PodInfo, status.NodeName, status.SandboxIP = v1alpha1.PodInfo{}, "", ""
	status.Conditions = nil // also for the time of the one that is set here, see StartedAt
	set(status, v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPodReady, StartingMessage, generation, now)
	set(status, v1alpha1.SandboxConditionRecycling, metav1.ConditionFalse, v1alpha1.ReasonRecyclingStarted, "The pod is being deleted", generation, now)
}

// DeletionRefused notes why the pod of a sandbox that is being recycled is still there.
func DeletionRefused(status *v1alpha1.SandboxStatus, why string, generation int64, now time.Time) {
	set(status, v1alpha1.SandboxConditionRecycling, metav1.ConditionFalse, v1alpha1.ReasonRecyclingStarted, why, generation, now)
}

// Clean notes that the pod of a sandbox that is being recycled is gone.
func Clean(status *v1alpha1.SandboxStatus, generation int64, now time.Time) {
	set(status, v1alpha1.SandboxConditionRecycling, metav1.ConditionFalse, v1alpha1.ReasonRecyclingCompleted, "The pod is gone", generation, now)
}

// Finish notes that a sandbox of a spec, whose new pod is ready, is back in its pool. The
// Service that its user asked for is gone or going.
func Finish(status *v1alpha1.SandboxStatus, spec *v1alpha1.SandboxSpec, generation int64, now time.Time) {
	if status.RecycledCount < math.MaxInt32 {
		status.RecycledCount++
	}
	if spec.Service == nil || !*spec.Service {
		status.ServiceFQDN = ""
	}
	set(status, v1alpha1.SandboxConditionRecycling, metav1.ConditionTrue, v1alpha1.ReasonRecyclingSucceeded, "", generation, now)
}

// Fail notes why a sandbox was not recycled. One of which the pod is gone, or about to be,
// is of no more use.
func Fail(status *v1alpha1.SandboxStatus, reason, message string, generation int64, now time.Time) {
	if status.Phase == v1alpha1.SandboxRecycling {
		status.Phase, status.Message = v1alpha1.SandboxFailed, report.Truncate(message, report.MaxNote)
		set(status, v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPodReady, message, generation, now)
	}
	set(status, v1alpha1.SandboxConditionRecycling, metav1.ConditionFalse, reason, message, generation, now)
}

// IsCleaned reports whether a sandbox is being recycled and its pod is gone.
func IsCleaned(sandbox *v1alpha1.Sandbox) bool {
	return sandbox.Status.Phase == v1alpha1.SandboxRecycling && reasonOf(sandbox) == v1alpha1.ReasonRecyclingCompleted
}

// IsStarting reports whether a sandbox that is being recycled has been given back to its
// pool, and is to get a new pod.
func IsStarting(sandbox *v1alpha1.Sandbox) bool {
	return IsCleaned(sandbox) && v1alpha1.IsInPool(sandbox)
}

// StartedAt is when the recycling of a sandbox began that continues.
func StartedAt(sandbox *v1alpha1.Sandbox) time.Time {
	if c := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionRecycling); c != nil {
		return c.LastTransitionTime.Time // it is False all the time
	}
	return sandbox.CreationTimestamp.Time // another program made it Recycling
}

// IsOf reports whether a sandbox came from the pool of a set of the right name. Claims of
// earlier versions, and other programs that claim, have not noted the set's UID.
func IsOf(sb *v1alpha1.Sandbox, set *v1alpha1.SandboxSet) bool {
	uid, known := sb.Annotations[v1alpha1.AnnotationPoolUID]
	return !known || types.UID(uid) == set.UID
}

// reasonOf is the reason of the condition Recycling of a sandbox, or empty.
func reasonOf(sandbox *v1alpha1.Sandbox) string {
	if c := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionRecycling); c != nil {
		return c.Reason
	}
	return ""
}

func set(status *v1alpha1.SandboxStatus, kind string, value metav1.ConditionStatus, reason, message string, generation int64, now time.Time) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: report.Truncate(message, report.MaxNote),
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), // as it is stored
	})
}
