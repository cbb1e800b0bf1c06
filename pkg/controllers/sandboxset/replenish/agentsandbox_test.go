// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func updateType(kind v1alpha1.SandboxSetUpdateType) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) { set.Spec.UpdateStrategy.Type = kind }
}

// notReadyFor is a sandbox that has not been ready for some time, and why.
func notReadyFor(name string, since time.Duration, reason, message string) builder {
	b := starting(name).phase(v1alpha1.SandboxPending).label(v1alpha1.LabelSandboxTemplate, "pool")
	b.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(epoch.Add(-since)),
	}}
	return b
}

// gated is a sandbox whose pod waits behind a scheduling gate, or did, since some time.
func (b builder) gated(status metav1.ConditionStatus, since time.Duration) builder {
	b.Status.Conditions = append(b.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionSchedulingGated, Status: status, LastTransitionTime: metav1.NewTime(epoch.Add(-since)),
	})
	return b
}

// TestPlanOfAgentSandboxPools: OnReplenish keeps what is stale, Recreate removes all of it at once,
// below any floor. Labels and annotations make nothing stale, another template does.
func TestPlanOfAgentSandboxPools(t *testing.T) {
	const long, short = progressDeadline + time.Second, progressDeadline - time.Second
	of := func(template string, b builder) builder { return b.label(v1alpha1.LabelSandboxTemplate, template) }
	pool := []builder{
		of("pool", available("a")), of("pool", available("b").revision(older)), of("pool", available("c").revision("alike")),
		of("other", available("d")), of("pool", starting("e").revision(older).age(0)),
	}
	slow := []builder{
		notReadyFor("a", long, "", "pulls"), notReadyFor("b", short, "", "pulls"),
		notReadyFor("c", long, v1alpha1.ReasonUnschedulable, "0/3 nodes"), notReadyFor("d", long, corev1.PodReasonSchedulerError, "no"),
		of("pool", available("e")),
	}
	gated := notReadyFor("f", 100*long, corev1.PodReasonSchedulingGated, "Scheduling is blocked").gated(metav1.ConditionTrue, 100*long)
	released := notReadyFor("f", 100*long, v1alpha1.ReasonPodReady, "").gated(metav1.ConditionFalse, short)
	releasedLong := notReadyFor("f", 100*long, v1alpha1.ReasonPodReady, "").gated(metav1.ConditionFalse, long)
	broken := targetRevision{revision: current, currentRevision: "pool-" + current}
	tests := map[string]struct {
		kind   v1alpha1.SandboxSetUpdateType
		pool   []builder
		target *targetRevision
		remove []string
		held   int
		after  time.Duration
	}{
		"rolling update":         {kind: v1alpha1.SetUpdateRolling, pool: pool, remove: []string{"e"}},
		"no type":                {pool: pool, remove: []string{"e"}},
		"OnReplenish":            {kind: v1alpha1.SetUpdateOnReplenish, pool: pool, after: progressDeadline},
		"Recreate":               {kind: v1alpha1.SetUpdateRecreate, pool: pool, remove: []string{"b", "d", "e"}, after: progressDeadline},
		"Recreate, no template":  {kind: v1alpha1.SetUpdateRecreate, pool: pool, target: &broken},
		"slow, rolling update":   {kind: v1alpha1.SetUpdateRolling, pool: slow},
		"slow, OnReplenish":      {kind: v1alpha1.SetUpdateOnReplenish, pool: slow, remove: []string{"a"}, held: 2, after: time.Second},
		"slow, Recreate":         {kind: v1alpha1.SetUpdateRecreate, pool: slow, remove: []string{"a"}, held: 2, after: time.Second},
		"slow, without template": {kind: v1alpha1.SetUpdateOnReplenish, pool: slow, target: &broken},
		"gated":                  {kind: v1alpha1.SetUpdateOnReplenish, pool: []builder{gated}, held: 1, after: unscheduledRecheck},
		"not told to be gated":   {kind: v1alpha1.SetUpdateOnReplenish, pool: []builder{notReadyFor("f", long, corev1.PodReasonSchedulingGated, "Scheduling is blocked")}, held: 1, after: unscheduledRecheck},
		"scheduler fails":        {kind: v1alpha1.SetUpdateOnReplenish, pool: []builder{notReadyFor("f", long, corev1.PodReasonSchedulerError, "no")}, held: 1, after: unscheduledRecheck},
		"gates just removed":     {kind: v1alpha1.SetUpdateOnReplenish, pool: []builder{released}, after: time.Second},
		"gates removed long ago": {kind: v1alpha1.SetUpdateOnReplenish, pool: []builder{releasedLong}, remove: []string{"f"}},
		"held only":              {kind: v1alpha1.SetUpdateOnReplenish, pool: append(slices.Clone(slow[2:]), pool[:2]...), held: 2, after: unscheduledRecheck},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			target := targetOf(current)
			if test.target != nil {
				target = *test.target
			}
			o := &observation{
				set: makeSet(5, updateType(test.kind)), target: target, differsOnlyInMetadata: sets.New("alike"), now: epoch,
			}
			o.pool.sandboxes = sandboxes(test.pool...)
			c := o.count()
			p, err := o.plan(&c, delays{})
			if err != nil {
				t.Fatal(err)
			}
			removed := names(p.remove)
			slices.Sort(removed)
			if diff := cmp.Diff(test.remove, removed, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("remove (-want +got):\n%s", diff)
			}
			if p.keptUnscheduled != test.held || p.requeueAfter != test.after {
				t.Errorf("held %d, and again after %s; want %d and %s", p.keptUnscheduled, p.requeueAfter, test.held, test.after)
			}
			for _, sandbox := range p.remove {
				if late := len(p.notReadyTooLong) > 0; late != (p.reasonFor(sandbox, epoch) == removalNotReady) {
					t.Errorf("%s is removed as %s", sandbox.Name, p.reasonFor(sandbox, epoch))
				}
			}
		})
	}
}

// testRecreate: an edit of the metadata of a template replaces nothing, one of the spec all
// at once, and so does another template of the very same content. What is claimed stays.
func testRecreate(t *testing.T, f *fixture) {
	f.createTemplate("base", imageWith("i", "x"))
	f.createReferring(3, "")
	f.changeSet(updateType(v1alpha1.SetUpdateRecreate))
	f.fill()
	f.claim(f.wantPooled(3)[0])
	f.sync()
	f.pass(time.Minute)
	f.fill()
	before := f.wantPooled(3)

	f.changeBase(imageWith("i", "y"))
	f.fill()
	if got := uidsOf(f.wantPooled(3)); !got.Equal(uidsOf(before)) {
		t.Error("an edit of metadata replaced sandboxes")
	}
	f.changeBase(imageWith("j", "y"))
	f.reconcile()
	f.sync()
	if left := uidsOf(f.pooled()).Intersection(uidsOf(before)); len(left) > 0 {
		t.Errorf("%d stale sandboxes are left", len(left))
	}
	f.fill()
	before = f.wantPooled(3)

	f.createTemplate("twin", imageWith("j", "y"))
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.TemplateRef.Name = "twin" })
	f.reconcile()
	f.sync()
	if left := uidsOf(f.pooled()).Intersection(uidsOf(before)); len(left) > 0 {
		t.Errorf("%d sandboxes of the other template are left", len(left))
	}
	f.fill()
	f.wantPooled(3)
	if all := f.all(); len(all) != 4 {
		t.Errorf("%d sandboxes, want 3 and the claimed one", len(all))
	}
}

// testOnReplenish: stale sandboxes stay, and what takes the place of a claimed one is new.
func testOnReplenish(t *testing.T, f *fixture) {
	f.createTemplate("base", imageWith("i", "x"))
	f.createReferring(3, "")
	f.changeSet(updateType(v1alpha1.SetUpdateOnReplenish))
	f.fill()
	before := f.wantPooled(3)
	f.changeBase(imageWith("j", "x"))
	f.fill()
	f.fill()
	if got := uidsOf(f.wantPooled(3)); !got.Equal(uidsOf(before)) {
		t.Error("stale sandboxes were replaced")
	}
	f.wantStatus(3, 3, 0, 0)
	f.claim(f.pooled()[0])
	f.sync()
	f.pass(time.Minute)
	f.fill()
	f.wantPooled(3)
	f.wantStatus(3, 3, 1, 1)
}

// testNotProgressing: one event says that no node takes sandboxes, and one that this is
// over.
func testNotProgressing(t *testing.T, f *fixture) {
	events := &recorded{t: t}
	f.c.report.recorder = events
	f.createTemplate("base", imageWith("i", "x"))
	f.createReferring(1, "")
	f.changeSet(updateType(v1alpha1.SetUpdateOnReplenish))
	f.reconcile()
	sandbox := f.wantPooled(1)[0]
	sandbox.Status.Phase = v1alpha1.SandboxPending
	sandbox.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnschedulable,
		Message: "0/3 nodes", LastTransitionTime: metav1.NewTime(f.clock.Now()),
	}}
	if err := f.api.Status().Update(f.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	f.sync()
	f.reconcile()
	f.pass(progressDeadline + 10*time.Second)
	events.events = nil
	for range 2 {
		if after := f.reconcile().RequeueAfter; after <= 0 || after > unscheduledRecheck {
			t.Errorf("looks again after %s", after)
		}
	}
	f.wantPooled(1)
	events.want("held", "Warning WarmPoolNotProgressing: 1 sandboxes have not been ready for 5m0s because their pods are unschedulable or behind scheduling gates; they are kept until their pods have a node")
	f.start(f.pooled()...)
	f.sync()
	f.reconcile()
	f.reconcile()
	events.want("started", "Normal WarmPoolProgressing: No sandbox waits for a node for too long any more")
}

// imageWith is a pod template with an image and a label.
func imageWith(image, label string) *runtime.RawExtension {
	return raw(fmt.Sprintf(`{"metadata":{"labels":{"app":%q}},"spec":{"containers":[{"name":"c","image":%q}]}}`, label, image))
}
