// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentsandbox

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	agents "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	extensions "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Names and order of all columns are those of agent-sandbox, for scripts cut them out of
// lines. A cell without a value is <none> where agent-sandbox leaves it empty, because the
// cell after it would be taken for it.

// newClaimTable prints claims.
func newClaimTable(c clock.PassiveClock) rest.TableConvertor {
	type row = *v1alpha1.SandboxClaim
	return base.NewTableConvertor(c,
		base.NameColumn[row](),
		base.StringColumn("Ready", "Whether the sandbox of the claim can be used.",
			func(claim row) string { return readyStatus(claim.Status.Conditions) }),
		base.StringColumn("Sandbox", "The sandbox of the claim.", sandboxOf),
		base.StringColumn("Reason", "Why the sandbox can or cannot be used.",
			func(claim row) string { return readyReason(claim.Status.Conditions) }),
		base.AgeColumn[row](),
	)
}

func sandboxOf(claim *v1alpha1.SandboxClaim) string {
	return cmp.Or(extensions.SandboxOf(claim).Name, base.None)
}

// newTemplateTable prints templates.
func newTemplateTable(c clock.PassiveClock) rest.TableConvertor {
	type row = *v1alpha1.SandboxTemplate
	return base.NewTableConvertor(c, base.NameColumn[row](), base.AgeColumn[row]())
}

// newWarmPoolTable prints warm pools.
func newWarmPoolTable(c clock.PassiveClock) rest.TableConvertor {
	type row = *v1alpha1.SandboxSet
	return base.NewTableConvertor(c,
		base.NameColumn[row](),
		base.IntegerColumn("Ready", "How many sandboxes can be claimed now.", func(set row) int32 { return set.Status.AvailableReplicas }),
		base.IntegerColumn("Desired", "How many sandboxes are wanted.", func(set row) int32 { return ptr.Deref(set.Spec.Replicas, 0) }),
		base.AgeColumn[row](),
		base.Wide(base.StringColumn("Reason", "Reason of TemplateResolved or Available, if it is False.", func(set row) string { return falseCondition(set).Reason })),
		base.Wide(base.StringColumn("Message", "Message of that condition.", func(set row) string { return falseCondition(set).Message })),
	)
}

// falseCondition returns the reason and message of TemplateResolved if it is False, else those of
// Available if that is False.
func falseCondition(set *v1alpha1.SandboxSet) metav1.Condition {
	for _, kind := range []string{v1alpha1.SetConditionTemplateResolved, v1alpha1.SetConditionAvailable} {
		if is := meta.FindStatusCondition(set.Status.Conditions, kind); is != nil && is.Status == metav1.ConditionFalse {
			return metav1.Condition{Reason: is.Reason, Message: base.OrNone(is.Message)}
		}
	}
	return metav1.Condition{Reason: base.None, Message: base.None}
}

// newSandboxTable prints sandboxes. What they say here is worked out when they are shown.
func newSandboxTable(c clock.PassiveClock, scheme *runtime.Scheme) rest.TableConvertor {
	type row = *v1alpha1.Sandbox
	conditions := func(sandbox row) []metav1.Condition {
		shown := &agents.Sandbox{}
		if err := scheme.Convert(sandbox, shown, nil); err != nil {
			return nil
		}
		return shown.Status.Conditions
	}
	return base.NewTableConvertor(c,
		base.NameColumn[row](),
		base.StringColumn("Ready", "Whether the sandbox can be used.", func(sandbox row) string { return readyStatus(conditions(sandbox)) }),
		base.StringColumn("Reason", "Why it can or cannot be used.", func(sandbox row) string { return readyReason(conditions(sandbox)) }),
		base.AgeColumn[row](),
	)
}

func readyStatus(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ClaimConditionReady); ready != nil {
		return string(ready.Status)
	}
	return base.None
}

func readyReason(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ClaimConditionReady); ready != nil {
		return base.OrNone(ready.Reason)
	}
	return base.None
}
