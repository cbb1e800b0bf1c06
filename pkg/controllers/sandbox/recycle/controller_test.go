// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package recycle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/simulated"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

const ns = "default"

// template has metadata that sandboxes inherit, and something that is null.
const template = `{"metadata":{"annotations":{"agents.kruise.io/cleanup-enabled":"true","note":"of the set"},"creationTimestamp":null,"labels":{"app":"test"}},` +
	`"spec":{"containers":[{"image":"busybox","name":"main"}]}}`

// world is a server, with controllers that a test runs step by step.
type world struct {
	*testing.T
	server *testutil.Server
	api    client.WithWatch
	clock  clock.PassiveClock
}

func newWorld(t *testing.T) *world {
	s := testutil.Start(t)
	return &world{T: t, server: s, api: s.RuntimeClient(t), clock: clock.RealClock{}}
}

// set makes a set at its revision, whose sandboxes hold their template, or refer to one.
func (w *world) set(name string, refers bool) *v1alpha1.SandboxSet {
	w.Helper()
	raw := &runtime.RawExtension{Raw: []byte(template)}
	set := builders.Set(name, 1)
	set.Namespace, set.Spec.Template = ns, raw
	resolved := podtemplate.Inline(raw)
	if refers {
		shared := builders.Template(name + "-shared")
		shared.Namespace, shared.Spec.Template = ns, raw
		w.create(shared)
		set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: shared.Name}
	}
	w.create(set)
	lookup := w.lookup(w.api)
	if refers {
		var err error
		if resolved, err = podtemplate.ResolveSet(w.Context(), set, lookup); err != nil {
			w.Fatal(err)
		}
	}
	revision, err := podtemplate.SetRevision(set, resolved)
	if err != nil {
		w.Fatal(err)
	}
	w.create(podtemplate.NewHolder(set, revision, resolved))
	w.revise(set, revision)
	return set
}

// revise makes a revision that of a set.
func (w *world) revise(set *v1alpha1.SandboxSet, revision string) {
	w.Helper()
	set.Status.UpdateRevision, set.Status.CurrentRevision = revision, podtemplate.CurrentRevision(set, revision)
	if err := w.api.Status().Update(w.Context(), set); err != nil {
		w.Fatal(err)
	}
}

func (w *world) lookup(c client.Client) *templates.Lookup {
	return &templates.Lookup{Cache: c, Server: c}
}

func (w *world) create(object client.Object) {
	w.Helper()
	if err := w.api.Create(w.Context(), object); err != nil {
		w.Fatal(err)
	}
}

// member makes a sandbox for the pool of a set, which runs.
func (w *world) member(set *v1alpha1.SandboxSet, name string) *v1alpha1.Sandbox {
	w.Helper()
	sb, err := podtemplate.NewCache().NewMember(w.Context(), set, w.lookup(w.api))
	if err != nil {
		w.Fatal(err)
	}
	sb.Name = name
	w.create(sb)
	w.mustRun(sb.Name)
	return w.get(sb.Name)
}

// claimed claims a new member of a set, and returns it as it is when its user is done with
// it and asks for it to be recycled.
func (w *world) claimed(set *v1alpha1.SandboxSet, name string, changes ...func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	w.Helper()
	w.member(set, name)
	claim := testutil.Claim(set, "of-"+name, 1, func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels, c.Spec.Annotations = map[string]string{"claimed": "so"}, map[string]string{"claimed": "so"}
		c.Spec.ShutdownTime = new(metav1.NewTime(time.Now().Add(time.Hour)))
	})
	claim.Namespace = ns
	w.create(claim)
	w.server.AwaitClaim(w.T, ns, claim.Name, testutil.Completed)
	sb := w.get(name)
	if sb.Labels[v1alpha1.LabelClaimName] != claim.Name {
		w.Fatalf("%s is not claimed: %v", name, sb.Labels)
	}
	sb.Labels["mine"], sb.Annotations["mine"] = "yes", "yes"
	sb.Annotations[v1alpha1.AnnotationRuntimeURL] = "http://evil.example.com"
	sb.Annotations[v1alpha1.AnnotationSandboxID] = "evil"
	sb.Annotations[v1alpha1.AnnotationCleanup] = "true"
	sb.Finalizers = []string{"example.com/mine"}
	sb.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "mine", UID: "mine"}}
	sb.Spec.PauseTime, sb.Spec.Service, sb.Spec.PersistentContents = new(metav1.NewTime(time.Now().Add(time.Hour))), new(true), []string{"ip"}
	for _, change := range changes {
		change(sb)
	}
	if err := w.api.Update(w.Context(), sb); err != nil {
		w.Fatal(err)
	}
	return sb
}

func (w *world) get(name string) *v1alpha1.Sandbox {
	w.Helper()
	sb := &v1alpha1.Sandbox{}
	if err := w.api.Get(w.Context(), types.NamespacedName{Namespace: ns, Name: name}, sb); err != nil {
		w.Fatal(err)
	}
	return sb
}

// in is the same world in another test.
func (w *world) in(t *testing.T) *world {
	return &world{T: t, server: w.server, api: w.api, clock: w.clock}
}

// remove takes a sandbox out of the test.
func (w *world) remove(name string) {
	w.Helper()
	sb := w.get(name)
	if len(sb.Finalizers) > 0 {
		sb.Finalizers = nil
		if err := w.api.Update(w.Context(), sb); err != nil {
			w.Fatal(err)
		}
	}
	if err := w.api.Delete(w.Context(), sb); err != nil {
		w.Fatal(err)
	}
}

// mustRun is run with controllers that do not fail.
func (w *world) mustRun(name string) {
	w.Helper()
	if err := w.run(w.api, name); err != nil {
		w.Fatal(err)
	}
}

func (w *world) isGone(name string) bool {
	err := w.api.Get(w.Context(), types.NamespacedName{Namespace: ns, Name: name}, &v1alpha1.Sandbox{})
	return apierrors.IsNotFound(err)
}

// run lets new controllers reconcile a sandbox until nothing changes any more, or they fail.
func (w *world) run(c client.Client, name string) error {
	key := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: name}}
	all := []reconcile.Reconciler{
		recycle.New(recycle.Options{Client: c, Reader: c, Clock: w.clock, Lookup: w.lookup(c), Timeout: time.Minute}),
		simulated.New(c, w.lookup(c), clocktesting.NewFakePassiveClock(w.clock.Now().Add(time.Second)), simulated.Options{}),
	}
	for version := ""; ; {
		for _, controller := range all {
			if _, err := controller.Reconcile(w.Context(), key); err != nil {
				return err
			}
		}
		sb := &v1alpha1.Sandbox{}
		if err := w.api.Get(w.Context(), key.NamespacedName, sb); err != nil || sb.ResourceVersion == version {
			return client.IgnoreNotFound(err)
		}
		version = sb.ResourceVersion
	}
}

// difference is what of a sandbox that was recycled is not as in a new one.
func difference(fresh, recycled *v1alpha1.Sandbox) string {
	reduced := func(sb *v1alpha1.Sandbox) *v1alpha1.Sandbox {
		sb = sb.DeepCopy()
		sb.ManagedFields, sb.Name, sb.UID, sb.ResourceVersion, sb.CreationTimestamp = nil, "", "", "", metav1.Time{}
		sb.Status.ObservedGeneration -= sb.Generation // 0 where it is observed
		sb.Generation, sb.Status.RecycledCount = 0, 0
		meta.RemoveStatusCondition(&sb.Status.Conditions, v1alpha1.SandboxConditionRecycling)
		// The simulated address and pod follow from the UID.
		sb.Status.SandboxIP, sb.Status.PodInfo.PodIP, sb.Status.PodInfo.PodUID = "", "", ""
		return sb
	}
	return cmp.Diff(reduced(fresh), reduced(recycled), cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime", "ObservedGeneration"))
}

// TestRecycled: whatever its user has done to a sandbox, it becomes what its set would make
// now.
func TestRecycled(t *testing.T) {
	w := newWorld(t)
	for name, refers := range map[string]bool{"inline": false, "refers": true} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			set := w.set(name, refers)
			before := w.claimed(set, name+"-used")
			w.mustRun(before.Name)
			after, fresh := w.get(before.Name), w.member(set, name+"-fresh")
			if diff := difference(fresh, after); diff != "" {
				t.Errorf("a recycled sandbox differs from a new one (-new +recycled):\n%s", diff)
			}
			if after.UID != before.UID || after.Status.RecycledCount != 1 || after.Status.ObservedGeneration != after.Generation {
				t.Errorf("it is %+v", after)
			}
			c := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.SandboxConditionRecycling)
			if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonRecyclingSucceeded {
				t.Errorf("condition is %+v", c)
			}
			for _, entry := range after.ManagedFields {
				if entry.Operation == metav1.ManagedFieldsOperationApply {
					t.Errorf("%s still manages its fields", entry.Manager)
				}
			}
		})
	}
}

// errDied is what a controller sees that has ended: nothing that it does is done.
var errDied = errors.New("the process has ended")

// dying is a client of a process that ends after so many writes.
func dying(api client.WithWatch, writes int) client.Client {
	write := func(do func() error) error {
		if writes--; writes < 0 {
			return errDied
		}
		return do()
	}
	return interceptor.NewClient(api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
	})
}

// TestCrashes: controllers that end after any of their writes are followed by others that
// come to the same.
func TestCrashes(t *testing.T) {
	w := newWorld(t)
	set := w.set("pool", true)
	fresh := w.member(set, "fresh")
	w.remove("fresh")
	tests := map[string]struct {
		change func(*v1alpha1.Sandbox)
		// writes is how many there are.
		writes int
		// problem is what is wrong with what has become of the sandbox.
		problem func(sb *v1alpha1.Sandbox) string
	}{
		"succeeds": {
			writes: 4, change: func(*v1alpha1.Sandbox) {},
			problem: func(sb *v1alpha1.Sandbox) string {
				if sb.Status.RecycledCount != 1 {
					return fmt.Sprintf("was recycled %d times", sb.Status.RecycledCount)
				}
				return difference(fresh, sb)
			},
		},
		"is rejected": {
			writes: 3, change: func(sb *v1alpha1.Sandbox) { // one of them observes the change
				sb.Annotations[v1alpha1.AnnotationCleanupEnabled] = "false"
			},
			problem: func(sb *v1alpha1.Sandbox) string {
				if sb.Status.Phase != v1alpha1.SandboxRunning || sb.Annotations[v1alpha1.AnnotationCleanup] != "" || sb.Labels[v1alpha1.LabelClaimName] == "" {
					return fmt.Sprintf("is %+v", sb)
				}
				return conditionIs(sb, v1alpha1.ReasonRecyclingRejected)
			},
		},
		"fails and is kept": {
			writes: 3, change: func(sb *v1alpha1.Sandbox) { // one of them observes the shutdownTime
				sb.Annotations[v1alpha1.AnnotationPoolUID] = "of-another"
				sb.Annotations[v1alpha1.AnnotationCleanupRetainOnFailure] = "10m"
			},
			problem: func(sb *v1alpha1.Sandbox) string {
				left := time.Until(sb.Spec.ShutdownTime.Time)
				if left > 10*time.Minute || left < time.Minute || sb.Annotations[v1alpha1.AnnotationCleanup] != "" || sb.Status.Phase != v1alpha1.SandboxRunning {
					return fmt.Sprintf("is shut down in %s: %+v", left, sb)
				}
				return conditionIs(sb, v1alpha1.ReasonRecyclingFailed)
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			for writes := 0; ; writes++ {
				used := fmt.Sprintf("box-%d-%d", len(name), writes)
				w.claimed(set, used, tc.change)
				died := w.run(dying(w.api, writes), used)
				if died != nil && !errors.Is(died, errDied) {
					t.Fatal(died)
				}
				w.mustRun(used)
				if problem := tc.problem(w.get(used)); problem != "" {
					t.Errorf("after a crash after %d writes: %s", writes, problem)
				}
				w.remove(used)
				if died == nil {
					if writes != tc.writes {
						t.Errorf("took %d writes, want %d", writes, tc.writes)
					}
					return
				}
			}
		})
	}
}

// TestFailures: what cannot go back is deleted, or kept for as long as it says.
func TestFailures(t *testing.T) {
	w := newWorld(t)
	set := w.set("pool", false)
	keep := func(value string) func(*v1alpha1.Sandbox) {
		return func(sb *v1alpha1.Sandbox) { sb.Annotations[v1alpha1.AnnotationCleanupRetainOnFailure] = value }
	}
	tests := map[string]struct {
		change func(*v1alpha1.Sandbox)
		kept   time.Duration // 0 is deleted at once
	}{
		"at once":          {change: func(*v1alpha1.Sandbox) {}},
		"not a duration":   {change: keep("soon")},
		"not positive":     {change: keep("-1h")},
		"for a while":      {change: keep("1h30m"), kept: 90 * time.Minute},
		"for centuries":    {change: keep("2000000h"), kept: v1alpha1.MaxCleanupRetention},
		"more than a Go's": {change: keep("99999999h")},
	}
	n := 0
	for name, tc := range tests {
		n++
		t.Run(name, func(t *testing.T) {
			w, used := w.in(t), fmt.Sprintf("box-%d", n)
			began := time.Now()
			w.claimed(set, used, func(sb *v1alpha1.Sandbox) {
				sb.Finalizers = nil
				sb.Annotations[v1alpha1.AnnotationPoolUID] = "of-another"
			}, tc.change)
			w.mustRun(used)
			if tc.kept == 0 {
				if !w.isGone(used) {
					t.Errorf("it is %+v", w.get(used))
				}
				return
			}
			sb := w.get(used)
			if got := sb.Spec.ShutdownTime.Sub(began); got < tc.kept-time.Second || got > tc.kept+time.Minute {
				t.Errorf("it is kept for %s, want %s", got, tc.kept)
			}
			if problem := conditionIs(sb, v1alpha1.ReasonRecyclingFailed); problem != "" || sb.Status.Phase != v1alpha1.SandboxRunning {
				t.Errorf("it is %+v: %s", sb, problem)
			}
			w.remove(used)
		})
	}
}

// TestSetIsGone: nothing goes back to a set of the name that is not the set.
func TestSetIsGone(t *testing.T) {
	w := newWorld(t)
	set := w.set("pool", false)
	orphan, later := w.claimed(set, "orphan", noFinalizers), w.claimed(set, "later", noFinalizers)
	if err := w.api.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	w.mustRun(orphan.Name)
	if !w.isGone(orphan.Name) {
		t.Errorf("a sandbox of a set that is gone is %+v", w.get(orphan.Name))
	}
	again := builders.Set("pool", 1)
	again.Namespace, again.Spec.Template = ns, &runtime.RawExtension{Raw: []byte(template)}
	w.create(again)
	w.revise(again, later.Labels[v1alpha1.LabelTemplateHash])
	w.mustRun(later.Name)
	if !w.isGone(later.Name) {
		t.Errorf("a sandbox went to another set of the name: %+v", w.get(later.Name))
	}
}

// TestTimeout: a sandbox whose pod is not deleted, or that does not get a new one, is given
// up when its time is up.
func TestTimeout(t *testing.T) {
	w := newWorld(t)
	set := w.set("pool", false)
	for name, stages := range map[string]int{"begun": 1, "cleaned": 2, "back": 3} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			w.claimed(set, name, func(sb *v1alpha1.Sandbox) {
				sb.Annotations[v1alpha1.AnnotationCleanupRetainOnFailure] = "1h"
			})
			if err := w.run(dying(w.api, stages), name); !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			controller := func(after time.Duration) (reconcile.Result, error) {
				clk := clocktesting.NewFakePassiveClock(time.Now().Add(after))
				c := recycle.New(recycle.Options{Client: w.api, Reader: w.api, Clock: clk, Lookup: w.lookup(w.api), Timeout: time.Minute})
				return c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: name}})
			}
			if name != "cleaned" { // which would continue
				before := w.get(name)
				if result, err := controller(0); err != nil || result.RequeueAfter < 50*time.Second || result.RequeueAfter > time.Minute {
					t.Errorf("looks again after %s, %v", result.RequeueAfter, err)
				}
				if w.get(name).ResourceVersion != before.ResourceVersion {
					t.Error("was changed before its time was up")
				}
			}
			if _, err := controller(time.Minute + time.Second); err != nil {
				t.Fatal(err)
			}
			if name == "back" {
				if !w.isGone(name) {
					t.Errorf("in its pool it is %+v", w.get(name))
				}
				return
			}
			sb := w.get(name)
			if problem := conditionIs(sb, v1alpha1.ReasonRecyclingTimeout); problem != "" || sb.Status.Phase != v1alpha1.SandboxFailed || sb.Status.SandboxIP != "" {
				t.Errorf("it is %+v: %s", sb, problem)
			}
			if left := time.Until(sb.Spec.ShutdownTime.Time); left < time.Hour || sb.Annotations[v1alpha1.AnnotationCleanup] != "" {
				t.Errorf("it is kept for %s: %v", left, sb.Annotations)
			}
			w.remove(name)
		})
	}
}

// TestRejections: what is not recycled continues as it is, and can be asked for again.
func TestRejections(t *testing.T) {
	w := newWorld(t)
	set := w.set("pool", false)
	before := w.claimed(set, "used", func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true })
	recycler := recycle.New(recycle.Options{Client: w.api, Reader: w.api, Clock: w.clock, Lookup: w.lookup(w.api), Timeout: time.Minute})
	if _, err := recycler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(before)}); err != nil {
		t.Fatal(err)
	}
	after := w.get("used")
	if problem := conditionIs(after, v1alpha1.ReasonRecyclingRejected); problem != "" {
		t.Error(problem)
	}
	delete(before.Annotations, v1alpha1.AnnotationCleanup)
	if diff := cmp.Diff(before.Spec, after.Spec) + cmp.Diff(before.Annotations, after.Annotations) + cmp.Diff(before.Labels, after.Labels); diff != "" {
		t.Errorf("it changed (-before +after):\n%s", diff)
	}
	after.Spec.Paused = false
	if err := w.api.Update(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	w.mustRun("used")
	again := w.get("used")
	again.Annotations[v1alpha1.AnnotationCleanup] = "true"
	if err := w.api.Update(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	w.mustRun("used")
	if again = w.get("used"); again.Status.RecycledCount != 1 || !v1alpha1.IsInPool(again) {
		t.Errorf("asked for again it is %+v", again)
	}
}

func noFinalizers(sb *v1alpha1.Sandbox) { sb.Finalizers = nil }

func conditionIs(sb *v1alpha1.Sandbox, reason string) string {
	c := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionRecycling)
	if c == nil || c.Reason != reason || c.Status != metav1.ConditionFalse {
		return fmt.Sprintf("condition is %+v, want %s", c, reason)
	}
	return ""
}
