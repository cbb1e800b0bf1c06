// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// enqueuedSets notes which sets were enqueued.
type enqueuedSets struct {
	noQueue
	sets []string
}

func (e *enqueuedSets) Add(r reconcile.Request) { e.sets = append(e.sets, r.Name) }
func (e *enqueuedSets) AddAfter(r reconcile.Request, _ time.Duration) {
	e.sets = append(e.sets, r.Name)
}

// show delivers a claim, and returns which sets that woke.
func (f *fixture) show(claim *v1alpha1.SandboxClaim) []string {
	f.Helper()
	claim.Namespace = f.key.Namespace
	enqueued := &enqueuedSets{}
	f.c.watches.waitingClaims().Update(f.Context(), event.UpdateEvent{ObjectOld: claim, ObjectNew: claim}, enqueued)
	slices.Sort(enqueued.sets)
	return enqueued.sets
}

func (f *fixture) wantEnqueued(enqueued []string, want ...string) {
	f.Helper()
	if !slices.Equal(enqueued, want) {
		f.Fatalf("enqueued: %q, want %q", enqueued, want)
	}
}

// A set of none with a burst makes what claims wait for, and what none of them takes goes
// again when no claim has waited for it for a while.
func testClaimsWait(t *testing.T, f *fixture) {
	f.createSet(0)
	f.reconcile()
	f.wantEnqueued(f.show(makeClaim("a", 4)))
	f.reconcile()
	f.wantPooled(0) // it has no burst
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.ScaleStrategy.Burst = new(int32(5)) })
	f.reconcile()
	pooled := f.wantPooled(4)
	f.wantStatus(4, 0, 4, 0)
	f.wantEnqueued(f.show(makeClaim("b", 3)), "pool")
	f.sync()
	f.reconcile()
	f.wantPooled(5) // no more than the burst

	// A claim takes one. The cache shows that of the sandbox first, and then of the
	// claim: in between none is made in its place, for which no claim waits.
	f.start(pooled[0])
	taken := pooled[0].DeepCopy()
	taken.OwnerReferences = nil
	taken.Labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedTrue
	taken.Annotations = map[string]string{v1alpha1.AnnotationLock: "a-uid", v1alpha1.AnnotationOwner: "b-uid"}
	if err := f.api.Update(f.Context(), taken); err != nil {
		t.Fatal(err)
	}
	f.show(makeClaim("b", 2))
	f.show(makeClaim("a", 2)) // 4 are waited for, 3 with the one that is taken
	f.pass(time.Minute)
	f.sync()
	f.reconcile()
	f.wantPooled(4)
	f.show(makeClaim("b", 2, has(1, taken.ResourceVersion)))
	f.reconcile()
	f.wantPooled(4)

	// Both give up. What was made for them is left alone for as long as claims may
	// still come.
	completed := func(c *v1alpha1.SandboxClaim) { c.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted }
	f.wantEnqueued(f.show(makeClaim("a", 2, completed)), "pool")
	f.wantEnqueued(f.show(makeClaim("b", 2, completed)), "pool")
	f.wantEnqueued(f.show(makeClaim("b", 2, completed)))
	f.start(f.pooled()...)
	f.sync()
	if after := f.reconcile().RequeueAfter; after <= 0 || after > 5*time.Second {
		t.Errorf("the set is looked at again after %s", after)
	}
	f.wantPooled(4)
	f.wantStatus(4, 4, 4, 4)
	f.pass(5 * time.Second)
	f.reconcile()
	f.sync()
	f.reconcile()
	f.wantPooled(0)
	f.wantStatus(0, 0, 0, 0)
	f.state(func(s *setState) {
		if s.burst.peak != 0 || !s.burst.until.IsZero() {
			t.Errorf("%+v is remembered", s.burst)
		}
	})
}

// Sets of one template grow for claims on the template, those that may serve them.
func testClaimsWaitOnTemplate(t *testing.T, f *fixture) {
	ctx := f.Context()
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "template"}}
	template.Spec.Template = makeSet(0).Spec.Template
	if err := f.api.Create(ctx, template); err != nil {
		t.Fatal(err)
	}
	set := makeSet(1)
	set.ObjectMeta = metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name}
	set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "template"}
	set.Spec.ScaleStrategy = v1alpha1.SandboxSetScaleStrategy{Burst: new(int32(10)), MaxUnavailable: new(intstr.FromInt32(6))}
	if err := f.api.Create(ctx, set); err != nil {
		t.Fatal(err)
	}
	f.reconcile()
	f.sync()
	f.wantPooled(1)

	onTemplate := func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "template" }
	f.wantEnqueued(f.show(makeClaim("elsewhere", 9, onTemplate, func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = "other" })), "pool")
	f.reconcile()
	f.wantPooled(1) // not its to serve
	f.wantEnqueued(f.show(makeClaim("a", 3, onTemplate)), "pool")
	f.reconcile()
	f.sync()
	f.wantPooled(4)

	// A set of the template's name is what the claim asks for, once there is one.
	named := makeSet(0)
	named.ObjectMeta = metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "template"}
	if err := f.api.Create(ctx, named); err != nil {
		t.Fatal(err)
	}
	enqueued := &enqueuedSets{}
	f.c.watches.sets().Create(ctx, event.CreateEvent{Object: named}, enqueued)
	f.wantEnqueued(enqueued.sets, "template", "pool")
	f.pass(time.Minute)
	f.reconcile()
	f.wantPooled(4) // since when no claim waits is known by that reconcile alone
	f.pass(5 * time.Second)
	f.reconcile()
	f.sync()
	f.wantPooled(1)
	if err := f.api.Delete(ctx, named); err != nil {
		t.Fatal(err)
	}
	f.reconcile()
	f.sync()
	f.wantPooled(4)

	// What a claim holds that has to start first, it does not wait for again.
	f.show(makeClaim("b", 5, onTemplate))
	model, err := podtemplate.NewSandbox(f.set(), "gone", podtemplate.Inline(template.Spec.Template))
	if err != nil {
		t.Fatal(err)
	}
	model.Annotations = map[string]string{v1alpha1.AnnotationStarting: "true"}
	model.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxClaim", Name: "b", UID: "b-uid", Controller: new(true),
	}}
	for _, shutdown := range []*metav1.Time{nil, nil, new(metav1.NewTime(f.clock.Now().Add(-time.Hour)))} {
		held := model.DeepCopy()
		held.Spec.ShutdownTime = shutdown // set on one that has failed
		if err := f.api.Create(ctx, held); err != nil {
			t.Fatal(err)
		}
	}
	f.sync()
	f.reconcile()
	f.wantPooled(6) // of 1, 3 for a and 3 of 5 for b, as many as may be starting
	f.start(f.pooled()...)
	f.sync()
	f.reconcile()
	f.wantPooled(7)
	f.wantStatus(7, 6, 7, 6)
}

// What a claim holds and is starting for it may fail or go. The claim waits for one
// more then, which nothing but the sandbox tells.
func testStartsForClaims(_ *testing.T, f *fixture) {
	f.createSet(0)
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.ScaleStrategy.Burst = new(int32(5)) })
	f.show(makeClaim("a", 2))
	held := starting("held").label(v1alpha1.LabelSandboxClaimed, v1alpha1.ClaimedTrue).Sandbox
	held.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxClaim", Name: "a", UID: "a-uid", Controller: new(true),
	}}
	held.Annotations = map[string]string{v1alpha1.AnnotationStarting: "true"}
	changed := func(change func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
		other := held.DeepCopy()
		change(other)
		return other
	}
	ready := changed(func(s *v1alpha1.Sandbox) { s.Annotations = nil })
	others := changed(func(s *v1alpha1.Sandbox) { s.OwnerReferences[0].UID = "b-uid" })
	failed := changed(func(s *v1alpha1.Sandbox) { s.Spec.ShutdownTime = new(metav1.NewTime(f.clock.Now())) })
	updated := func(before, after *v1alpha1.Sandbox) []string {
		enqueued := &enqueuedSets{}
		f.c.watches.sandboxes().Update(f.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, enqueued)
		return slices.Compact(enqueued.sets)
	}
	gone := func(sandbox *v1alpha1.Sandbox) []string {
		enqueued := &enqueuedSets{}
		f.c.watches.sandboxes().Delete(f.Context(), event.DeleteEvent{Object: sandbox}, enqueued)
		return enqueued.sets
	}
	f.wantEnqueued(updated(held, failed), "pool")
	f.wantEnqueued(updated(held, ready), "pool")
	f.wantEnqueued(updated(ready, ready))
	f.wantEnqueued(updated(others, others)) // whose claim does not wait
	f.wantEnqueued(gone(held), "pool")
	f.wantEnqueued(gone(ready))
	f.wantEnqueued(gone(others))
}

// However many claims wait, no more of them are looked into than the burst can serve.
func testVeryManyClaimsWait(t *testing.T, f *fixture) {
	f.createSet(0)
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.ScaleStrategy.Burst = new(int32(5)) })
	for i := range 100 {
		f.show(makeClaim(fmt.Sprint("c", i), 2))
	}
	lookups := 0
	f.cache.read = func() { lookups++ }
	f.reconcile()
	f.wantPooled(5)
	if lookups != 4 { // 3 claims, and the pool
		t.Errorf("sandboxes are looked up %d times", lookups)
	}
}
