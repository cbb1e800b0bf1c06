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

// TestDeadline checks that the time of a claim runs from its start by this server's clock,
// and not from what the claim says, which may be by another's.
func TestDeadline(t *testing.T) {
	start := birth.Add(300 * time.Millisecond)
	for name, started := range map[string]*metav1.Time{
		"no status yet":       nil,
		"the same second":     {Time: birth},
		"by another's clock":  {Time: birth.Add(-time.Hour)},
		"by one that is fast": {Time: birth.Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			claim := claimOf(nil)
			claim.Status.ClaimStartTime = started
			if got := Deadline(claim, start); !got.Equal(start.Add(v1alpha1.DefaultClaimTimeout)) {
				t.Errorf("by default it ends at %v", got)
			}
			claim.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Second}
			if got := Deadline(claim, start); !got.Equal(start.Add(time.Second)) {
				t.Errorf("it ends at %v", got)
			}
			for at, want := range map[time.Duration]time.Duration{time.Minute: time.Second, time.Millisecond: time.Millisecond} {
				claim.Spec.ShutdownTime = &metav1.Time{Time: start.Add(at)}
				if got := Deadline(claim, start); !got.Equal(start.Add(want)) {
					t.Errorf("with sandboxes that end at %v it ends at %v", claim.Spec.ShutdownTime, got)
				}
			}
		})
	}
}
