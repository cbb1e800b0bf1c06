// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestThrottledClaim checks that a throttled claim returns the sandboxes it took and is retried
// after RetryAfter, without backoff, and that ending the claim is not throttled.
func TestThrottledClaim(t *testing.T) {
	d, claim := newShortDesk(t)
	var throttleable []bool
	d.begin = func() Txn {
		return &slip{commit: func(s *slip) error {
			if throttleable = append(throttleable, s.throttleable); s.throttleable {
				return &ThrottledError{Reason: "too many bytes", RetryAfter: 7 * time.Second}
			}
			s.at(20)
			return nil
		}}
	}
	d.reconciler.Next(t.Context())
	if u := d.finisher.unfinished.of(claim.UID); len(u.work.reservation.taken) != 0 || d.left("a") != 1 {
		t.Errorf("holds %d, left %d", len(u.work.reservation.taken), d.left("a"))
	}
	if n := d.finisher.unfinished.due.NumRequeues(claim.UID); n != 0 || !slices.Equal(throttleable, []bool{true}) {
		t.Errorf("%d retries with backoff, transactions that may be throttled: %v", n, throttleable)
	}
	d.woken() // by the sandboxes that were returned
	d.stepUntil(time.Second, func() bool { return slices.Equal(d.woken(), []types.UID{claim.UID}) })

	throttleable = nil
	d.clock.Step(v1alpha1.DefaultClaimTimeout)
	d.finisher.unfinished.due.Add(claim.UID)
	d.reconciler.Next(t.Context())
	if !slices.Equal(throttleable, []bool{false}) {
		t.Errorf("transactions that may be throttled when the claim ends: %v", throttleable)
	}
}

// TestThrottledMetadataHoldsUpNothing checks that a claim whose changed labels cannot be brought to
// its sandboxes, because of a write limit, still counts the sandboxes that become ready.
func TestThrottledMetadataHoldsUpNothing(t *testing.T) {
	d := newDesk(t, setOf("a", "py"))
	before := d.stored(warm(2))
	claim := before.DeepCopy()
	claim.Generation, claim.Spec.Labels = before.Generation+1, map[string]string{"run": "2"}
	d.Feeds.ClaimChanged(claim)
	made := startingFor(t, before, "made", d.clock.Now())
	made.Status = running()
	d.shelf.held = []*v1alpha1.Sandbox{made}
	rejected, written := 0, []*v1alpha1.SandboxClaim{}
	d.begin = func() Txn {
		return &slip{commit: func(s *slip) error {
			if s.throttleable {
				rejected++
				return &ThrottledError{Reason: "too many bytes", RetryAfter: 20 * time.Second}
			}
			written = append(written, s.claim)
			s.at(20)
			return nil
		}}
	}
	d.reconciler.Next(t.Context())
	if rejected != 1 || len(written) != 1 || written[0].Status.ClaimedReplicas != 1 || written[0].Status.ObservedGeneration != before.Generation {
		t.Fatalf("%d rejected, wrote %+v", rejected, written)
	}
}
