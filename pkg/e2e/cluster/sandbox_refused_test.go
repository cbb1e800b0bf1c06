// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestSandboxPodIsKept has a policy that lets no one change or delete pods. The
// status continues all the same, and says why the sandbox is not paused; when the
// policy goes, it is.
func TestSandboxPodIsKept(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeSandbox(t, ns, "box", smallTemplate)
	c.awaitSandbox(t, ns, "box", isReady)
	before := c.pod(t, ns, "box")
	const says = "pods stay as they are"
	allow := c.keepPods(t, ns, says)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		err := ofCluster(t).CoreV1().Pods(ns).Delete(ctx, "box", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("not denied: %w", err)
		}
		return nil
	})

	patched := c.patchSandbox(t, ns, "box", `{"spec":{"template":{"metadata":{"labels":{"new":"label"}}}}}`)
	if event := c.awaitEvent(t, patched, corev1.EventTypeWarning, "PodUpdateFailed"); !strings.Contains(event.Note, says) || event.Regarding.ResourceVersion != "" {
		t.Errorf("event %q about %+v", event.Note, event.Regarding)
	}
	c.awaitSandbox(t, ns, "box", isReady) // at the generation of the patch

	c.patchSandbox(t, ns, "box", `{"spec":{"paused":true}}`)
	paused := c.awaitSandbox(t, ns, "box", func(s *v1alpha1.Sandbox) error {
		condition := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SandboxConditionPaused)
		if condition == nil || !strings.Contains(condition.Message, says) {
			return fmt.Errorf("not told: %+v", condition)
		}
		return hasCondition(v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonPending)(s)
	})
	if event := c.awaitEvent(t, paused, corev1.EventTypeWarning, "PodDeleteFailed"); !strings.Contains(event.Note, says) {
		t.Errorf("event %q", event.Note)
	}
	if got := c.pod(t, ns, "box"); got.UID != before.UID || got.DeletionTimestamp != nil || got.Labels["new"] != "" {
		t.Errorf("pod %s with labels %v, deleted %v; before %s", got.UID, got.Labels, got.DeletionTimestamp, before.UID)
	}

	allow()
	c.awaitSandbox(t, ns, "box", hasCondition(v1alpha1.SandboxConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonStopPauseSucceed))
	c.awaitNoPod(t, ns, "box")
}

// keepPods denies all changes and deletions of the pods of a namespace, until the
// returned function is called.
func (c *clients) keepPods(t testing.TB, ns, message string) func() {
	t.Helper()
	match := matchCreate(ns, "pods")
	match.ResourceRules[0].RuleWithOperations = admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update, admissionregistrationv1.Delete},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}
	api := c.kube.AdmissionregistrationV1()
	policy, err := api.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: match,
			Validations: []admissionregistrationv1.Validation{{
				Expression: "false", Message: message, Reason: new(metav1.StatusReasonForbidden),
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, api.ValidatingAdmissionPolicies().Delete, policy.Name)
	bindings := api.ValidatingAdmissionPolicyBindings()
	if _, err := bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        policy.Name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, bindings.Delete, policy.Name)
	return func() {
		t.Helper()
		patch := []byte(`{"spec":{"validationActions":["Warn"]}}`)
		if _, err := bindings.Patch(t.Context(), ns, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
