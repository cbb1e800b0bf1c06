// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"fmt"

	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// row shortens the column constructors of this kind.
type row = *v1alpha1.SandboxClaim

// NewTableConvertor prints claims. Names and order of the columns are
// OpenKruise's; what Sandlot adds comes after them and only with `-o wide`.
func NewTableConvertor(c clock.PassiveClock) rest.TableConvertor {
	return base.NewTableConvertor(c,
		base.NameColumn[row](),
		base.StringColumn("Phase", "Claiming, or Completed when nothing more will be claimed.",
			func(claim row) string { return base.OrNone(string(claim.Status.Phase)) }),
		base.StringColumn("Template", "The SandboxSet or SandboxTemplate that is claimed from.", template),
		base.IntegerColumn("Desired", "How many sandboxes are wanted.",
			func(claim row) int32 { return ptr.Deref(claim.Spec.Replicas, v1alpha1.DefaultClaimReplicas) }),
		base.IntegerColumn("Claimed", "How many sandboxes have been claimed.",
			func(claim row) int32 { return claim.Status.ClaimedReplicas }),
		base.AgeColumn[row](),
		base.Wide(base.StringColumn("Sandboxes", "The claimed sandboxes: the first, and how many more.", sandboxes)),
		base.Wide(base.StringColumn("IP", "The address of the first claimed sandbox.", address)),
		base.Wide(base.StringColumn("ClaimedBy", "The user who created the claim.",
			func(claim row) string { return base.OrNone(claim.Annotations[v1alpha1.AnnotationClaimedBy]) })),
		base.Wide(base.StringColumn("Message", "How far the claim has come, in words.",
			func(claim row) string { return claim.Status.Message })),
	)
}

func template(claim row) string {
	if ref := claim.Spec.SandboxTemplateRef; claim.Spec.TemplateName == "" && ref != nil {
		return base.OrNone(ref.Name)
	}
	return base.OrNone(claim.Spec.TemplateName)
}

// sandboxes names one sandbox only: a claim can hold thousands.
func sandboxes(claim row) string {
	switch n := len(claim.Status.Sandboxes); n {
	case 0:
		return base.None
	case 1:
		return claim.Status.Sandboxes[0].Name
	default:
		return fmt.Sprintf("%s +%d more", claim.Status.Sandboxes[0].Name, n-1)
	}
}

func address(claim row) string {
	if len(claim.Status.Sandboxes) == 0 || len(claim.Status.Sandboxes[0].PodIPs) == 0 {
		return base.None
	}
	return claim.Status.Sandboxes[0].PodIPs[0]
}
