// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// row shortens the column constructors of this kind.
type row = *v1alpha1.SandboxSet

// inlineTemplate stands in the column of template names for a set that has its
// template in itself.
const inlineTemplate = "<inline>"

// NewTableConvertor prints sets. Names and order of the columns are
// OpenKruise's; what Sandlot adds comes after them and only with `-o wide`.
func NewTableConvertor(c clock.PassiveClock) rest.TableConvertor {
	return base.NewTableConvertor(c,
		base.NameColumn[row](),
		base.IntegerColumn("Replicas", "How many unused sandboxes are wanted.",
			func(s row) int32 { return ptr.Deref(s.Spec.Replicas, 0) }),
		base.IntegerColumn("Available", "How many sandboxes can be claimed now.",
			func(s row) int32 { return s.Status.AvailableReplicas }),
		base.IntegerColumn("UpdatedReplicas", "How many unused sandboxes are made from the current template.",
			func(s row) int32 { return s.Status.UpdatedReplicas }),
		base.IntegerColumn("UpdatedAvailableReplicas", "How many sandboxes made from the current template can be claimed now.",
			func(s row) int32 { return s.Status.UpdatedAvailableReplicas }),
		base.StringColumn("UpdateRevision", "The hash of the current template.",
			func(s row) string { return base.OrNone(s.Status.UpdateRevision) }),
		base.AgeColumn[row](),
		base.Wide(base.IntegerColumn("Current", "How many unused sandboxes there are, available or still starting.",
			func(s row) int32 { return s.Status.Replicas })),
		base.Wide(base.StringColumn("Template", "The SandboxTemplate that the set refers to.", templateName)),
		base.Wide(base.StringColumn("Message", "Why sandboxes cannot start, or that they are starting.", message)),
	)
}

// message is that of the condition Available.
func message(s row) string {
	if available := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SetConditionAvailable); available != nil {
		return available.Message
	}
	return ""
}

func templateName(s row) string {
	if s.Spec.TemplateRef != nil {
		return base.OrNone(s.Spec.TemplateRef.Name)
	}
	return inlineTemplate
}

// newScaleTableConvertor prints scales as Kubernetes does for its own kinds, for
// `kubectl get --subresource=scale`.
func newScaleTableConvertor(c clock.PassiveClock) rest.TableConvertor {
	return base.NewTableConvertor(c,
		base.NameColumn[*autoscalingv1.Scale](),
		base.IntegerColumn("Desired", "How many unused sandboxes are wanted.",
			func(s *autoscalingv1.Scale) int32 { return s.Spec.Replicas }),
		base.IntegerColumn("Available", "How many unused sandboxes there are.",
			func(s *autoscalingv1.Scale) int32 { return s.Status.Replicas }),
		base.AgeColumn[*autoscalingv1.Scale](),
	)
}
