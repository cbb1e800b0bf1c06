// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// row shortens the column constructors of this kind.
type row = *v1alpha1.SandboxClaim

// NewTableConvertor prints claims. Names and order of the first columns are
// OpenKruise's; what Sandlot adds comes after them. ahead returns how many claims have their turn
// before one that waits, or false.
func NewTableConvertor(c clock.PassiveClock, ahead func(*v1alpha1.SandboxClaim) (int, bool)) rest.TableConvertor {
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
		base.StringColumn("Status", statusDescription, status),
		base.StringColumn("Sandbox", "The claimed sandbox, or the first of several, and how many more there are.", sandboxes),
		base.StringColumn("IP", "The address of the first claimed sandbox.", address),
		base.Wide(base.StringColumn("ClaimedBy", "The user who created the claim.",
			func(claim row) string { return base.OrNone(claim.Annotations[v1alpha1.AnnotationClaimedBy]) })),
		base.Wide(base.StringColumn("Ahead", "How many claims of the namespace have their turn before this one, which waits for pools. An estimate where several users wait.",
			func(claim row) string {
				switch n, waits := ahead(claim); {
				case !waits:
					return base.None
				case n >= allocator.MaxAhead:
					return fmt.Sprintf("%d+", n)
				default:
					return strconv.Itoa(n)
				}
			})),
		base.Wide(base.StringColumn("Message", "How far the claim has come, in words.",
			func(claim row) string { return claim.Status.Message })),
	)
}

const statusDescription = "What has come of the claim: Waiting, or once nothing more will be claimed Complete, Partial or None. " +
	"Of one that got all: NotReady or Finished, by its sandboxes. Expired when its lifecycle is over, Terminating while it is deleted."

// status says what has come of a claim, which its phase does not: that is Completed also of
// one that got nothing.
func status(claim row) string {
	conditions, wanted := claim.Status.Conditions, ptr.Deref(claim.Spec.Replicas, v1alpha1.DefaultClaimReplicas)
	switch claimed := claim.Status.ClaimedReplicas; {
	case claim.DeletionTimestamp != nil:
		return "Terminating"
	case claim.Status.Phase == v1alpha1.SandboxClaimPhaseClaiming:
		return "Waiting"
	case claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted:
		return base.None
	case claimed == 0:
		return "None"
	case claimed < wanted:
		return "Partial"
	case v1alpha1.HasExpired(claim):
		return "Expired"
	case meta.IsStatusConditionTrue(conditions, v1alpha1.ClaimConditionFinished):
		return "Finished"
	case meta.IsStatusConditionFalse(conditions, v1alpha1.ClaimConditionReady):
		return "NotReady"
	}
	return "Complete"
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
		return fmt.Sprintf("%s +%d", claim.Status.Sandboxes[0].Name, n-1)
	}
}

func address(claim row) string {
	if len(claim.Status.Sandboxes) == 0 || len(claim.Status.Sandboxes[0].PodIPs) == 0 {
		return base.None
	}
	return claim.Status.Sandboxes[0].PodIPs[0]
}
