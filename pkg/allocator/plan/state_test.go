// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestReadyBy: a sandbox that waited in its pool for long was not bound when it was
// made.
func TestReadyBy(t *testing.T) {
	claim := claimOf(func(c *v1alpha1.SandboxClaim) { c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: time.Minute} })
	sb := pooled.DeepCopy()
	sb.CreationTimestamp = metav1.NewTime(birth.Add(-time.Hour))
	if got := boundAt(sb); !got.Equal(birth.Add(-time.Hour)) {
		t.Errorf("without a claim: %v", got)
	}
	sb = bound(t, claim, sb)
	if got := boundAt(sb); !got.Equal(birth) {
		t.Errorf("bound at %v, want %v", got, birth)
	}
	if got := readyBy(claim, sb); !got.Equal(birth.Add(time.Minute + time.Second)) {
		t.Errorf("it may take until %v", got)
	}
	claim.Spec.WaitReadyTimeout = nil
	if got := readyBy(claim, sb); !got.Equal(birth.Add(v1alpha1.DefaultWaitReadyTimeout + time.Second)) {
		t.Errorf("by default it may take until %v", got)
	}
}

// TestDeadline: the fraction of the second is only known where the claim was created.
func TestDeadline(t *testing.T) {
	start := birth.Add(300 * time.Millisecond)
	tests := map[string]struct {
		started *metav1.Time
		want    time.Time
	}{
		"no status yet":     {nil, start},
		"the same second":   {&metav1.Time{Time: birth}, start},
		"a client's status": {&metav1.Time{Time: birth.Add(-time.Hour)}, birth.Add(-time.Hour)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := claimOf(nil)
			claim.Status.ClaimStartTime = tc.started
			if got := StartOf(claim, start); !got.Equal(tc.want) {
				t.Errorf("started at %v, want %v", got, tc.want)
			}
			if got := Deadline(claim, start); !got.Equal(tc.want.Add(v1alpha1.DefaultClaimTimeout)) {
				t.Errorf("by default it ends at %v", got)
			}
			claim.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Second}
			if got := Deadline(claim, start); !got.Equal(tc.want.Add(time.Second)) {
				t.Errorf("it ends at %v", got)
			}
			for at, want := range map[time.Duration]time.Duration{time.Minute: time.Second, time.Millisecond: time.Millisecond} {
				claim.Spec.ShutdownTime = &metav1.Time{Time: tc.want.Add(at)}
				if got := Deadline(claim, start); !got.Equal(tc.want.Add(want)) {
					t.Errorf("with sandboxes that end at %v it ends at %v", claim.Spec.ShutdownTime, got)
				}
			}
		})
	}
}
