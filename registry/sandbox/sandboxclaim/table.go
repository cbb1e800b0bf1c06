// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"fmt"

	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/table"
)

// row shortens the column constructors of this kind.
type row = *v1alpha1.SandboxClaim

// NewTableConvertor prints claims. Names and order of the columns are
// OpenKruise's; what Sandlot adds comes after them and only with `-o wide`.
func NewTableConvertor(c clock.PassiveClock) rest.TableConvertor {
	return table.NewConvertor(c,
		table.Name[row](),
		table.String("Phase", "Claiming, or Completed when nothing more will be claimed.",
			func(claim row) string { return table.OrNone(string(claim.Status.Phase)) }),
		table.String("Template", "The SandboxSet or SandboxTemplate that is claimed from.", template),
		table.Integer("Desired", "How many sandboxes are wanted.",
			func(claim row) int32 { return ptr.Deref(claim.Spec.Replicas, v1alpha1.DefaultClaimReplicas) }),
		table.Integer("Claimed", "How many sandboxes have been claimed.",
			func(claim row) int32 { return claim.Status.ClaimedReplicas }),
		table.Age[row](),
		table.Wide(table.String("Sandboxes", "The claimed sandboxes: the first, and how many more.", sandboxes)),
		table.Wide(table.String("IP", "The address of the first claimed sandbox.", address)),
		table.Wide(table.String("ClaimedBy", "The user who created the claim.",
			func(claim row) string { return table.OrNone(claim.Annotations[v1alpha1.AnnotationClaimedBy]) })),
		table.Wide(table.String("Message", "How far the claim has come, in words.",
			func(claim row) string { return claim.Status.Message })),
	)
}

func template(claim row) string {
	if ref := claim.Spec.SandboxTemplateRef; claim.Spec.TemplateName == "" && ref != nil {
		return table.OrNone(ref.Name)
	}
	return table.OrNone(claim.Spec.TemplateName)
}

// sandboxes names one sandbox only: a claim can hold thousands.
func sandboxes(claim row) string {
	switch n := len(claim.Status.Sandboxes); n {
	case 0:
		return table.None
	case 1:
		return claim.Status.Sandboxes[0].Name
	default:
		return fmt.Sprintf("%s +%d more", claim.Status.Sandboxes[0].Name, n-1)
	}
}

func address(claim row) string {
	if len(claim.Status.Sandboxes) == 0 || len(claim.Status.Sandboxes[0].PodIPs) == 0 {
		return table.None
	}
	return claim.Status.Sandboxes[0].PodIPs[0]
}
