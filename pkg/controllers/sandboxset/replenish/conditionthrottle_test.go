// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A text that changes alone is written at intervals; with anything else it goes along.
func TestStartFailureIsSpaced(t *testing.T) {
	for _, kind := range limitedConditions {
		t.Run(kind, func(t *testing.T) { testSpaced(t, kind) })
	}
}

func testSpaced(t *testing.T, kind string) {
	m := &conditionThrottle{}
	say := func(status metav1.ConditionStatus, message string, replicas int32) *v1alpha1.SandboxSetStatus {
		return &v1alpha1.SandboxSetStatus{Replicas: replicas, Conditions: []metav1.Condition{{Type: kind, Status: status, Message: message}}}
	}
	edited := say(metav1.ConditionTrue, "e", 2)
	edited.Conditions[0].ObservedGeneration = 2
	const no, yes = metav1.ConditionFalse, metav1.ConditionTrue
	for i, step := range []struct {
		after          time.Duration
		before, status *v1alpha1.SandboxSetStatus
		want           string
		wait           time.Duration
	}{
		{0, say(no, "a", 1), say(no, "b", 1), "b", 0},
		{time.Second, say(no, "b", 1), say(no, "c", 1), "b", 9 * time.Second},
		{2 * time.Second, say(no, "b", 1), say(no, "c", 2), "c", 0},
		{3 * time.Second, say(no, "c", 2), say(yes, "", 2), "", 0},
		{12 * time.Second, say(yes, "", 2), say(yes, "d", 2), "", time.Second},
		{13 * time.Second, say(yes, "", 2), say(yes, "d", 2), "d", 0},
		{14 * time.Second, say(yes, "d", 2), edited, "e", 0},
	} {
		got, wait := m.limitWrites(step.before, step.status, epoch.Add(step.after))
		if got.Conditions[0].Message != step.want || wait != step.wait {
			t.Errorf("step %d: %q, again after %s", i, got.Conditions[0].Message, wait)
		}
	}
}

// Each start that fails changes the counts in the messages of two conditions. A large pool
// of which one after another fails is not written at each.
func TestFailingPoolIsNotWrittenEachTime(t *testing.T) {
	m, set := &conditionThrottle{}, makeSet(100)
	writes := 0
	for failed := range 100 {
		o := &observation{set: set, target: targetOf(current), now: epoch.Add(time.Duration(failed) * time.Millisecond), maxPending: DefaultMaxPendingTimeout}
		var all []builder
		for i := range 100 {
			reason := ""
			if i < failed {
				reason = v1alpha1.ReasonStartContainerFailed
			}
			all = append(all, notReadyFor(fmt.Sprint("s", i), time.Second, reason, "").age(time.Second))
		}
		o.pool.sandboxes = sandboxes(all...)
		status := builderOf(o).build()
		next, _ := m.limitWrites(&set.Status, &status, o.now)
		if !equality.Semantic.DeepEqual(&set.Status, next) {
			writes++
		}
		set.Status = *next
	}
	if writes > 3 {
		t.Errorf("the status is written %d times", writes)
	}
}

func TestStartFailureEventDue(t *testing.T) {
	m := &conditionThrottle{}
	for i, step := range []struct {
		after  time.Duration
		reason string
		n      int
		want   bool
	}{
		{0, "Unschedulable", 1, true},
		{time.Second, "Unschedulable", 5, false},
		{2 * time.Second, "StartContainerFailed", 1, true},
		{3 * time.Second, "Forbidden", 0, false},
		{startFailureEventInterval, "StartContainerFailed", 1, false},
		{startFailureEventInterval + 2*time.Second, "StartContainerFailed", 1, true},
	} {
		if got := m.eventDue(&startFailure{reason: step.reason, sandboxes: step.n}, epoch.Add(step.after)); got != step.want {
			t.Errorf("step %d: %t", i, got)
		}
	}
	if m.eventDue(nil, epoch.Add(time.Hour)) {
		t.Error("an event of nothing")
	}
}
