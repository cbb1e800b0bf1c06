// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestSandboxesSayWhoHoldsThem: warm ones, those that are made for a claim, and those that a
// claim gets after a restart, also when their claim is gone.
func TestSandboxesSayWhoHoldsThem(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(time.Millisecond))
	template := s.Template(t, namespace, "python")
	mixed := create(t, s, testutil.Claim(set, "mixed", 2, timeout(expect.Patience)))
	straight := create(t, s, ofTemplate("straight", template.Name, 1, fromPool(v1alpha1.WarmPoolNone), timeout(expect.Patience)))
	waiting := create(t, s, testutil.Claim(set, "waiting", 1, both(waits, timeout(expect.Patience))))

	user := mixed.Annotations[v1alpha1.AnnotationClaimedBy]
	if user == "" {
		t.Fatal("the claim does not say who made it")
	}
	says := func(claim *v1alpha1.SandboxClaim, n int) (starting []v1alpha1.Sandbox) {
		t.Helper()
		expect.Eventually(t.Context(), t, func(context.Context) error { // those that are missing are made in the background
			held := owned(t, s, claim)
			if len(held) != n {
				return fmt.Errorf("claim %s has %d sandboxes, want %d", claim.Name, len(held), n)
			}
			starting = nil
			for _, sb := range held {
				if name, label := sb.Annotations[v1alpha1.AnnotationClaimedBy], sb.Labels[v1alpha1.LabelClaimedBy]; name != user || label != v1alpha1.ClaimedByLabel(user) {
					t.Errorf("sandbox %s of claim %s is claimed by %q, label %q, want %q, %q", sb.Name, claim.Name, name, label, user, v1alpha1.ClaimedByLabel(user))
				}
				if sb.Annotations[v1alpha1.AnnotationStarting] != "" {
					starting = append(starting, sb)
				}
			}
			return nil
		})
		return starting
	}
	fresh := append(says(mixed, 2), says(straight, 1)...)
	if len(fresh) != 2 {
		t.Fatalf("%d sandboxes are starting, want 2", len(fresh))
	}

	s = restart(t, s)
	for i := range fresh {
		setStatus(t, s, &fresh[i], testutil.ReadyStatus(50+i, time.Now()))
	}
	s.AwaitClaim(t, namespace, mixed.Name, testutil.Completed)
	s.AwaitClaim(t, namespace, straight.Name, testutil.Completed)
	s.Stock(t, set, 10, 2)
	s.AwaitClaim(t, namespace, waiting.Name, testutil.Completed)
	for _, claim := range []*v1alpha1.SandboxClaim{mixed, straight, waiting} {
		if err := claims(s).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	says(mixed, 2)
	says(straight, 1)
	says(waiting, 1)
	list, err := sandboxes(s).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelClaimedBy + "=" + v1alpha1.ClaimedByLabel(user)})
	if err != nil || len(list.Items) != 4 { // and none of the pool
		t.Errorf("%d sandboxes are selected by who claimed, %v; want 4", len(list.Items), err)
	}
}
