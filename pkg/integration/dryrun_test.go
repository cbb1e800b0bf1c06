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
	rules "github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestDryRunShowsWhatACreateDoes compares the two for claims that lack warm sandboxes: what
// has been claimed when the create is answered, and how many are made for it.
func TestDryRunShowsWhatACreateDoes(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	injectable(t, s, "open", v1alpha1.InjectionAllowed)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	straight := func(c *v1alpha1.SandboxClaim) {
		c.Spec.TemplateName, c.Spec.SandboxTemplateRef = "", &v1alpha1.SandboxClaimTemplateRef{Name: "open"}
	}
	for name, tc := range map[string]struct {
		replicas, made int32
		change         func(*v1alpha1.SandboxClaim)
	}{
		"enough":   {2, 0, func(*v1alpha1.SandboxClaim) {}},
		"mix":      {5, 3, func(*v1alpha1.SandboxClaim) {}},
		"none":     {3, 3, fromPool(v1alpha1.WarmPoolNone)},
		"at-once":  {5, 3, allOrNothing},
		"waits":    {5, 0, waits},
		"wait-all": {5, 0, both(waits, allOrNothing)},
		"env":      {2, 2, both(straight, withEnv("A", "main"))},
		"volume":   {2, 2, both(straight, withVolume(moreVolume))},
	} {
		t.Run(name, func(t *testing.T) {
			set := s.Set(t, namespace, "pool-"+name, 2)
			s.Stock(t, set, 0, 2)
			expect.Eventually(t.Context(), t, func(ctx context.Context) error { // the index learns of them a moment later
				_, err := s.CreateOnce(ctx, namespace, testutil.Claim(set, "there-"+name, 2, fails), metav1.DryRunAll)
				return err
			})
			claim := testutil.Claim(set, name, tc.replicas, both(tc.change, timeout(expect.Patience)))
			shown, err := claims(s).Create(t.Context(), claim, dry)
			if err != nil {
				t.Fatal(err)
			}
			created := create(t, s, claim)
			want, got := created.Status, shown.Status
			if message := want.Message + rules.PreviewMessage(int(tc.made)); got.Message != message {
				t.Errorf("dry run says %q, want %q", got.Message, message)
			}
			if got.Phase != want.Phase || got.ClaimedReplicas != want.ClaimedReplicas || len(got.Sandboxes) != len(want.Sandboxes) || len(got.Conditions) != len(want.Conditions) {
				t.Errorf("dry run shows %+v, the create %+v", got, want)
			}
			expect.Eventually(t.Context(), t, func(context.Context) error {
				var made int32
				for _, sb := range owned(t, s, created) {
					if sb.Annotations[v1alpha1.AnnotationSandboxPriority] == v1alpha1.PriorityClaimed {
						made++
					}
				}
				if made != tc.made {
					return fmt.Errorf("%d sandboxes are made for the claim, want %d", made, tc.made)
				}
				return nil
			})
		})
	}
}
