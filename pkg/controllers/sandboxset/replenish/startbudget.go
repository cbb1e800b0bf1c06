// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// scaleStrategy.maxUnavailable is a budget of sandboxes that fail to start, as in OpenKruise. It
// is used up by sandboxes that cannot start, by those that are Pending for too long, and by those
// that the cache does not show yet. Sandboxes that are starting normally do not count. Because those
// that the cache does not show yet count, a reconcile creates no more than the budget. The next one follows
// after eventDelay, 0.1 s to 1 s. So a budget of 1 lets a pool grow by ten sandboxes a second at most.

// DefaultMaxPendingTimeout is the default of --max-pending-timeout, as in OpenKruise.
const DefaultMaxPendingTimeout = 50 * time.Second

// The bounds of --max-pending-timeout, as in OpenKruise. New clamps other values to them.
const (
	pendingTimeoutLowerBound = 15 * time.Second
	pendingTimeoutUpperBound = 3590 * time.Second
)

// clampPendingTimeout returns a --max-pending-timeout within its bounds.
func clampPendingTimeout(d time.Duration) time.Duration {
	return min(max(d, pendingTimeoutLowerBound), pendingTimeoutUpperBound)
}

// blockedSlots counts the sandboxes of a pool that fail to start: the slots of the budget that they block.
type blockedSlots struct {
	// failed is how many cannot start, and timedOut how many are Pending for too long.
	failed, timedOut int
	// requeueAfter is after what time one more may be Pending for too long; 0 is never.
	requeueAfter time.Duration
}

func (b *blockedSlots) total() int { return b.failed + b.timedOut }

// findBlockedSlots counts those of the sandboxes that are creating which fail to start. A sandbox whose pod
// waits behind a scheduling gate does not fail: the owner of the gate decides when it starts.
func findBlockedSlots(creating []*v1alpha1.Sandbox, maxPending time.Duration, now time.Time) blockedSlots {
	var b blockedSlots
	for _, sandbox := range creating {
		ready := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
		if ready != nil && ready.Status == metav1.ConditionFalse {
			switch ready.Reason {
			case v1alpha1.ReasonPodCreateFailed, v1alpha1.ReasonStartContainerFailed, v1alpha1.ReasonContainerRestarted:
				b.failed++
				continue
			}
		}
		if phase := sandbox.Status.Phase; phase != "" && phase != v1alpha1.SandboxPending || v1alpha1.IsGated(sandbox) {
			continue
		}
		since := later(sandbox.CreationTimestamp.Time, v1alpha1.GatesRemovedAt(sandbox))
		if remaining := since.Add(maxPending).Sub(now); remaining > 0 {
			b.requeueAfter = queue.MinRequeue(b.requeueAfter, remaining)
		} else {
			b.timedOut++
		}
	}
	return b
}

// startBudget returns scaleStrategy.maxUnavailable as a number, and reports whether it is set.
func (o *observation) startBudget() (budget int, isLimited bool, err error) {
	limit := o.set.Spec.ScaleStrategy.MaxUnavailable
	if limit == nil {
		return 0, false, nil
	}
	if budget, err = scaled(limit, o.desired()); err != nil {
		return 0, true, fmt.Errorf("spec.scaleStrategy.maxUnavailable: %w", err)
	}
	return budget, true, nil
}
