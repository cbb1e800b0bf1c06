// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// row shortens the column constructors of this kind.
type row = *v1alpha1.Sandbox

// NewTableConvertor prints sandboxes. Names and order of the columns are
// OpenKruise's, odd spelling included, because scripts cut them out of lines;
// what Sandlot adds comes after them and only with `-o wide`.
func NewTableConvertor(c clock.PassiveClock) rest.TableConvertor {
	return base.NewTableConvertor(c,
		base.NameColumn[row](),
		base.StringColumn("Status", "Where the sandbox is in its life.",
			func(s row) string { return base.OrNone(string(s.Status.Phase)) }),
		base.AgeColumn[row](),
		base.StringColumn("Claimed", "Whether a claim has taken the sandbox.",
			func(s row) string { return base.OrNone(s.Labels[v1alpha1.LabelSandboxClaimed]) }),
		base.StringColumn("shutdown_time", "When the sandbox is deleted.",
			func(s row) string { return base.FormatTime(s.Spec.ShutdownTime) }),
		base.StringColumn("pause_time", "When the sandbox is paused.",
			func(s row) string { return base.FormatTime(s.Spec.PauseTime) }),
		base.IntegerColumn("RecycledCount", "How often the sandbox went back to its pool.",
			func(s row) int32 { return s.Status.RecycledCount }),
		base.StringColumn("Message", "The reason for the status in words.", message),
		base.Wide(base.StringColumn("IP", "The address of the sandbox.", address)),
		base.Wide(base.StringColumn("Node", "The node that the sandbox runs on.", node)),
		base.Wide(base.StringColumn("Pool", "The SandboxSet that made the sandbox.",
			func(s row) string { return base.OrNone(s.Labels[v1alpha1.LabelSandboxPool]) })),
		base.Wide(base.StringColumn("Claim", "The claim that has taken the sandbox.",
			func(s row) string { return base.OrNone(s.Labels[v1alpha1.LabelClaimName]) })),
		base.Wide(base.StringColumn("ClaimedBy", "The user whose claim has taken the sandbox.",
			func(s row) string { return base.OrNone(s.Annotations[v1alpha1.AnnotationClaimedBy]) })),
	)
}

// message is what the status says, and what the condition Ready says where that says
// nothing, or only that the pod is gone.
func message(s row) string {
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SandboxConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return s.Status.Message
	}
	why := ready.Message
	switch {
	case ready.Reason == v1alpha1.ReasonPodReady: // it goes with either status, and tells nothing
	case why == "":
		why = ready.Reason
	default:
		why = ready.Reason + ": " + why
	}
	switch {
	case s.Status.Message == "":
		return why
	case s.Status.Phase == v1alpha1.SandboxFailed && why != "":
		return s.Status.Message + ": " + why
	}
	return s.Status.Message
}

func address(s row) string {
	if s.Status.SandboxIP != "" {
		return s.Status.SandboxIP
	}
	return base.OrNone(s.Status.PodInfo.PodIP)
}

func node(s row) string {
	if s.Status.NodeName != "" {
		return s.Status.NodeName
	}
	return base.OrNone(s.Status.PodInfo.NodeName)
}
