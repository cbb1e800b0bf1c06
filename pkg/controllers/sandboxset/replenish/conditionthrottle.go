// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	// textInterval is the least time between two writes of a status in which nothing
	// but the text of limitedConditions differs: schedulers and kubelets reword theirs often.
	textInterval = 10 * time.Second
	// startFailureEventInterval is after what time an event reports the same failure again.
	startFailureEventInterval = 15 * time.Minute
)

// conditionThrottle limits how often conditions and events about failing sandboxes are written.
// After a restart the first one is written at once.
type conditionThrottle struct {
	// written is when a status was last written with a change of one of limitedConditions.
	written time.Time
	// eventReason is that of the last event, and eventSentAt when that was.
	eventReason string
	eventSentAt time.Time
}

// limitedConditions are the conditions whose messages change with each sandbox that fails.
var limitedConditions = []string{v1alpha1.SetConditionAvailable, v1alpha1.SetConditionScalingLimited}

// limitWrites limits how often a status is written for a reason or message of limitedConditions alone.
// If one was written a short time ago, it returns a status with these conditions as before, and
// after what time to look again.
func (m *conditionThrottle) limitWrites(before, status *v1alpha1.SandboxSetStatus, now time.Time) (*v1alpha1.SandboxSetStatus, time.Duration) {
	same, differs := status.DeepCopy(), false
	for _, conditionType := range limitedConditions {
		was, is := meta.FindStatusCondition(before.Conditions, conditionType), meta.FindStatusCondition(same.Conditions, conditionType)
		if was == nil || is == nil || equality.Semantic.DeepEqual(was, is) {
			continue
		}
		differs = true
		if was.Status == is.Status && was.ObservedGeneration == is.ObservedGeneration {
			*is = *was
		}
	}
	if !differs {
		return status, 0
	}
	wait := m.written.Add(textInterval).Sub(now)
	if wait <= 0 || !equality.Semantic.DeepEqual(before, same) {
		m.written = now
		return status, 0
	}
	return same, wait
}

// eventDue reports whether an event has to report a failure: when it begins, when its
// reason changes, and again after a long time.
func (m *conditionThrottle) eventDue(t *startFailure, now time.Time) bool {
	if t == nil || t.sandboxes == 0 {
		return false // events of their own report what cannot be made
	}
	if t.reason == m.eventReason && now.Before(m.eventSentAt.Add(startFailureEventInterval)) {
		return false
	}
	m.eventReason, m.eventSentAt = t.reason, now
	return true
}
