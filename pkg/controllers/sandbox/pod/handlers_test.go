// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// Nothing that is remembered of a sandbox is held against the next of its name.
func TestForgetsWithTheSandbox(t *testing.T) {
	version := func(v string) func(*v1alpha1.Sandbox) {
		return func(s *v1alpha1.Sandbox) { s.ResourceVersion = v }
	}
	before, after := newSandbox(version("1")), newSandbox(version("2"))
	another := newSandbox(version("3"), func(s *v1alpha1.Sandbox) { s.UID = "another" })
	tests := map[string]struct {
		happens func(*Controller, queue.Interface)
		forgets bool
	}{
		"changed": {func(c *Controller, q queue.Interface) {
			c.sandboxEvents().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
		}, false},
		"deleted": {func(c *Controller, q queue.Interface) {
			c.sandboxEvents().Delete(t.Context(), event.DeleteEvent{Object: before}, q)
		}, true},
		"replaced": {func(c *Controller, q queue.Interface) {
			c.sandboxEvents().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: another}, q)
		}, true},
	}
	for name, test := range tests {
		c := New(Options{Clock: clocktesting.NewFakePassiveClock(now)})
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		c.memory.podExpectations.recordCreate(box, "pod")
		c.memory.createBackoff.recordAttempt(box)
		c.memory.deleteBackoff.recordAttempt(box)
		c.memory.superseded.recordWrite(box, "1", "2")
		test.happens(c, q)
		if q.Len() != 1 {
			t.Errorf("%s: %d in the queue", name, q.Len())
		}
		q.ShutDown()
		forgotten := []bool{c.memory.podExpectations.remaining(box) == 0, c.memory.createBackoff.remaining(box) == 0, c.memory.deleteBackoff.remaining(box) == 0, c.memory.superseded.remaining(box, "1") == 0}
		want := []bool{test.forgets, test.forgets, test.forgets, test.forgets}
		if diff := cmp.Diff(want, forgotten); diff != "" {
			t.Errorf("%s: forgotten (-want +got):\n%s", name, diff)
		}
	}
}

// recorded keeps the last event.
type recorded struct {
	recorder.EventRecorder
	reason string
	note   string
}

func (r *recorded) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.reason, r.note = reason, fmt.Sprintf(note, args...)
}
