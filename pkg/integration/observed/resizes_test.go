// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestResizesAreCounted: by how they went, each once.
func TestResizesAreCounted(t *testing.T) {
	s := testutil.Start(t, testutil.WithOptions(func(o *options.Options) { o.SyncWindow = 0 }))
	agents := s.Client.AgentsV1alpha1()
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "python"}}
	template.Spec.Template = &runtime.RawExtension{
		Raw: []byte(`{"spec":{"containers":[{"name":"main","image":"busybox","resources":{"requests":{"cpu":"4"}}}]}}`),
	}
	template, err := agents.SandboxTemplates(namespace).Create(t.Context(), template, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Stock(t, s.SetOf(t, template, "large", `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}]}}`, 3), 0, 3)
	before := scrapeOf(t, s.Config, s.Config.Host+"/metrics")
	counted := func(result string) float64 {
		now := scrapeOf(t, s.Config, s.Config.Host+"/metrics")
		return now.value("sandlot_claim_resizes_total", "result="+result) - before.value("sandlot_claim_resizes_total", "result="+result)
	}
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Name: "resized"}, Spec: v1alpha1.SandboxClaimSpec{
		SandboxTemplateRef: &v1alpha1.SandboxClaimTemplateRef{Name: "python"}, Replicas: new(int32(3)), CreateOnNoStock: new(false),
		ClaimTimeout:     &metav1.Duration{Duration: 10 * time.Minute},
		WaitReadyTimeout: &metav1.Duration{Duration: 10 * time.Minute},
	}}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // the stock may be on its way to the index
		shown, err := agents.SandboxClaims(namespace).Create(ctx, claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		update := meta.FindStatusCondition(shown.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
		if update == nil || update.Message != "Resizing 3 sandboxes" {
			return fmt.Errorf("would get %+v", shown.Status)
		}
		return nil
	})
	if _, err := agents.SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ends := []metav1.Condition{
		{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSucceeded},
		{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFailed, Message: "no room"},
		{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInplaceUpdating},
	}
	for i, end := range ends {
		sb, err := agents.Sandboxes(namespace).Get(t.Context(), fmt.Sprintf("large-%06d", i), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		end.Type = v1alpha1.SandboxConditionInplaceUpdate
		meta.SetStatusCondition(&sb.Status.Conditions, end)
		if end.Reason == v1alpha1.ReasonInplaceUpdating {
			sb.Status.Phase = v1alpha1.SandboxFailed
		} else {
			meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
				Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodReady,
			})
		}
		if _, err := agents.Sandboxes(namespace).UpdateStatus(t.Context(), sb, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		for _, result := range []string{"succeeded", "failed", "let_go"} {
			if got := counted(result); got != 1 {
				return fmt.Errorf("%v resizes %s", got, result)
			}
		}
		return nil
	})
}
