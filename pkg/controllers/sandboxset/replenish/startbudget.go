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
// that the cache does not show yet. Sandboxes that are starting normally do not count, so the
// budget does not limit how fast a pool grows.

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

// failedStarts counts the sandboxes of a pool that fail to start.
type failedStarts struct {
	// failed is how many cannot start, and timedOut how many are Pending for too long.
	failed, timedOut int
	// requeueAfter is after what time one more may be Pending for too long; 0 is never.
	requeueAfter time.Duration
}

func (b *failedStarts) total() int { return b.failed + b.timedOut }

// failedStarts counts the sandboxes of a pool that fail to start. A sandbox whose pod waits behind a
// scheduling gate does not fail: the owner of the gate decides when it starts.
func (o *observation) failedStarts(c *poolCounts) failedStarts {
	var b failedStarts
	for _, sandbox := range c.creating {
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
		if remaining := since.Add(o.maxPending).Sub(o.now); remaining > 0 {
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
