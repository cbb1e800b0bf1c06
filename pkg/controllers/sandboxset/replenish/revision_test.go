// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// raw is a template field.
func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func podOf(image string) *runtime.RawExtension {
	return raw(fmt.Sprintf(`{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":%q}]}}`, image))
}

func (f *fixture) createTemplate(name string, template *runtime.RawExtension) {
	f.Helper()
	object := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: name}}
	object.Spec.Template = template
	if err := f.api.Create(f.Context(), object); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) template(name string) *v1alpha1.SandboxTemplate {
	f.Helper()
	object := &v1alpha1.SandboxTemplate{}
	if err := f.api.Get(f.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: name}, object); err != nil {
		f.Fatal(err)
	}
	return object
}

func (f *fixture) changeBase(template *runtime.RawExtension) {
	f.Helper()
	object := f.template("base")
	object.Spec.Template = template
	if err := f.api.Update(f.Context(), object); err != nil {
		f.Fatal(err)
	}
}

// createReferring makes a set that refers to the template "base".
func (f *fixture) createReferring(replicas int32, patch string) {
	f.Helper()
	set := makeSet(replicas)
	set.ObjectMeta = metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name}
	set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "base"}
	if patch != "" {
		set.Spec.Patch = raw(patch)
	}
	if err := f.api.Create(f.Context(), set); err != nil {
		f.Fatal(err)
	}
}

// holder is the SandboxTemplate that holds the revision in the set's status.
func (f *fixture) holder() *v1alpha1.SandboxTemplate {
	f.Helper()
	return f.template(podtemplate.HolderOf(&f.set().Status))
}

// wantHolders checks which revisions the SandboxTemplates hold that the set owns.
func (f *fixture) wantHolders(revisions ...string) {
	f.Helper()
	got, err := testHolders{f}.ControlledBy(f.set().UID)
	if err != nil {
		f.Fatal(err)
	}
	var names, held []string
	for _, holder := range got {
		names = append(names, holder.Name)
		if podtemplate.IsRevision(holder) {
			held = append(held, holder.Labels[v1alpha1.LabelTemplateHash])
		}
	}
	slices.Sort(held)
	slices.Sort(revisions)
	if !slices.Equal(held, revisions) {
		f.Errorf("the set owns %v, want what holds %v", names, revisions)
	}
}

func (f *fixture) wantResolved(status metav1.ConditionStatus, reason string) {
	f.Helper()
	set := f.set()
	got := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionTemplateResolved)
	if got == nil || got.Status != status || got.Reason != reason || got.ObservedGeneration != set.Generation {
		f.Fatalf("condition %+v, want %s %s", got, status, reason)
	}
}

func testHoldsEachRevision(_ *testing.T, f *fixture) {
	f.createSet(2)
	f.reconcile()
	set := f.set()
	first := set.Status.UpdateRevision
	f.wantHolders(first)
	holder := f.template(set.Status.CurrentRevision)
	owner := metav1.GetControllerOf(holder)
	if owner == nil || owner.UID != set.UID || owner.BlockOwnerDeletion == nil || *owner.BlockOwnerDeletion {
		f.Errorf("owner %+v", owner)
	}
	if string(holder.Spec.Template.Raw) != string(set.Spec.Template.Raw) {
		f.Errorf("holds %s", holder.Spec.Template.Raw)
	}
	for _, sandbox := range f.wantPooled(2) {
		if sandbox.Spec.Template == nil || sandbox.Spec.TemplateRef != nil {
			f.Errorf("%s does not hold its template", sandbox.Name)
		}
	}
	if meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionTemplateResolved) != nil {
		f.Error("tells of a template that it does not refer to")
	}
	f.start(f.pooled()...)
	f.sync()
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.Template = podOf("other") })
	f.reconcile()
	second := f.set().Status.UpdateRevision
	f.wantHolders(first, second)
	for range 4 {
		f.sync()
		f.reconcile()
		f.start(f.pooled()...)
	}
	f.sync()
	f.reconcile()
	f.wantStatus(2, 2, 2, 2)
	f.wantHolders(first, second)
}

func testRefersAndPatches(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(3, `{"metadata":{"labels":{"tier":"small"}},"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"b"}]}]}}`)
	f.reconcile()
	set := f.set()
	f.wantResolved(metav1.ConditionTrue, v1alpha1.ReasonResolved)
	f.wantHolders(set.Status.UpdateRevision)
	want := `{"metadata":{"labels":{"app":"x","tier":"small"}},"spec":{"containers":[{"env":[{"name":"A","value":"b"}],"image":"busybox","name":"c"}]}}`
	if got := string(f.template(set.Status.CurrentRevision).Spec.Template.Raw); got != want {
		f.Errorf("holds\n%s, want\n%s", got, want)
	}
	for _, sandbox := range f.wantPooled(3) {
		ref := sandbox.Spec.TemplateRef
		if sandbox.Spec.Template != nil || ref == nil || ref.Name != set.Status.CurrentRevision {
			f.Errorf("%s has template %v, reference %+v", sandbox.Name, sandbox.Spec.Template, ref)
		}
		if l := sandbox.Labels; l["app"] != "x" || l["tier"] != "small" || l[v1alpha1.LabelSandboxTemplate] != "base" ||
			l[v1alpha1.LabelSandboxPool] != "pool" || l[v1alpha1.LabelTemplateHash] != set.Status.UpdateRevision {
			f.Errorf("labels %v", l)
		}
	}
	for range 10 {
		f.claim(f.pooled()[0])
		f.sync()
		f.reconcile()
	}
	if got := f.c.revisions.podTemplates.Patches(); got != 1 {
		f.Errorf("%d patches applied for one template and one patch", got)
	}
}

// wantCurrent checks the set's current revision, and by what name the sandboxes of the
// pool refer to it.
func (f *fixture) wantCurrent(current, holder string) {
	f.Helper()
	if got := f.set().Status.CurrentRevision; got != current {
		f.Errorf("the current revision is %q, want %q", got, current)
	}
	for _, sandbox := range f.pooled() {
		if ref := sandbox.Spec.TemplateRef; ref == nil || ref.Name != holder {
			f.Errorf("%s refers to %+v, want %s", sandbox.Name, ref, holder)
		}
	}
}

// The current revision of a set without a patch is its template, whatever becomes of
// that, and nothing has the set's name.
func testTakesTemplateAsItIs(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(2, "")
	f.fill()
	old := f.set().Status.UpdateRevision
	f.wantCurrent("base", "base-"+old)

	f.changeBase(podOf("other"))
	f.refer("base")
	revision := f.set().Status.UpdateRevision
	if revision == old {
		f.Fatal("the change does not roll out")
	}
	f.wantCurrent("base", "base-"+revision)
	f.wantHolders(old, revision)

	// What was last good is used where the template is not.
	if err := f.api.Delete(f.Context(), f.template("base")); err != nil {
		f.Fatal(err)
	}
	f.claim(f.pooled()[0])
	f.sync()
	f.pass(maxCountInterval)
	f.reconcile()
	f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	f.wantPooled(2)
	f.wantCurrent("base", "base-"+revision)
	all := &v1alpha1.SandboxTemplateList{}
	if err := f.api.List(f.Context(), all, client.InNamespace(f.key.Namespace)); err != nil {
		f.Fatal(err)
	}
	for _, template := range all.Items {
		if strings.HasPrefix(template.Name, f.key.Name+"-") {
			f.Errorf("there is a SandboxTemplate %s", template.Name)
		}
	}
}

// Where what a set is given together with a patch is no good, the revision without it is
// refilled from what holds that; and the other way round.
func testGetsPatch(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(2, "")
	f.fill()
	bare := f.set().Status.UpdateRevision
	refill := func() {
		f.Helper()
		f.claim(f.pooled()[0])
		f.sync()
		f.pass(maxCountInterval)
		f.reconcile()
		f.wantPooled(2)
	}
	f.changeSet(func(set *v1alpha1.SandboxSet) {
		set.Spec.Patch, set.Spec.TemplateRef.Name = raw(`{"spec":{"nodeSelector":{"a":"b"}}}`), "missing"
	})
	refill()
	f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	f.wantCurrent("base", "base-"+bare)

	f.refer("base")
	patched := f.set().Status.UpdateRevision
	f.wantCurrent("pool-"+patched, "pool-"+patched)
	f.wantHolders(bare, patched)

	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.Patch, set.Spec.TemplateRef.Name = nil, "missing" })
	refill()
	f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	f.wantCurrent("pool-"+patched, "pool-"+patched)
}

// A pool whose revision is held by another template's name, or by its own as with earlier
// versions, is not made anew for it, and keeps what it refers to.
func testHeldUnderAnotherName(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createTemplate("twin", podOf("busybox"))
	f.createReferring(2, "")
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.RevisionHistoryLimit = new(int32(0)) })
	f.reconcile()
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.TemplateRef.Name = "twin" })
	for range 2 { // the cache does not have the sandboxes yet
		f.reconcile()
	}
	revision := f.set().Status.UpdateRevision
	f.wantHolders(revision, revision)
	f.wantCurrent("twin", "base-"+revision)
	f.refer("twin")
	f.wantHolders(revision, revision)
	f.wantCurrent("twin", "base-"+revision)
	for _, sandbox := range f.pooled() {
		if err := f.api.Delete(f.Context(), sandbox); err != nil {
			f.Fatal(err)
		}
	}
	f.sync()
	f.pass(maxCountInterval)
	f.refer("twin")
	f.wantPooled(2)
	f.wantHolders(revision)
	f.wantCurrent("twin", "twin-"+revision)

	set := f.set()
	earlier := podtemplate.NewHolder(set, revision, podtemplate.Inline(podOf("busybox")))
	earlier.Name = "pool-" + revision
	if err := f.api.Create(f.Context(), earlier); err != nil {
		f.Fatal(err)
	}
	set.Status.CurrentRevision = earlier.Name
	if err := f.api.Status().Update(f.Context(), set); err != nil {
		f.Fatal(err)
	}
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.TemplateRef.Name = "missing" })
	for _, sandbox := range f.pooled() {
		f.claim(sandbox)
	}
	f.sync()
	f.pass(maxCountInterval)
	f.reconcile()
	f.wantPooled(2)
	f.wantCurrent(earlier.Name, earlier.Name)
}

func testNoTemplateYet(_ *testing.T, f *fixture) {
	f.createReferring(3, "")
	f.reconcile()
	f.wantPooled(0)
	f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	if s := f.set().Status; s.UpdateRevision != "" || s.CurrentRevision != "" || s.ObservedGeneration == 0 {
		f.Errorf("status %+v", s)
	}
	f.wantHolders()
	f.createTemplate("base", podOf("busybox"))
	f.reconcile()
	f.wantPooled(3)
	f.wantResolved(metav1.ConditionTrue, v1alpha1.ReasonResolved)
}

func testTemplateRollsOut(_ *testing.T, f *fixture) {
	const replicas, floor = 100, 80
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(replicas, `{"spec":{"nodeSelector":{"a":"b"}}}`)
	f.fill()
	old := f.set().Status.UpdateRevision
	generation := f.set().Generation
	f.changeBase(podOf("other"))
	rounds := 0
	for ; f.set().Status.UpdatedAvailableReplicas < replicas || f.set().Status.UpdateRevision == old; rounds++ {
		if rounds > 60 {
			f.Fatalf("not done: %+v", f.set().Status)
		}
		f.reconcile()
		available, starting := 0, []*v1alpha1.Sandbox{}
		for _, sandbox := range f.pooled() {
			if stateInPool(sandbox, f.clock.Now()) == stateAvailable {
				available++
			} else {
				starting = append(starting, sandbox)
			}
		}
		if available < floor {
			f.Fatalf("%d available, the floor is %d", available, floor)
		}
		f.start(starting...)
		f.sync()
	}
	f.reconcile()
	set := f.set()
	if set.Generation != generation {
		f.Error("the set itself has changed")
	}
	f.wantStatus(replicas, replicas, replicas, replicas)
	f.wantHolders(old, set.Status.UpdateRevision)
	if got := f.c.revisions.podTemplates.Patches(); got != 2 {
		f.Errorf("%d patches applied for two templates", got)
	}
	if rounds < replicas/(replicas-floor) {
		f.Errorf("done in %d rounds, which cannot be", rounds)
	}
}

// What no longer fits leaves the old revision serving, and has it refilled.
func testTemplateBreaks(_ *testing.T, f *fixture) {
	recorder := events.NewFakeRecorder(100)
	f.c.report.recorder = recorder
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(4, `{"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"b"}]}]}}`)
	f.fill()
	old := f.set().Status

	// The patch now names a container that is not there.
	f.changeBase(raw(`{"spec":{"containers":[{"name":"d","image":"other"}]}}`))
	f.reconcile()
	f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonInvalidPatch)
	f.claim(f.pooled()[0])
	f.sync()
	for range 3 {
		f.pass(maxCountInterval)
		f.reconcile()
		f.sync()
	}
	now := f.set().Status
	if now.UpdateRevision != old.UpdateRevision || now.CurrentRevision != old.CurrentRevision || now.AvailableReplicas != 3 {
		f.Errorf("status %+v, before %+v", now, old)
	}
	for _, sandbox := range f.wantPooled(4) {
		if sandbox.Labels[v1alpha1.LabelTemplateHash] != old.UpdateRevision || sandbox.Spec.TemplateRef.Name != podtemplate.HolderOf(&old) {
			f.Errorf("%s is of %s, %+v", sandbox.Name, sandbox.Labels[v1alpha1.LabelTemplateHash], sandbox.Spec.TemplateRef)
		}
	}
	f.wantHolders(old.UpdateRevision)

	f.changeBase(podOf("mended"))
	f.reconcile()
	f.wantResolved(metav1.ConditionTrue, v1alpha1.ReasonResolved)
	if f.set().Status.UpdateRevision == old.UpdateRevision {
		f.Error("the mended template does not roll out")
	}
	told := map[string]int{}
	for len(recorder.Events) > 0 {
		told[strings.Fields(<-recorder.Events)[1]]++
	}
	if told[v1alpha1.ReasonInvalidPatch] != 1 || told[eventTemplateResolved] != 1 {
		f.Errorf("events %v", told)
	}
}

func testTemplateGoes(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(2, "")
	f.reconcile()
	f.sync()
	if err := f.api.Delete(f.Context(), f.template("base")); err != nil {
		f.Fatal(err)
	}
	f.claim(f.pooled()[0])
	f.sync()
	f.pass(maxCountInterval)
	f.reconcile()
	f.wantPooled(2)
	f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)

	// The last revision is deleted, too: what is there serves on.
	if err := f.api.Delete(f.Context(), f.holder()); err != nil {
		f.Fatal(err)
	}
	f.sync()
	f.claim(f.pooled()[0])
	f.sync()
	f.pass(maxCountInterval)
	f.reconcile()
	f.wantPooled(1)
	f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
}

// revisionName is the name of the template that is to hold what the set asks for.
func (f *fixture) revisionName() string {
	f.Helper()
	set := f.set()
	found, err := podtemplate.ResolveSet(f.Context(), set, f.c.options.Lookup)
	if err != nil {
		f.Fatal(err)
	}
	revision, err := podtemplate.SetRevision(set, found)
	if err != nil {
		f.Fatal(err)
	}
	return podtemplate.RevisionName(set, revision)
}

func testNameIsTaken(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(2, "")
	name := f.revisionName()
	f.createTemplate(name, podOf("else"))
	tries := f.countTemplateCreates()
	for range 3 {
		if got := f.reconcile().RequeueAfter; got == 0 || got > holderRetry {
			f.Errorf("looks again after %v", got)
		}
		f.wantPooled(0)
		f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonTemplateNameTaken)
		f.pass(time.Second)
	}
	f.pass(holderRetry)
	f.reconcile()
	if *tries != 2 {
		f.Errorf("%d tries, want one a minute", *tries)
	}
	taken := f.template(name)
	if err := f.api.Delete(f.Context(), taken); err != nil {
		f.Fatal(err)
	}
	f.c.watches.holders().Delete(f.Context(), event.DeleteEvent{Object: taken}, noQueue{})
	f.reconcile()
	f.wantPooled(2)
	f.wantResolved(metav1.ConditionTrue, v1alpha1.ReasonResolved)
}

// testChangeIsRefused: a change that the API refuses is tried once a minute, and at once when it changes.
func testChangeIsRefused(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(2, "")
	f.fill()
	f.refuseTemplates(apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("SandboxTemplate").GroupKind(), "base", nil))
	tries := f.countTemplateCreates()
	f.changeBase(podOf("refused"))
	for range 3 {
		f.claim(f.pooled()[0])
		f.sync()
		f.pass(maxCountInterval)
		f.reconcile()
		f.wantPooled(2)
		f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonInvalidTemplate)
	}
	if *tries != 1 {
		f.Errorf("%d tries, want one a minute", *tries)
	}
	f.changeBase(podOf("other"))
	f.reconcile()
	if *tries != 2 {
		f.Errorf("%d tries, want one for another change", *tries)
	}
}

// countTemplateCreates counts the creates of SandboxTemplates that the controller sends.
func (f *fixture) countTemplateCreates() *int {
	tries, create := new(0), f.funcs.Create
	f.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*v1alpha1.SandboxTemplate); ok {
			*tries++
		}
		if create != nil {
			return create(ctx, c, o, opts...)
		}
		return c.Create(ctx, o, opts...)
	}
	return tries
}

// A set with a template of its own is served all the same, and asks seldom.
func testNameIsTakenInline(_ *testing.T, f *fixture) {
	recorder := events.NewFakeRecorder(100)
	f.c.report.recorder = recorder
	f.createSet(2)
	name := f.revisionName()
	f.createTemplate(name, podOf("else"))
	tries := f.countTemplateCreates()
	for range 3 {
		if got := f.reconcile().RequeueAfter; got == 0 || got > holderRetry {
			f.Errorf("looks again after %v", got)
		}
		f.sync()
	}
	f.wantPooled(2)
	s := f.set().Status
	if s.UpdateRevision == "" || s.CurrentRevision != "" || meta.FindStatusCondition(s.Conditions, v1alpha1.SetConditionReplicaFailure) != nil {
		f.Errorf("status %+v", s)
	}
	f.pass(holderRetry)
	f.reconcile()
	if *tries != 2 {
		f.Errorf("%d tries, want one a minute", *tries)
	}
	told := 0
	for len(recorder.Events) > 0 {
		if strings.Fields(<-recorder.Events)[1] == eventRevisionNotHeld {
			told++
		}
	}
	if told != 1 {
		f.Errorf("told %d times", told)
	}
	if err := f.api.Delete(f.Context(), f.template(name)); err != nil {
		f.Fatal(err)
	}
	f.pass(holderRetry)
	f.reconcile()
	f.wantHolders(f.set().Status.UpdateRevision)
	if got := f.set().Status.CurrentRevision; got != name {
		f.Errorf("current revision %q", got)
	}
}

// A holder that cannot be made for the moment leaves the old revision serving, and
// has it refilled.
func testHolderOfChangeCannotBeMade(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(3, "")
	f.fill()
	old := f.set().Status
	f.refuseTemplates(apierrors.NewServiceUnavailable("not now"))
	f.changeBase(podOf("other"))
	f.claim(f.pooled()[0])
	f.sync()
	for range 3 {
		f.pass(maxCountInterval)
		f.wantRetry()
		f.sync()
	}
	now := f.set().Status
	if now.UpdateRevision != old.UpdateRevision || now.CurrentRevision != old.CurrentRevision {
		f.Errorf("status %+v, before %+v", now, old)
	}
	f.wantHolders(old.UpdateRevision)
	f.wantResolved(metav1.ConditionTrue, v1alpha1.ReasonResolved)
	for _, sandbox := range f.wantPooled(3) {
		if sandbox.Spec.TemplateRef.Name != podtemplate.HolderOf(&old) {
			f.Errorf("%s refers to %s", sandbox.Name, sandbox.Spec.TemplateRef.Name)
		}
	}
	f.funcs.Create = nil
	f.reconcile()
	if f.set().Status.UpdateRevision == old.UpdateRevision {
		f.Error("the change does not roll out")
	}
}

// testRollBackIsNotedOnce: as long as the status of a set cannot be written, its return to a revision is not
// noted again and again.
func testRollBackIsNotedOnce(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(1, "")
	f.fill()
	first := f.holder().Name
	f.changeBase(podOf("other"))
	f.reconcile()
	f.changeBase(podOf("busybox"))
	f.pass(time.Hour)
	patches := 0
	f.funcs.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		patches++
		return c.Patch(ctx, o, patch, opts...)
	}
	for range 3 {
		if _, err := f.c.revisions.target(f.Context(), f.set()); err != nil {
			f.Fatal(err)
		}
		f.pass(holderRetry)
	}
	if got := f.template(first).Annotations[v1alpha1.AnnotationRevisionReused]; got == "" || patches != 1 {
		f.Errorf("%d patches, last at %q", patches, got)
	}
}

// A set that was deleted without what it owned leaves its revision to the next.
func testAdoptsRevision(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(1, "")
	f.reconcile()
	holder := f.holder()
	holder.OwnerReferences = nil
	if err := f.api.Update(f.Context(), holder); err != nil {
		f.Fatal(err)
	}
	f.reconcile()
	f.wantResolved(metav1.ConditionTrue, v1alpha1.ReasonResolved)
	f.wantHolders(f.set().Status.UpdateRevision)

	// One that holds something else is not taken.
	holder = f.template(holder.Name)
	holder.OwnerReferences = nil
	if err := f.api.Update(f.Context(), holder); err != nil {
		f.Fatal(err)
	}
	holder.Spec.Template = podOf("else")
	if err := f.api.Update(f.Context(), holder); err != nil {
		f.Fatal(err)
	}
	if got := f.reconcile().RequeueAfter; got == 0 || got > holderRetry {
		f.Errorf("looks again after %v", got)
	}
	f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonTemplateNameTaken)
	f.wantHolders()
}

// forge puts another image into the SandboxTemplate of a revision, as users who may
// write SandboxTemplates can.
func (f *fixture) forge(holder *v1alpha1.SandboxTemplate) {
	f.Helper()
	forged := holder.DeepCopy()
	forged.ResourceVersion, forged.UID, forged.Spec.Template = "", "", podOf("evil")
	if err := f.api.Delete(f.Context(), holder); client.IgnoreNotFound(err) != nil {
		f.Fatal(err)
	}
	if err := f.api.Create(f.Context(), forged); err != nil {
		f.Fatal(err)
	}
}

// What has the name and the owner of a revision and another content is replaced, and no
// sandbox is made from it.
func testForgedRevision(_ *testing.T, f *fixture) {
	recorder := events.NewFakeRecorder(100)
	f.c.report.recorder = recorder
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(2, "")
	set := f.set()
	resolved := podtemplate.Inline(podOf("busybox"))
	revision, err := podtemplate.SetRevision(set, resolved)
	if err != nil {
		f.Fatal(err)
	}
	image := func(want string) {
		f.Helper()
		if got := string(f.template(podtemplate.RevisionName(set, revision)).Spec.Template.Raw); !strings.Contains(got, want) {
			f.Errorf("holds %s, want the image %s", got, want)
		}
	}
	// Before the controller makes it.
	f.forge(podtemplate.NewHolder(set, revision, resolved))
	f.reconcile()
	image("busybox")
	f.wantPooled(2)
	f.wantResolved(metav1.ConditionTrue, v1alpha1.ReasonResolved)

	// Again and again: told, and replaced once in a while.
	f.forge(f.template(podtemplate.RevisionName(set, revision)))
	f.claim(f.pooled()[0])
	f.sync()
	f.pass(maxCountInterval)
	if got := f.reconcile().RequeueAfter; got == 0 || got > holderRetry {
		f.Errorf("looks again after %v", got)
	}
	image("evil")
	f.wantPooled(1)
	f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonTemplateNameTaken)
	f.pass(holderRetry)
	f.reconcile()
	image("busybox")
	f.wantPooled(2)
	f.wantResolved(metav1.ConditionTrue, v1alpha1.ReasonResolved)
	told := 0
	for len(recorder.Events) > 0 {
		if strings.Fields(<-recorder.Events)[1] == eventRevisionReplaced {
			told++
		}
	}
	if told != 2 {
		f.Errorf("told %d times, want each that was replaced", told)
	}
}

// Earlier revisions stay, as many as the set says, and the oldest go first. One that the
// set comes back to is the newest again.
func testRevisionHistory(_ *testing.T, f *fixture) {
	f.createSet(0)
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.RevisionHistoryLimit = new(int32(1)) })
	at := func(image string) string {
		f.Helper()
		f.pass(time.Hour)
		f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.Template = podOf(image) })
		f.reconcile()
		f.reconcile()
		return f.set().Status.UpdateRevision
	}
	a, b := at("a"), at("b")
	f.wantHolders(a, b)
	uid := f.template("pool-" + a).UID
	if got := at("a"); got != a || f.template("pool-"+a).UID != uid {
		f.Errorf("back at %s, want what is held of %s", got, a)
	}
	f.wantHolders(a, b)
	c := at("c")
	f.wantHolders(a, c)
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.RevisionHistoryLimit = new(int32(0)) })
	f.reconcile()
	f.wantHolders(c)

	// Ten where the set does not say it.
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.RevisionHistoryLimit = nil })
	for i := range defaultRevisionHistory + 2 {
		at(fmt.Sprint(i))
	}
	held, err := testHolders{f}.ControlledBy(f.set().UID)
	if err != nil || len(held) != defaultRevisionHistory+1 {
		f.Errorf("%d held, %v", len(held), err)
	}
}

// A revision that something else refers to stays.
func testKeepsReferredRevision(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(0, "")
	f.reconcile()
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.RevisionHistoryLimit = new(int32(0)) })
	old := f.set().Status
	other := makeSet(0)
	other.ObjectMeta = metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "other"}
	other.Spec.Template, other.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: podtemplate.HolderOf(&old)}
	if err := f.api.Create(f.Context(), other); err != nil {
		f.Fatal(err)
	}
	f.changeBase(podOf("other"))
	f.reconcile()
	f.reconcile()
	now := f.set().Status.UpdateRevision
	f.wantHolders(old.UpdateRevision, now)
	if err := f.api.Delete(f.Context(), other); err != nil {
		f.Fatal(err)
	}
	f.reconcile()
	f.wantHolders(now)
}

// What is refilled from an old revision is labelled with the template it is from.
func testRefillsUnderOldName(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(1, "")
	f.reconcile()
	f.sync()
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.TemplateRef.Name = "missing" })
	f.claim(f.pooled()[0])
	f.sync()
	f.pass(maxCountInterval)
	f.reconcile()
	f.wantResolved(metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	if got := f.wantPooled(1)[0].Labels[v1alpha1.LabelSandboxTemplate]; got != "base" {
		f.Errorf("labelled %q", got)
	}
}

func testHolderCannotBeMade(t *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(2, "")
	f.refuseTemplates(apierrors.NewForbidden(v1alpha1.Resource("sandboxtemplates"), "", errors.New("exceeded quota")))
	f.wantRetry()
	f.wantPooled(0)
	if got := meta.FindStatusCondition(f.set().Status.Conditions, v1alpha1.SetConditionReplicaFailure); got == nil || !strings.Contains(got.Message, "exceeded quota") {
		t.Errorf("condition %+v", got)
	}
	f.funcs.Create = nil
	f.reconcile()
	f.wantPooled(2)
}

// templateLabels are the templates that the sandboxes of the pool and the holder of
// the set's revision are labelled with.
func (f *fixture) templateLabels() (pooled []string, holder string) {
	f.Helper()
	for _, sandbox := range f.pooled() {
		pooled = append(pooled, sandbox.Labels[v1alpha1.LabelSandboxTemplate])
	}
	return pooled, f.holder().Labels[v1alpha1.LabelSandboxTemplate]
}

// refer makes the set refer to another template, and continues.
func (f *fixture) refer(name string) {
	f.Helper()
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.TemplateRef.Name = name })
	for range 4 {
		f.reconcile()
		f.start(f.pooled()...)
		f.sync()
	}
	f.reconcile()
}

// Another template that says the same is a reason to make the pool anew only where a
// NetworkPolicy selects its pods by the name of the template.
func testAnotherNetwork(_ *testing.T, f *fixture) {
	for _, name := range []string{"base", "open", "locked"} {
		f.createTemplate(name, podOf("busybox"))
	}
	locked := f.template("locked")
	locked.Spec.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{}
	if err := f.api.Update(f.Context(), locked); err != nil {
		f.Fatal(err)
	}
	f.createReferring(1, "")
	f.refer("base")
	first := f.wantPooled(1)[0]
	revision := f.set().Status.UpdateRevision

	f.refer("open")
	if now := f.wantPooled(1)[0]; now.UID != first.UID || f.set().Status.UpdateRevision != revision {
		f.Errorf("%s took the place of %s, at revision %s", now.Name, first.Name, f.set().Status.UpdateRevision)
	}
	if _, holder := f.templateLabels(); holder != "open" {
		f.Errorf("what is refilled from the revision alone would be of %q", holder)
	}

	f.refer("locked")
	pooled, holder := f.templateLabels()
	if now := f.set().Status.UpdateRevision; now == revision || len(pooled) != 1 || pooled[0] != "locked" || holder != "locked" {
		f.Errorf("revision %s after %s, sandboxes of %q, held for %q", now, revision, pooled, holder)
	}
	f.wantHolders(revision, revision, f.set().Status.UpdateRevision) // of base, open and locked

	f.refer("open")
	if pooled, holder = f.templateLabels(); f.set().Status.UpdateRevision != revision || len(pooled) != 1 || pooled[0] != "open" || holder != "open" {
		f.Errorf("back at revision %s: sandboxes of %q, held for %q", f.set().Status.UpdateRevision, pooled, holder)
	}
}

// A template that gets a policy only later rolls out, too.
func testNetworkLater(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(1, "")
	f.refer("base")
	revision := f.set().Status.UpdateRevision
	base := f.template("base")
	base.Spec.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{}
	if err := f.api.Update(f.Context(), base); err != nil {
		f.Fatal(err)
	}
	f.refer("base")
	if now := f.set().Status.UpdateRevision; now == revision || f.wantPooled(1)[0].Labels[v1alpha1.LabelTemplateHash] != now {
		f.Errorf("revision %s after %s", now, revision)
	}
}

// typedPodOf is podOf as a client with Go types writes it.
func typedPodOf(image string) *runtime.RawExtension {
	return raw(fmt.Sprintf(`{"metadata":{"creationTimestamp":null,"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":%q,"env":null,"resources":{}}]}}`, image))
}

// wantKept reconciles, and wants the revision and the sandboxes that there were.
func (f *fixture) wantKept(revision string, pool []*v1alpha1.Sandbox) {
	f.Helper()
	for range 2 {
		f.pass(maxCountInterval)
		f.reconcile()
		f.sync()
	}
	if got := f.set().Status.UpdateRevision; got != revision {
		f.Errorf("revision %s, want %s", got, revision)
	}
	for i, sandbox := range f.wantPooled(len(pool)) {
		if sandbox.UID != pool[i].UID {
			f.Errorf("%s is replaced by %s", pool[i].Name, sandbox.Name)
		}
	}
}

// A pool keeps its revision, and its sandboxes, while its template means the same.
func testWrittenOtherwise(_ *testing.T, f *fixture) {
	f.createSet(2)
	f.fill()
	revision, before := f.set().Status.UpdateRevision, f.pooled()
	f.changeSet(func(set *v1alpha1.SandboxSet) {
		template, err := v1alpha1.PodTemplate(set.Spec.Template)
		if err != nil {
			f.Fatal(err)
		}
		if set.Spec.Template, err = v1alpha1.RawTemplate(*template); err != nil {
			f.Fatal(err)
		}
	})
	f.wantKept(revision, before)
}

// So it does if it refers to another template that means the same, and if it comes back to
// such a one. What it makes then is of that revision, too.
func testRefersToTheSame(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createTemplate("typed", typedPodOf("busybox"))
	f.createTemplate("other", typedPodOf("other"))
	f.createReferring(2, "")
	f.fill()
	revision, before := f.set().Status.UpdateRevision, f.pooled()
	f.refer("typed")
	f.wantKept(revision, before)
	f.claim(f.pooled()[0])
	f.sync()
	f.pass(maxCountInterval)
	f.reconcile()
	for _, sandbox := range f.wantPooled(2) {
		if sandbox.Labels[v1alpha1.LabelTemplateHash] != revision || !strings.HasSuffix(sandbox.Spec.TemplateRef.Name, "-"+revision) {
			f.Errorf("%s is of %s and refers to %s", sandbox.Name, sandbox.Labels[v1alpha1.LabelTemplateHash], sandbox.Spec.TemplateRef.Name)
		}
	}
	f.refer("other")
	if got := f.set().Status.UpdateRevision; got == revision {
		f.Error("another image has the same revision")
	}
	f.refer("typed")
	if got := f.set().Status.UpdateRevision; got != revision {
		f.Errorf("back at revision %s, want %s", got, revision)
	}
}
