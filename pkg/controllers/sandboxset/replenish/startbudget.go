// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// scaleStrategy.maxUnavailable is a budget of sandboxes that fail to start, as in
// OpenKruise: those that cannot start, those that are Pending for too long, and those
// whose create the cache does not show yet. Healthy ones that are starting do not count,
// so it is no limit of how fast a pool grows.

// The bounds of --max-pending-timeout, which are those of OpenKruise: other values are
// brought into them.
const (
	DefaultMaxPendingTimeout = 50 * time.Second
	minPendingTimeout        = 15 * time.Second
	maxPendingTimeout        = 3590 * time.Second
)

// boundedPendingTimeout returns a --max-pending-timeout within its bounds.
func boundedPendingTimeout(d time.Duration) time.Duration {
	return min(max(d, minPendingTimeout), maxPendingTimeout)
}

// blockedStarts are the sandboxes of a pool that use up its budget of failures at start.
type blockedStarts struct {
	// failed cannot start, and timedOut are Pending for too long.
	failed, timedOut int
	// next is after what time there may be one more of the latter; 0 is never.
	next time.Duration
}

func (b *blockedStarts) total() int { return b.failed + b.timedOut }

// blocked counts the sandboxes of a pool that fail to start. One whose pod waits behind a
// scheduling gate does not fail: whoever set the gate decides when it starts.
func (o *observation) blocked(c *poolCounts) blockedStarts {
	var b blockedStarts
	for _, sandbox := range c.creating {
		ready := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
		if ready != nil && ready.Status == metav1.ConditionFalse &&
			(ready.Reason == v1alpha1.ReasonPodCreateFailed || ready.Reason == v1alpha1.ReasonStartContainerFailed) {
			b.failed++
			continue
		}
		if phase := sandbox.Status.Phase; phase != "" && phase != v1alpha1.SandboxPending || v1alpha1.IsGated(sandbox) {
			continue
		}
		since := later(sandbox.CreationTimestamp.Time, v1alpha1.GatesRemovedAt(sandbox))
		if left := since.Add(boundedPendingTimeout(o.maxPending)).Sub(o.now); left > 0 {
			b.next = earlier(b.next, left)
		} else {
			b.timedOut++
		}
	}
	return b
}

// startBudget is scaleStrategy.maxUnavailable as a number. limited is whether it is set.
func (o *observation) startBudget() (budget int, limited bool, err error) {
	limit := o.set.Spec.ScaleStrategy.MaxUnavailable
	if limit == nil {
		return 0, false, nil
	}
	if budget, err = scaled(limit, o.desired()); err != nil {
		return 0, true, fmt.Errorf("spec.scaleStrategy.maxUnavailable: %w", err)
	}
	return budget, true, nil
}

// setScalingLimited sets whether sandboxes that fail to start use up the budget. Without a
// limit that is when all of the pool fail.
func (o *observation) setScalingLimited(status *v1alpha1.SandboxSetStatus, c *poolCounts) {
	budget, limited, err := o.startBudget()
	if err != nil || !limited {
		budget = c.unused()
	}
	budget = max(budget, 1)
	b := o.blocked(c)
	value, reason := metav1.ConditionFalse, v1alpha1.ReasonStartupBudgetAvailable
	if b.total() >= budget {
		value, reason = metav1.ConditionTrue, v1alpha1.ReasonStartupBudgetExhausted
	}
	o.setCondition(status, v1alpha1.SetConditionScalingLimited, value, reason,
		fmt.Sprintf("%d of %d startup slots are blocked: Timeout=%d, Failed=%d", b.total(), budget, b.timedOut, b.failed))
}
