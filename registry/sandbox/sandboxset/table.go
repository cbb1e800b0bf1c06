// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/table"
)

// row shortens the column constructors of this kind.
type row = *v1alpha1.SandboxSet

// inlineTemplate stands in the column of template names for a set that has its
// template in itself.
const inlineTemplate = "<inline>"

// NewTableConvertor prints sets. Names and order of the columns are
// OpenKruise's; what Sandlot adds comes after them and only with `-o wide`.
func NewTableConvertor(c clock.PassiveClock) rest.TableConvertor {
	return table.NewConvertor(c,
		table.Name[row](),
		table.Integer("Replicas", "How many unused sandboxes are wanted.",
			func(s row) int32 { return ptr.Deref(s.Spec.Replicas, 0) }),
		table.Integer("Available", "How many sandboxes can be claimed now.",
			func(s row) int32 { return s.Status.AvailableReplicas }),
		table.Integer("UpdatedReplicas", "How many unused sandboxes are made from the current template.",
			func(s row) int32 { return s.Status.UpdatedReplicas }),
		table.Integer("UpdatedAvailableReplicas", "How many sandboxes made from the current template can be claimed now.",
			func(s row) int32 { return s.Status.UpdatedAvailableReplicas }),
		table.String("UpdateRevision", "The hash of the current template.",
			func(s row) string { return table.OrNone(s.Status.UpdateRevision) }),
		table.Age[row](),
		table.Wide(table.Integer("Current", "How many unused sandboxes there are, available or still starting.",
			func(s row) int32 { return s.Status.Replicas })),
		table.Wide(table.String("Template", "The SandboxTemplate that the set refers to.", templateName)),
	)
}

func templateName(s row) string {
	if s.Spec.TemplateRef != nil {
		return table.OrNone(s.Spec.TemplateRef.Name)
	}
	return inlineTemplate
}

// newScaleTableConvertor prints scales as Kubernetes does for its own kinds, for
// `kubectl get --subresource=scale`.
func newScaleTableConvertor(c clock.PassiveClock) rest.TableConvertor {
	return table.NewConvertor(c,
		table.Name[*autoscalingv1.Scale](),
		table.Integer("Desired", "How many unused sandboxes are wanted.",
			func(s *autoscalingv1.Scale) int32 { return s.Spec.Replicas }),
		table.Integer("Available", "How many unused sandboxes there are.",
			func(s *autoscalingv1.Scale) int32 { return s.Status.Replicas }),
		table.Age[*autoscalingv1.Scale](),
	)
}
