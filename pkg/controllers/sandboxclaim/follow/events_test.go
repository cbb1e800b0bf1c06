// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// queued is a queue that keeps what is added to it.
type queued struct {
	queue.Interface
	names []string
	after time.Duration
}

func (q *queued) AddAfter(r reconcile.Request, after time.Duration) {
	q.names, q.after = append(q.names, r.Name), after
}

// Only what a claim can see of a sandbox queues it, and what it knows already does not.
func TestSandboxEvents(t *testing.T) {
	pooled := func(sb *v1alpha1.Sandbox) { sb.Labels, sb.Annotations = nil, nil }
	of := func(claim string) func(*v1alpha1.Sandbox) {
		return func(sb *v1alpha1.Sandbox) {
			sb.Labels[v1alpha1.LabelClaimName], sb.Annotations[v1alpha1.AnnotationOwner] = claim, claim+"-uid"
		}
	}
	starting := annotated(v1alpha1.AnnotationStarting)
	failedBox := ended(v1alpha1.SandboxFailed, "")
	tests := map[string]struct {
		before, after *v1alpha1.Sandbox // nil is none
		want          []string
	}{
		"claimed":                    {before: box("a", pooled), after: box("a")},
		"made":                       {after: box("a", starting)},
		"becomes ready":              {before: box("a", starting, says(metav1.ConditionFalse, "X", "")), after: box("a", starting)},
		"counts":                     {before: box("a", starting), after: box("a")},
		"another label":              {before: box("a"), after: box("a", func(sb *v1alpha1.Sandbox) { sb.Labels["x"] = "y" })},
		"in a pool":                  {before: box("a", pooled), after: box("a", pooled, failedBox)},
		"failed":                     {before: box("a"), after: box("a", failedBox), want: []string{"c"}},
		"failed when it was claimed": {before: box("a", pooled), after: box("a", failedBox), want: []string{"c"}},
		"seen first when it failed":  {after: box("a", failedBox), want: []string{"c"}},
		"another address":            {before: box("a"), after: box("a", func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodIP = "b" }), want: []string{"c"}},
		"recovered":                  {before: box("a", failedBox), after: box("a"), want: []string{"c"}},
		"back in its pool":           {before: box("a"), after: box("a", pooled), want: []string{"c"}},
		"another claim's":            {before: box("a"), after: box("a", of("d")), want: []string{"c"}},
		"deleted":                    {before: box("a"), want: []string{"c"}},
		"deleted in a pool":          {before: box("a", pooled)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := New(nil, nil, clocktesting.NewFakePassiveClock(now), 1)
			q, handle := &queued{}, c.sandboxEvents()
			switch {
			case tc.before == nil:
				handle.Create(t.Context(), event.CreateEvent{Object: tc.after}, q)
			case tc.after == nil:
				handle.Delete(t.Context(), event.DeleteEvent{Object: tc.before}, q)
			default:
				handle.Update(t.Context(), event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}, q)
			}
			if diff := cmp.Diff(tc.want, q.names); diff != "" {
				t.Errorf("queued (-want +got):\n%s", diff)
			}
		})
	}
}

// The news of a claim that was just written wait until it may be written again.
func TestNewsWait(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(now)
	c, q := New(nil, nil, clock, 1), &queued{}
	claim := queue.RequestFor(claimOf())
	for _, step := range []struct {
		do   func()
		want time.Duration
	}{
		{func() {}, gather},
		{func() { c.pace.written(claimOf(), 10000, false) }, spacing + 10000*perSandbox},
		{func() { clock.SetTime(now.Add(10 * time.Second)) }, spacing},
		{func() { clock.SetTime(now.Add(time.Minute)) }, gather},
	} {
		step.do()
		if c.enqueue(claim, q); q.after != step.want {
			t.Errorf("queued after %s, want %s", q.after, step.want)
		}
	}
	if c.pace.forget(claim.NamespacedName); len(c.pace.claims) > 0 {
		t.Error("a claim that is gone is remembered")
	}
}
