// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/table"
)

// row shortens the column constructors of this kind.
type row = *v1alpha1.Sandbox

// NewTableConvertor prints sandboxes. Names and order of the columns are
// OpenKruise's, odd spelling included, because scripts cut them out of lines;
// what Sandlot adds comes after them and only with `-o wide`.
func NewTableConvertor(c clock.PassiveClock) rest.TableConvertor {
	return table.NewConvertor(c,
		table.Name[row](),
		table.String("Status", "Where the sandbox is in its life.",
			func(s row) string { return table.OrNone(string(s.Status.Phase)) }),
		table.Age[row](),
		table.String("Claimed", "Whether a claim has taken the sandbox.",
			func(s row) string { return table.OrNone(s.Labels[v1alpha1.LabelSandboxClaimed]) }),
		table.String("shutdown_time", "When the sandbox is deleted.",
			func(s row) string { return table.Time(s.Spec.ShutdownTime) }),
		table.String("pause_time", "When the sandbox is paused.",
			func(s row) string { return table.Time(s.Spec.PauseTime) }),
		table.Integer("RecycledCount", "How often the sandbox went back to its pool.",
			func(s row) int32 { return s.Status.RecycledCount }),
		table.String("Message", "The reason for the status in words.",
			func(s row) string { return s.Status.Message }),
		table.Wide(table.String("IP", "The address of the sandbox.", address)),
		table.Wide(table.String("Node", "The node that the sandbox runs on.", node)),
		table.Wide(table.String("Pool", "The SandboxSet that made the sandbox.",
			func(s row) string { return table.OrNone(s.Labels[v1alpha1.LabelSandboxPool]) })),
		table.Wide(table.String("Claim", "The claim that has taken the sandbox.",
			func(s row) string { return table.OrNone(s.Labels[v1alpha1.LabelClaimName]) })),
	)
}

func address(s row) string {
	if s.Status.SandboxIP != "" {
		return s.Status.SandboxIP
	}
	return table.OrNone(s.Status.PodInfo.PodIP)
}

func node(s row) string {
	if s.Status.NodeName != "" {
		return s.Status.NodeName
	}
	return table.OrNone(s.Status.PodInfo.NodeName)
}
