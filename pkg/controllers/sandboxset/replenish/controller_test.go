// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// The controller is called directly here, against a real API server. The cache
// is the test's own, so that it can be as old as the test wants.
func TestController(t *testing.T) {
	server := testutil.Start(t)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := client.NewWithWatch(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *fixture){
		"fills":                            testFills,
		"fills in step":                    testFillsInStep,
		"old cache":                        testOldCache,
		"cache that fills after the look":  testCacheFillsAfterLook,
		"cache of any age":                 testCacheOfAnyAge,
		"old cache of deletes":             testOldCacheOfDeletes,
		"scale-down loses against a claim": testScaleDownLosesAgainstClaim,
		"dead ones":                        testDead,
		"dead one that stays":              testDeadOneStays,
		"template that only fails":         testFailingTemplate,
		"rolling update":                   testRollingUpdate,
		"rolling update during claims":     testRollingUpdateDuringClaims,
		"cost of a count":                  testCostOfCount,
		"quota":                            testQuota,
		"namespace goes":                   testNamespaceGoes,
		"set goes":                         testSetGoes,
		"set goes in the foreground":       testForeground,
		"long burst":                       testLongBurst,
		"burst":                            testBurst,
		"claims wait":                      testClaimsWait,
		"claims wait on a template":        testClaimsWaitOnTemplate,
		"what starts for claims":           testStartsForClaims,
		"very many claims wait":            testVeryManyClaimsWait,
		"status only when it changes":      testStatusOnlyWhenItChanges,
		"large set":                        testLargeSet,
		"old set":                          testOldSet,
		"malformed limit":                  testMalformedLimit,
		"events":                           testEvents,
		"recreate":                         testRecreate,
		"on replenish":                     testOnReplenish,
		"not progressing":                  testNotProgressing,
		"lost node":                        testLostNode,
		"sandboxes that cannot start":      testCannotStart,
		"holds each revision":              testHoldsEachRevision,
		"refers and patches":               testRefersAndPatches,
		"takes a template as it is":        testTakesTemplateAsItIs,
		"gets a patch":                     testGetsPatch,
		"held under another name":          testHeldUnderAnotherName,
		"no template yet":                  testNoTemplateYet,
		"template rolls out":               testTemplateRollsOut,
		"template breaks":                  testTemplateBreaks,
		"template goes":                    testTemplateGoes,
		"name is taken":                    testNameIsTaken,
		"change is refused":                testChangeIsRefused,
		"holder of a change":               testHolderOfChangeCannotBeMade,
		"roll-back is noted once":          testRollBackIsNotedOnce,
		"adopts its revision":              testAdoptsRevision,
		"a revision is forged":             testForgedRevision,
		"keeps a history":                  testRevisionHistory,
		"keeps a revision referred to":     testKeepsReferredRevision,
		"refills under the old name":       testRefillsUnderOldName,
		"another network":                  testAnotherNetwork,
		"a network later":                  testNetworkLater,
		"written otherwise":                testWrittenOtherwise,
		"refers to the same":               testRefersToTheSame,
		"name is taken by a template":      testNameIsTakenInline,
		"holder cannot be made":            testHolderCannotBeMade,
	} {
		t.Run(name, func(t *testing.T) {
			test(t, newFixture(t, api, strings.ReplaceAll(name, " ", "-")))
		})
	}
}

func testFills(t *testing.T, f *fixture) {
	f.createSet(40)
	f.reconcile()
	pooled := f.wantPooled(40)
	f.wantStatus(40, 0, 40, 0) // what it made counts, seen or not
	set := f.set()
	if set.Status.ObservedGeneration != set.Generation {
		t.Errorf("observed generation %d of %d", set.Status.ObservedGeneration, set.Generation)
	}
	for _, sandbox := range pooled {
		if owner := v1alpha1.PoolOf(sandbox); owner.UID != set.UID || owner.Name != set.Name {
			t.Errorf("%s is owned by %+v", sandbox.Name, owner)
		}
		if hash := sandbox.Labels[v1alpha1.LabelTemplateHash]; hash != set.Status.UpdateRevision || hash == "" {
			t.Errorf("%s has revision %q, the set %q", sandbox.Name, hash, set.Status.UpdateRevision)
		}
		if !strings.HasPrefix(sandbox.Name, "pool-") {
			t.Errorf("name %s", sandbox.Name)
		}
	}
	f.start(pooled[:15]...)
	f.sync()
	f.reconcile()
	f.wantPooled(40)
	f.wantStatus(40, 15, 40, 15)
}

// In a cluster a large set is not filled faster than its sandboxes are taken up,
// whether they are available by then or not, but as fast.
func testFillsInStep(_ *testing.T, f *fixture) {
	f.c.options.Cluster = true
	f.createSet(300)
	again := func(want time.Duration) {
		f.Helper()
		if after := f.reconcile().RequeueAfter; after != want {
			f.Errorf("the set is looked at again after %s, want %s", after, want)
		}
	}
	again(f.c.options.QuietPeriod)
	f.wantPooled(maxNotPickedUp)
	again(expectationTTL + time.Second) // the cache shows none of them
	f.sync()
	pooled := f.wantPooled(maxNotPickedUp)
	oldest := slices.MinFunc(pooled, byAge)
	// until some are looked at, or the oldest is Pending for too long
	again(oldest.CreationTimestamp.Add(pendingTimeoutLowerBound).Sub(f.clock.Now()))
	for _, sandbox := range pooled[:100] {
		meta.SetStatusCondition(&sandbox.Status.Conditions, metav1.Condition{
			Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPodReady,
		})
		if err := f.api.Status().Update(f.Context(), sandbox); err != nil {
			f.Fatal(err)
		}
	}
	f.sync()
	f.state(func(s *setState) { s.claimRate.recordCount(0, 0, time.Minute) }) // counts are dear, and changes gathered
	again(f.c.options.QuietPeriod)
	f.wantPooled(maxNotPickedUp + 100)
	f.sync()
	f.start(f.pooled()...)
	f.sync()
	f.reconcile()
	f.wantPooled(300)
}

func testOldCache(t *testing.T, f *fixture) {
	f.createSet(10)
	for range 3 {
		f.reconcile() // the cache shows nothing all the time
		f.wantPooled(10)
	}
	f.sync()
	f.reconcile()
	f.claim(f.pooled()[0])
	f.reconcile()
	f.wantPooled(9) // not known yet
	f.sync()
	f.pass(time.Second)
	f.reconcile()
	f.wantPooled(10)
	f.reconcile() // the new one is not shown yet
	f.wantPooled(10)
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.Replicas = new(int32(3)) })
	f.reconcile() // nothing is given up before everything is shown
	f.wantPooled(10)
	f.sync()
	f.reconcile()
	f.wantPooled(3)
	if got := len(f.all()); got != 4 {
		t.Errorf("%d sandboxes with the claimed one, want 4", got)
	}
}

// The events about own creates come just after the cache was read.
func testCacheFillsAfterLook(_ *testing.T, f *fixture) {
	f.createSet(5)
	f.reconcile()
	f.cache.read = f.sync
	f.reconcile()
	f.wantPooled(5)
	f.wantStatus(5, 0, 5, 0)
}

func testOldCacheOfDeletes(_ *testing.T, f *fixture) {
	f.createSet(10)
	f.reconcile()
	f.sync()
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.Replicas = new(int32(4)) })
	f.reconcile()
	f.wantPooled(4)
	for range 3 {
		f.reconcile() // the cache shows ten
		f.wantPooled(4)
		f.wantStatus(4, 0, 4, 0)
	}
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.Replicas = new(int32(6)) })
	f.reconcile()
	f.wantPooled(6)
}

// Whatever the cache has caught up with, there are never more sandboxes in the
// pool than wanted, and in the end exactly as many.
func testCacheOfAnyAge(t *testing.T, f *fixture) {
	r := rand.New(rand.NewPCG(7, 7))
	f.createSet(12)
	most := 12
	for step := range 60 {
		f.pass(2 * time.Second) // no burst
		switch r.IntN(6) {
		case 0:
			for _, sandbox := range f.pooled() {
				if r.IntN(4) == 0 {
					f.claim(sandbox)
				}
			}
		case 1:
			if pooled := f.pooled(); len(pooled) > 0 {
				if err := f.api.Delete(f.Context(), pooled[0]); err != nil {
					t.Fatal(err)
				}
			}
		case 2:
			for _, sandbox := range f.pooled() {
				if sandbox.Status.Phase != v1alpha1.SandboxRunning && r.IntN(2) == 0 {
					f.start(sandbox)
				}
			}
		}
		f.catchUp(func() bool { return r.IntN(3) > 0 })
		f.reconcile()
		if got := len(f.pooled()); got > most {
			t.Fatalf("step %d: %d sandboxes in a pool of %d", step, got, most)
		}
	}
	// This cache also misses sandboxes that come and go between two looks. They are
	// waited for until their expectation runs out.
	f.sync()
	f.pass(expectationTTL + time.Second)
	f.reconcile()
	f.wantPooled(most)
}

func testScaleDownLosesAgainstClaim(t *testing.T, f *fixture) {
	f.createSet(6)
	f.fill()
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.Replicas = new(int32(0)) })

	// Between the decision and its first delete, a claim takes that very sandbox.
	var once sync.Once
	var taken string
	f.funcs.Delete = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		once.Do(func() {
			taken = o.GetName()
			f.claim(o.(*v1alpha1.Sandbox))
		})
		return c.Delete(ctx, o, opts...)
	}
	f.reconcile()
	all := f.all()
	if len(all) != 1 || all[0].Name != taken || all[0].DeletionTimestamp != nil {
		t.Fatalf("left: %d sandboxes, want only %s, which was claimed", len(all), taken)
	}
	f.sync()
	f.pass(time.Second) // the claim was a burst
	f.reconcile()
	f.wantStatus(0, 0, 0, 0)
	if len(f.all()) != 1 {
		t.Fatal("the claimed sandbox is gone")
	}
}

func testDead(t *testing.T, f *fixture) {
	f.createSet(4)
	f.reconcile()
	pooled := f.wantPooled(4)
	f.start(pooled...)
	dead := slices.MinFunc(f.pooled(), byAge) // the others were made no earlier, and work
	dead.Status.Phase = v1alpha1.SandboxFailed
	if err := f.api.Status().Update(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	f.sync()
	f.reconcile()
	f.wantStatus(4, 3, 4, 3)
	for _, sandbox := range f.wantPooled(4) {
		if sandbox.Name == dead.Name {
			t.Errorf("%s is still there", dead.Name)
		}
	}
}

// testDeadOneStays: a sandbox that cannot be deleted does not keep others from being created, and from being
// removed when the pool shrinks.
func testDeadOneStays(t *testing.T, f *fixture) {
	f.createSet(4)
	f.fill()
	dead := slices.MinFunc(f.pooled(), byAge) // the others were made no earlier, and work
	dead.Status.Phase = v1alpha1.SandboxFailed
	if err := f.api.Status().Update(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	f.sync()
	f.funcs.Delete = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if o.GetName() == dead.Name {
			return apierrors.NewForbidden(v1alpha1.Resource("sandboxes"), dead.Name, errors.New("a policy"))
		}
		return c.Delete(ctx, o, opts...)
	}
	f.wantRetry()
	f.wantPooled(5)
	f.wantStatus(4, 3, 4, 3)
	f.sync()
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.Replicas = new(int32(2)) })
	f.wantRetry()
	f.wantPooled(3)
}

func testFailingTemplate(t *testing.T, f *fixture) {
	f.createSet(3)
	f.reconcile()
	round := func() {
		f.Helper()
		for i, sandbox := range f.wantPooled(3) {
			sandbox.Status.Phase = v1alpha1.SandboxFailed
			if i > 0 {
				sandbox.Status.Phase = v1alpha1.SandboxSucceeded // to end well is not what a pool is for
			}
			if err := f.api.Status().Update(t.Context(), sandbox); err != nil {
				t.Fatal(err)
			}
		}
		f.sync()
	}
	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		round()
		if got := f.reconcile().RequeueAfter; got != pause {
			t.Errorf("requeue after %s, want %s", got, pause)
		}
		f.wantPooled(0)
		f.wantStatus(0, 0, 0, 0)
		f.wantConditions("Available False SandboxesCannotStart: 1 sandbox of SandboxSet pool cannot start: Failed",
			"ReplicaFailure True SandboxesFail: Sandboxes of the current template fail or end and are replaced at growing intervals",
			"RolledOut False RollingOut: 0 of 3 sandboxes are of the current revision and available")
		f.sync()
		f.pass(pause - time.Millisecond)
		if got := f.reconcile().RequeueAfter; got != time.Millisecond {
			t.Errorf("requeue after %s", got)
		}
		f.pass(time.Millisecond)
		f.reconcile()
		f.sync()
	}
	// Those that end soon after they are available prove nothing.
	f.startAt(f.clock.Now(), f.wantPooled(3)...)
	f.sync()
	f.reconcile()
	f.wantStatus(3, 3, 3, 3)
	f.pass(time.Second)
	round()
	if got := f.reconcile().RequeueAfter; got != 8*time.Second {
		t.Errorf("after a second of running, requeue after %s, want the next longer pause", got)
	}
	f.sync()
	f.pass(8 * time.Second)
	f.reconcile()
	f.sync()
	// Those that keep running do, although no event comes.
	f.startAt(f.clock.Now(), f.wantPooled(3)...)
	f.sync()
	if got := f.reconcile().RequeueAfter; got <= provenAfter-2*time.Second || got > provenAfter { // times have whole seconds
		t.Errorf("while they have to prove that they keep running, requeue after %s", got)
	}
	f.wantStatus(3, 3, 3, 3)
	f.pass(provenAfter)
	if got := f.reconcile().RequeueAfter; got != 0 {
		t.Errorf("when they have, requeue after %s", got)
	}
	f.wantConditions("Available True SandboxesAvailable: ", "RolledOut True RolledOut: ")
	round()
	if got := f.reconcile().RequeueAfter; got != time.Second {
		t.Errorf("after a success, requeue after %s, want the first pause again", got)
	}
}

func testRollingUpdate(t *testing.T, f *fixture) {
	f.createSet(10)
	f.fill()
	f.wantStatus(10, 10, 10, 10)
	old := f.set().Status
	f.changeSet(func(set *v1alpha1.SandboxSet) {
		set.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"c","image":"other"}]}}`)
	})
	for range 40 {
		f.reconcile()
		f.sync()
		available := 0
		for _, sandbox := range f.pooled() {
			if stateInPool(sandbox, f.clock.Now()) == stateAvailable {
				available++
			}
		}
		if status := f.set().Status; available < 8 || status.AvailableReplicas < 8 {
			t.Fatalf("%d available, the status says %d, the floor is 8", available, status.AvailableReplicas)
		}
		for _, sandbox := range f.pooled() {
			if sandbox.Status.Phase != v1alpha1.SandboxRunning {
				f.start(sandbox)
			}
		}
		f.sync()
	}
	f.wantStatus(10, 10, 10, 10)
	if now := f.set().Status; now.UpdateRevision == old.UpdateRevision || now.CurrentRevision == old.CurrentRevision {
		t.Errorf("revisions %s, %s did not change", now.UpdateRevision, now.CurrentRevision)
	}
}

// Claims take from the pool while a roll-out deletes: it stops at its floor.
func testRollingUpdateDuringClaims(t *testing.T, f *fixture) {
	f.c.options.RefillConcurrency = 1
	f.createSet(20)
	f.fill()
	f.changeSet(func(set *v1alpha1.SandboxSet) {
		set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(8))
		set.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"c","image":"new"}]}}`)}
	})
	// It is not to be deleted, or the claim might lose.
	claimYoungest := func() {
		f.claim(slices.MaxFunc(f.pooled(), byAge))
		f.sync()
	}
	deleted := 0
	f.funcs.Delete = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		err := c.Delete(ctx, o, opts...)
		if deleted++; err == nil && deleted <= 3 {
			claimYoungest()
		}
		return err
	}
	f.cache.read = sync.OnceFunc(claimYoungest) // taken while the pool is looked at
	f.reconcile()
	if deleted != 4 { // and 4 are taken
		t.Errorf("%d sandboxes are replaced", deleted)
	}
	f.wantPooled(12) // the floor
}

// testCostOfCount: requests to the API, such as the create of a SandboxTemplate, are no cost of a count.
func testCostOfCount(t *testing.T, f *fixture) {
	f.createSet(2)
	f.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		f.pass(200 * time.Millisecond)
		return c.Create(ctx, o, opts...)
	}
	f.reconcile()
	f.state(func(s *setState) {
		if got := s.claimRate.eventDelay(); got != f.c.options.QuietPeriod {
			t.Errorf("events are gathered for %s, want %s", got, f.c.options.QuietPeriod)
		}
	})
}

func testQuota(t *testing.T, f *fixture) {
	f.createSet(30)
	var mu sync.Mutex
	left := 5
	f.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*v1alpha1.Sandbox); !ok {
			return c.Create(ctx, o, opts...)
		}
		mu.Lock()
		left--
		refuse := left < 0
		mu.Unlock()
		if refuse {
			return apierrors.NewForbidden(v1alpha1.Resource("sandboxes"), o.GetName(), errors.New("exceeded quota"))
		}
		return c.Create(ctx, o, opts...)
	}
	f.wantRetry()
	f.wantPooled(5)
	mu.Lock()
	if refused := -left; refused > 4 {
		t.Errorf("%d calls were refused before it stopped", refused)
	}
	mu.Unlock()
	f.wantStatus(5, 0, 5, 0)
	conditions := f.set().Status.Conditions
	if refused := meta.FindStatusCondition(conditions, v1alpha1.SetConditionReplicaFailure); refused == nil || !strings.Contains(refused.Message, "exceeded quota") {
		t.Errorf("conditions %+v", conditions)
	}
	const refusal = "SandboxSet pool cannot make sandboxes: sandboxes.agents.kruise.io is forbidden: exceeded quota"
	if told := meta.FindStatusCondition(conditions, v1alpha1.SetConditionAvailable); told == nil || told.Message != refusal {
		t.Errorf("conditions %+v", conditions)
	}
	f.funcs.Create = nil
	f.reconcile()
	f.wantPooled(30)
	f.wantStatus(30, 0, 30, 0)
	f.wantConditions("Available False SandboxesStarting: Sandboxes of SandboxSet pool are starting",
		"RolledOut False RollingOut: 0 of 30 sandboxes are of the current revision and available")
}

func testNamespaceGoes(_ *testing.T, f *fixture) {
	f.createSet(5)
	f.funcs.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		err := apierrors.NewForbidden(v1alpha1.Resource("sandboxes"), "", errors.New("namespace is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	}
	f.reconcile() // no error: it would only be tried again
	f.wantPooled(0)
}

func testSetGoes(t *testing.T, f *fixture) {
	f.createSet(3)
	f.reconcile()
	if err := f.api.Delete(t.Context(), f.set()); err != nil {
		t.Fatal(err)
	}
	f.reconcile()
	f.sync() // events that come after it begin nothing
	if len(f.c.states.sets) != 0 {
		t.Error("remembers a set that is gone")
	}
}

// collect does what the garbage collector does for the set and for sandboxes
// without pods: none of them has dependents that block.
func (f *fixture) collect() {
	f.Helper()
	objects := []client.Object{f.set()}
	for _, sandbox := range f.all() {
		objects = append(objects, sandbox)
	}
	for _, object := range objects {
		if !controllerutil.RemoveFinalizer(object, metav1.FinalizerDeleteDependents) {
			continue
		}
		if err := f.api.Update(f.Context(), object); err != nil {
			f.Fatal(err)
		}
	}
}

// A set that is deleted in the foreground stays until its pool is gone, of which
// nothing is taken away that is claimed.
func testForeground(t *testing.T, f *fixture) {
	f.createSet(3)
	f.reconcile()
	f.start(f.pooled()...)
	f.sync()
	claimed, held := f.pooled()[0], f.pooled()[1]
	held.Finalizers = []string{"example.com/last-words"}
	if err := f.api.Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	f.sync()
	f.claim(claimed) // which the cache does not show yet
	if err := f.api.Delete(t.Context(), f.set(), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	if set := f.set(); set.DeletionTimestamp == nil || !slices.Contains(set.Finalizers, v1alpha1.FinalizerPool) {
		t.Fatalf("the set is not waiting: %v, %v", set.DeletionTimestamp, set.Finalizers)
	}
	f.reconcile()
	f.collect()
	if left := f.wantPooled(1); left[0].Name != held.Name || left[0].DeletionTimestamp == nil {
		t.Errorf("left is %s, deleted at %v", left[0].Name, left[0].DeletionTimestamp)
	}
	f.sync()
	f.reconcile()
	held = f.pooled()[0]
	held.Finalizers = nil
	if err := f.api.Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	f.set() // is still there
	f.sync()
	f.reconcile()
	if err := f.api.Get(t.Context(), f.key, &v1alpha1.SandboxSet{}); !apierrors.IsNotFound(err) {
		t.Errorf("the set, whose pool is gone: %v", err)
	}
	if left := f.all(); len(left) != 1 || left[0].Name != claimed.Name {
		t.Errorf("left are %v", left)
	}
}

func testBurst(t *testing.T, f *fixture) {
	f.createSet(10)
	f.fill()

	f.claim(f.pooled()[0])
	f.sync()
	if after := f.reconcile().RequeueAfter; after != 100*time.Millisecond {
		t.Errorf("requeue after %s, want the quiet period", after)
	}
	f.wantPooled(9)
	f.pass(60 * time.Millisecond)
	f.claim(f.pooled()[0])
	f.sync()
	f.pass(60 * time.Millisecond)
	f.reconcile()
	f.wantPooled(8)
	f.wantStatus(10, 10, 10, 10) // nothing is written in a burst either

	// A user who changes the set does not wait.
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.Replicas = new(int32(9)) })
	f.reconcile()
	f.wantPooled(9)
	f.wantStatus(9, 8, 9, 8)
	f.sync()

	f.claim(f.pooled()[0])
	f.sync()
	f.pass(100 * time.Millisecond)
	f.reconcile()
	f.wantPooled(9)
}

// Claims that continue empty half of the pool before a refill begins; meanwhile the
// status reports it once a second.
func testLongBurst(t *testing.T, f *fixture) {
	f.createSet(40)
	f.fill()

	const step = 60 * time.Millisecond
	reported := int32(40)
	for taken := int32(1); taken <= 20; taken++ {
		f.claim(f.pooled()[0])
		f.sync()
		if f.reconcile().RequeueAfter == 0 {
			t.Fatal("nothing brings the refill back")
		}
		if taken == 18 { // 1020 ms after the first claim
			reported = 40 - taken
		}
		f.wantPooled(int(40 - taken))
		f.wantStatus(reported, reported, reported, reported)
		f.pass(step)
	}
	f.claim(f.pooled()[0])
	f.sync()
	f.pass(time.Second - 2*step)
	f.claim(f.pooled()[0])
	f.sync()
	f.reconcile()
	f.wantPooled(40)
}

func testStatusOnlyWhenItChanges(t *testing.T, f *fixture) {
	f.createSet(3)
	f.reconcile()
	f.sync()
	f.reconcile()
	before := f.set().ResourceVersion
	for range 3 {
		f.reconcile()
	}
	if after := f.set().ResourceVersion; after != before {
		t.Error("wrote a status that did not change")
	}
}

// testLargeSet checks that the status of a set that is large is not written each time that a
// sandbox is ready or not, that the last state is written, and that a changed spec does not wait.
func testLargeSet(t *testing.T, f *fixture) {
	f.createSet(2)
	f.changeSet(func(s *v1alpha1.SandboxSet) {
		s.Annotations = map[string]string{"example.com/large": strings.Repeat("x", 200<<10)}
	})
	f.fill()
	pooled, writes, version := f.wantPooled(2), 0, f.set().ResourceVersion
	const flips, step = 40, 500 * time.Millisecond
	flip := func(ready bool) time.Duration {
		sandbox := f.all()[slices.IndexFunc(f.all(), func(sb *v1alpha1.Sandbox) bool { return sb.Name == pooled[0].Name })]
		builder{sandbox}.ready(ready)
		sandbox.Status.Conditions[0].LastTransitionTime = metav1.Now()
		if err := f.api.Status().Update(t.Context(), sandbox); err != nil {
			t.Fatal(err)
		}
		f.sync()
		again := f.reconcile().RequeueAfter
		if now := f.set().ResourceVersion; now != version {
			writes, version = writes+1, now
		}
		return again
	}
	f.pass(time.Minute)
	for i := range flips {
		flip(i%2 == 1)
		f.pass(step)
	}
	if most := int(flips*step/(5*time.Second)) + 1; writes == 0 || writes > most {
		t.Errorf("%d writes for %d changes, want at most %d", writes, flips, most)
	}
	f.pass(time.Minute)
	flip(false)
	again := flip(true)
	f.wantStatus(2, 1, 2, 1)
	if again <= 0 || again > 10*time.Second {
		t.Fatalf("the last state is written after %s", again)
	}
	f.pass(again)
	f.reconcile()
	f.wantStatus(2, 2, 2, 2)
	f.changeSet(func(s *v1alpha1.SandboxSet) { s.Spec.Replicas = new(int32(1)) })
	f.reconcile()
	if set := f.set(); set.Status.ObservedGeneration != set.Generation {
		t.Error("a changed spec waits")
	}
}

func testOldSet(t *testing.T, f *fixture) {
	f.createSet(2)
	f.reconcile()
	f.sync()
	old := f.set()
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.Replicas = new(int32(4)) })
	f.funcs.Get = func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
		old.DeepCopyInto(o.(*v1alpha1.SandboxSet))
		return nil
	}
	f.start(f.pooled()...)
	f.sync()
	// The status cannot be written; that is no error, the new set is on its way.
	if after := f.reconcile().RequeueAfter; after != 100*time.Millisecond {
		t.Errorf("requeue after %s", after)
	}
	f.funcs.Get = nil
	f.reconcile()
	f.wantPooled(4)
	f.wantStatus(4, 2, 4, 2)
}

func testMalformedLimit(t *testing.T, f *fixture) {
	f.createSet(2)
	f.funcs.Get = func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		err := c.Get(ctx, k, o, opts...)
		if set, ok := o.(*v1alpha1.SandboxSet); ok {
			set.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromString("many")) // the server would refuse it
		}
		return err
	}
	_, err := f.c.Reconcile(t.Context(), f.request())
	if !errors.Is(err, reconcile.TerminalError(nil)) {
		t.Errorf("got %v, want an error that is not tried again", err)
	}
	f.wantPooled(0)
}
