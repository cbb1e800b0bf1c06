// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestReturnToPool: a binding ends, and a template changes, in the one update that gives a
// cleaned sandbox back to a set, and in no other.
func TestReturnToPool(t *testing.T) {
	old := sandbox(t, func(s *v1alpha1.Sandbox) {
		s.Labels = map[string]string{
			v1alpha1.LabelClaimName: "one", v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue,
			v1alpha1.LabelSandboxPool: "pool", v1alpha1.LabelTemplateHash: "rev", v1alpha1.LabelSandboxTemplate: "before",
		}
		s.Annotations = map[string]string{v1alpha1.AnnotationLock: "x", v1alpha1.AnnotationOwner: "uid"}
		s.Status.Phase = v1alpha1.SandboxRecycling
		s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionRecycling, Reason: v1alpha1.ReasonRecyclingCompleted}}
	})
	back := old.DeepCopy()
	back.Labels = map[string]string{
		v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse, v1alpha1.LabelSandboxPool: "pool",
		v1alpha1.LabelTemplateHash: "rev", v1alpha1.LabelSandboxTemplate: "now",
	}
	back.Annotations = nil
	back.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", UID: "set", Controller: ptr.To(true),
	}}
	back.Spec.Template, back.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "pool-rev"}
	if errs := ValidateSandboxUpdate(back, old); len(errs) > 0 {
		t.Errorf("the return is refused: %v", errs)
	}
	type sb = *v1alpha1.Sandbox
	for name, change := range map[string]func(back, old sb){
		"not recycled":             func(_, old sb) { old.Status.Phase = v1alpha1.SandboxRunning },
		"paused":                   func(_, old sb) { old.Status.Phase = v1alpha1.SandboxPaused },
		"its pod is there":         func(_, old sb) { old.Status.Conditions[0].Reason = v1alpha1.ReasonRecyclingStarted },
		"no condition":             func(_, old sb) { old.Status.Conditions = nil },
		"to no set":                func(back, _ sb) { back.OwnerReferences = nil },
		"a set that controls not":  func(back, _ sb) { back.OwnerReferences[0].Controller = nil },
		"to a claim":               func(back, _ sb) { back.OwnerReferences[0].Kind = "SandboxClaim" },
		"in a pool already":        func(back, old sb) { old.OwnerReferences = back.OwnerReferences },
		"with a lock":              func(back, _ sb) { back.Annotations = map[string]string{v1alpha1.AnnotationLock: "y"} },
		"with another owner":       func(back, _ sb) { back.Annotations = map[string]string{v1alpha1.AnnotationOwner: "y"} },
		"with the name of a claim": func(back, _ sb) { back.Labels[v1alpha1.LabelClaimName] = "two" },
		"claimed":                  func(back, _ sb) { back.Labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedTrue },
	} {
		b, o := back.DeepCopy(), old.DeepCopy()
		change(b, o)
		if errs := ValidateSandboxUpdate(b, o); len(errs) == 0 {
			t.Errorf("%s: is let through", name)
		}
	}
}

// TestPoolOfABoundSandbox: what says to which pool a sandbox may go back is not for its user
// to write.
func TestPoolOfABoundSandbox(t *testing.T) {
	old := sandbox(t, func(s *v1alpha1.Sandbox) {
		s.Labels = map[string]string{v1alpha1.LabelSandboxPool: "pool", v1alpha1.LabelTemplateHash: "rev"}
		s.Annotations = map[string]string{v1alpha1.AnnotationLock: "x", v1alpha1.AnnotationOwner: "uid"}
	})
	changed := old.DeepCopy()
	changed.Labels = map[string]string{v1alpha1.LabelSandboxPool: "gold"}
	const detail = ": Forbidden: is immutable while the sandbox is bound to a claim"
	expect(t, ValidateSandboxUpdate(changed, old), []string{
		"metadata.labels[agents.kruise.io/sandbox-pool]" + detail, "metadata.labels[agents.kruise.io/template-hash]" + detail,
	})
	delete(old.Annotations, v1alpha1.AnnotationOwner)
	delete(changed.Annotations, v1alpha1.AnnotationOwner)
	expect(t, ValidateSandboxUpdate(changed, old), nil)
}
