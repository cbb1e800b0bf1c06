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

// wakes notes which sets were woken.
type wakes struct {
	noQueue
	sets []string
}

func (w *wakes) Add(r reconcile.Request)                       { w.sets = append(w.sets, r.Name) }
func (w *wakes) AddAfter(r reconcile.Request, _ time.Duration) { w.sets = append(w.sets, r.Name) }

// show delivers a claim, and returns which sets that woke.
func (f *fixture) show(claim *v1alpha1.SandboxClaim) []string {
	f.Helper()
	claim.Namespace = f.key.Namespace
	woken := &wakes{}
	f.c.claimEvents().Update(f.Context(), event.UpdateEvent{ObjectOld: claim, ObjectNew: claim}, woken)
	slices.Sort(woken.sets)
	return woken.sets
}

func (f *fixture) wantWoken(woken []string, want ...string) {
	f.Helper()
	if !slices.Equal(woken, want) {
		f.Fatalf("woken: %q, want %q", woken, want)
	}
}

func (f *fixture) pass(d time.Duration) {
	f.Helper()
	f.clock.SetTime(f.clock.Now().Add(d))
}

// A set of none with a burst makes what claims wait for, and what nobody takes goes
// again when nobody has wanted it for a while.
func testClaimsWait(t *testing.T, f *fixture) {
	f.createSet(0)
	f.reconcile()
	f.wantWoken(f.show(waitingClaim("a", 4)))
	f.reconcile()
	f.wantPooled(0) // it has no burst
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.ScaleStrategy.Burst = new(int32(5)) })
	f.reconcile()
	pooled := f.wantPooled(4)
	f.wantStatus(4, 0, 4, 0)
	f.wantWoken(f.show(waitingClaim("b", 3)), "pool")
	f.sync()
	f.reconcile()
	f.wantPooled(5) // no more than the burst

	// A claim takes one. The cache shows that of the sandbox first, and then of the
	// claim: in between none is made in its place, for which nobody waits.
	f.start(pooled[0])
	taken := pooled[0].DeepCopy()
	taken.OwnerReferences = nil
	taken.Labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedTrue
	taken.Annotations = map[string]string{v1alpha1.AnnotationLock: "a-uid", v1alpha1.AnnotationOwner: "b-uid"}
	if err := f.api.Update(f.Context(), taken); err != nil {
		t.Fatal(err)
	}
	f.show(waitingClaim("b", 2))
	f.show(waitingClaim("a", 2)) // 4 are waited for, 3 with the one that is taken
	f.pass(time.Minute)
	f.sync()
	f.reconcile()
	f.wantPooled(4)
	f.show(waitingClaim("b", 2, has(1, taken.ResourceVersion)))
	f.reconcile()
	f.wantPooled(4)

	// Both give up. What was made for them is left alone for as long as claims may
	// still come.
	completed := func(c *v1alpha1.SandboxClaim) { c.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted }
	f.wantWoken(f.show(waitingClaim("a", 2, completed)), "pool")
	f.wantWoken(f.show(waitingClaim("b", 2, completed)), "pool")
	f.wantWoken(f.show(waitingClaim("b", 2, completed)))
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
	if len(f.c.aheads.sets) != 0 {
		t.Errorf("%v is remembered", f.c.aheads.sets)
	}
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
	f.wantWoken(f.show(waitingClaim("elsewhere", 9, onTemplate, func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = "other" })), "pool")
	f.reconcile()
	f.wantPooled(1) // not its to serve
	f.wantWoken(f.show(waitingClaim("a", 3, onTemplate)), "pool")
	f.reconcile()
	f.sync()
	f.wantPooled(4)

	// A set of the template's name is what the claim asks for, once there is one.
	named := makeSet(0)
	named.ObjectMeta = metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "template"}
	if err := f.api.Create(ctx, named); err != nil {
		t.Fatal(err)
	}
	woken := &wakes{}
	f.c.setEvents().Create(ctx, event.CreateEvent{Object: named}, woken)
	f.wantWoken(woken.sets, "template", "pool")
	f.pass(time.Minute)
	f.reconcile()
	f.wantPooled(4) // since when nobody wants them is known by that look alone
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
	f.show(waitingClaim("b", 5, onTemplate))
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
	f.show(waitingClaim("a", 2))
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
		woken := &wakes{}
		f.c.sandboxEvents().Update(f.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, woken)
		return slices.Compact(woken.sets)
	}
	gone := func(sandbox *v1alpha1.Sandbox) []string {
		woken := &wakes{}
		f.c.sandboxEvents().Delete(f.Context(), event.DeleteEvent{Object: sandbox}, woken)
		return woken.sets
	}
	f.wantWoken(updated(held, failed), "pool")
	f.wantWoken(updated(held, ready), "pool")
	f.wantWoken(updated(ready, ready))
	f.wantWoken(updated(others, others)) // whose claim does not wait
	f.wantWoken(gone(held), "pool")
	f.wantWoken(gone(ready))
	f.wantWoken(gone(others))
}

// However many claims wait, no more of them are looked into than the burst can serve.
func testVeryManyClaimsWait(t *testing.T, f *fixture) {
	f.createSet(0)
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.ScaleStrategy.Burst = new(int32(5)) })
	for i := range 100 {
		f.show(waitingClaim(fmt.Sprint("c", i), 2))
	}
	lookups := 0
	f.cache.read = func() { lookups++ }
	f.reconcile()
	f.wantPooled(5)
	if lookups != 4 { // 3 claims, and the pool
		t.Errorf("sandboxes are looked up %d times", lookups)
	}
}
