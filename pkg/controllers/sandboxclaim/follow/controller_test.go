// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// fixture is a controller beside a real server. Its cache shows what the server has, or,
// while it lags, what it had.
type fixture struct {
	*testing.T
	api    client.WithWatch
	server *testutil.Server
	set    *v1alpha1.SandboxSet
	clock  *clocktesting.FakePassiveClock
	c      *Controller
	// lags: the cache knows that it is behind; old is what it shows.
	lags bool
	old  []v1alpha1.Sandbox
	// writes and lists count requests; raced runs before a write, and written after it.
	writes, lists  int
	raced, written func()
}

func newFixture(t *testing.T, stock int) *fixture {
	server := testutil.Start(t, testutil.WithOptions(func(o *options.Options) { o.SyncWindow = 0 }))
	f := &fixture{T: t, server: server, api: server.RuntimeClient(t), clock: clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second))}
	f.set = server.Set(t, "default", "pool", int32(stock))
	server.Stock(t, f.set, 0, stock)
	f.restart()
	return f
}

// restart replaces the controller by another process.
func (f *fixture) restart() {
	counted := interceptor.NewClient(f.api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
			f.lists++
			return c.List(ctx, l, o...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if f.raced != nil {
				f.raced()
			}
			f.writes++
			err := c.SubResource(sub).Patch(ctx, o, p, opts...)
			if f.written != nil {
				f.written()
			}
			return err
		},
	})
	f.c = New(counted, counted, f.clock, 1)
	f.c.finder.Cache = f
}

func (f *fixture) BoundTo(uid types.UID) ([]*v1alpha1.Sandbox, error) {
	all := f.old
	if !f.lags {
		list := &v1alpha1.SandboxList{}
		if err := f.api.List(f.Context(), list); err != nil {
			return nil, err
		}
		all = list.Items
	}
	var bound []*v1alpha1.Sandbox
	for i := range all {
		if all[i].Annotations[v1alpha1.AnnotationOwner] == string(uid) {
			bound = append(bound, &all[i])
		}
	}
	return bound, nil
}

func (f *fixture) IsCurrent(client.Object) bool { return !f.lags }

func (f *fixture) claim(name string, replicas int32) *v1alpha1.SandboxClaim {
	f.Helper()
	claim := testutil.Claim(f.set, name, replicas, nil)
	if err := f.api.Create(f.Context(), claim); err != nil {
		f.Fatal(err)
	}
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		f.Fatalf("the claim did not complete: %+v", claim.Status)
	}
	return claim
}

func (f *fixture) reconcile(claim *v1alpha1.SandboxClaim) time.Duration {
	f.Helper()
	result, err := f.c.Reconcile(f.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
	if err != nil {
		f.Fatal(err)
	}
	if err := client.IgnoreNotFound(f.api.Get(f.Context(), client.ObjectKeyFromObject(claim), claim)); err != nil {
		f.Fatal(err)
	}
	return result.RequeueAfter
}

// sandbox changes the status of a claim's i-th sandbox.
func (f *fixture) sandbox(claim *v1alpha1.SandboxClaim, i int, change func(*v1alpha1.Sandbox)) {
	f.Helper()
	sb := &v1alpha1.Sandbox{}
	key := client.ObjectKey{Namespace: claim.Namespace, Name: claim.Status.Sandboxes[i].Name}
	if err := f.api.Get(f.Context(), key, sb); err != nil {
		f.Fatal(err)
	}
	change(sb)
	if err := f.api.Status().Update(f.Context(), sb); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) remove(claim *v1alpha1.SandboxClaim, i int) {
	f.Helper()
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Status.Sandboxes[i].Name}}
	if err := f.api.Delete(f.Context(), sb); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) wantCondition(claim *v1alpha1.SandboxClaim, kind, want string) *metav1.Condition {
	f.Helper()
	got := "none"
	c := meta.FindStatusCondition(claim.Status.Conditions, kind)
	if c != nil {
		got = fmt.Sprintf("%s %s", c.Status, c.Reason)
	}
	if got != want {
		f.Errorf("%s is %s, want %s", kind, got, want)
	}
	return c
}

func (f *fixture) wantWrites(n int) {
	f.Helper()
	if f.writes != n {
		f.Errorf("%d writes, want %d", f.writes, n)
	}
}

// A claim is written when its sandboxes change, and not before. What it says stays over a
// restart, and Finished for good.
func TestFollow(t *testing.T) {
	f := newFixture(t, 2)
	claim := f.claim("c", 2)
	if f.reconcile(claim) != 0 {
		t.Error("a claim that is well is looked at again")
	}
	f.wantWrites(0)
	f.wantCondition(claim, v1alpha1.ClaimConditionReady, "True AllReplicasClaimed")

	f.sandbox(claim, 0, ended(v1alpha1.SandboxFailed, "Evicted"))
	f.reconcile(claim)
	f.wantCondition(claim, v1alpha1.ClaimConditionReady, "False PodFailed")
	f.wantCondition(claim, v1alpha1.ClaimConditionFinished, "none")

	f.clock.SetTime(f.clock.Now().Add(time.Minute))
	f.sandbox(claim, 1, ended(v1alpha1.SandboxSucceeded, ""))
	f.reconcile(claim)
	finished := f.wantCondition(claim, v1alpha1.ClaimConditionFinished, "True PodFailed")
	if at := finished.LastTransitionTime; !at.Time.Equal(f.clock.Now()) {
		t.Errorf("finished at %s, want %s", at, f.clock.Now())
	}

	f.remove(claim, 0)
	f.remove(claim, 1)
	f.restart()
	f.clock.SetTime(f.clock.Now().Add(time.Minute))
	f.reconcile(claim)
	f.wantCondition(claim, v1alpha1.ClaimConditionReady, "False SandboxMissing")
	if again := f.wantCondition(claim, v1alpha1.ClaimConditionFinished, "True PodFailed"); *again != *finished {
		t.Errorf("Finished moved: %+v", again)
	}
	for _, entry := range claim.Status.Sandboxes {
		if len(entry.PodIPs) > 0 {
			t.Errorf("%s is gone and has the address %s", entry.Name, entry.PodIPs)
		}
	}
	f.wantWrites(3)
	f.reconcile(claim)
	f.wantWrites(3)
}

// A sandbox that is resumed is ready again, at another address.
func TestResumed(t *testing.T) {
	f := newFixture(t, 1)
	claim := f.claim("c", 1)
	f.sandbox(claim, 0, pausedBox)
	f.reconcile(claim)
	f.wantCondition(claim, v1alpha1.ClaimConditionReady, "False SandboxPaused")
	f.clock.SetTime(f.clock.Now().Add(time.Minute))
	f.sandbox(claim, 0, func(sb *v1alpha1.Sandbox) {
		sb.Status.Phase, sb.Status.PodInfo.PodIP = v1alpha1.SandboxRunning, "127.9.9.9"
		says(metav1.ConditionTrue, v1alpha1.ReasonPodReady, "")(sb)
	})
	f.reconcile(claim)
	f.wantCondition(claim, v1alpha1.ClaimConditionReady, "True AllReplicasClaimed")
	if ips := claim.Status.Sandboxes[0].PodIPs; len(ips) != 1 || ips[0] != "127.9.9.9" {
		t.Errorf("its addresses are %s", ips)
	}
}

// A claim of many whose sandboxes go one by one is written as seldom as it is large.
func TestWritesAreSpaced(t *testing.T) {
	const n = 100
	f := newFixture(t, n)
	claim := f.claim("c", n)
	step := 10 * time.Millisecond
	for i := range n {
		f.remove(claim, i)
		f.reconcile(claim)
		f.clock.SetTime(f.clock.Now().Add(step))
	}
	if most := int(n*step/(spacing+n*perSandbox)) + 1; f.writes > most {
		t.Errorf("%d writes, want at most %d", f.writes, most)
	}
	left := f.reconcile(claim)
	if left <= 0 || left > spacing+n*perSandbox {
		t.Fatalf("the rest is written after %s", left)
	}
	f.clock.SetTime(f.clock.Now().Add(left))
	f.reconcile(claim)
	ready := f.wantCondition(claim, v1alpha1.ClaimConditionReady, "False SandboxMissing")
	if want := fmt.Sprintf("(%d of %d)", n, n); !strings.Contains(ready.Message, want) {
		t.Errorf("Ready says %q, want %s", ready.Message, want)
	}
}

// A cache that is behind is not believed: nothing is written before it has caught up, and
// the server is asked only where it does not.
func TestCacheThatLags(t *testing.T) {
	f := newFixture(t, 2)
	claim := f.claim("c", 2)
	f.lags = true // it shows no sandbox at all
	if again := f.reconcile(claim); again <= 0 {
		t.Error("the claim is not looked at again")
	}
	if f.lists != 0 {
		t.Error("the server is asked before the cache had time")
	}
	f.clock.SetTime(f.clock.Now().Add(2 * patience))
	if again := f.reconcile(claim); again <= 0 || f.lists == 0 {
		t.Errorf("looked at again after %s, with %d lists", again, f.lists)
	}
	f.wantWrites(0)

	// However late it is, the server is not asked all the time.
	asked := f.lists
	for range 9 {
		f.clock.SetTime(f.clock.Now().Add(patience / 10))
		f.reconcile(claim)
	}
	if f.lists != asked {
		t.Errorf("the server is asked %d times more within %s", f.lists-asked, patience)
	}
	f.clock.SetTime(f.clock.Now().Add(patience / 10))

	// What is gone from the server is gone.
	f.remove(claim, 0)
	f.remove(claim, 1)
	f.reconcile(claim)
	f.wantWrites(1)
	f.wantCondition(claim, v1alpha1.ClaimConditionReady, "False SandboxMissing")
}

// A cache that was late once has its time again.
func TestCacheThatLagsAgain(t *testing.T) {
	f := newFixture(t, 1)
	claim := f.claim("c", 1)
	f.lags = true
	f.reconcile(claim)
	f.lags = false
	f.reconcile(claim)
	f.clock.SetTime(f.clock.Now().Add(2 * patience))
	f.lags = true
	if f.reconcile(claim); f.lists != 0 {
		t.Error("the server is asked before the cache had time")
	}
}

// A cache that shows a sandbox as it was before it counted is behind.
func TestCacheThatShowsAStart(t *testing.T) {
	f := newFixture(t, 1)
	claim := f.claim("c", 1)
	list := &v1alpha1.SandboxList{}
	if err := f.api.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	f.old, f.lags = list.Items, true
	annotated(v1alpha1.AnnotationStarting)(&f.old[0])
	f.old[0].Status = v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxPending}
	for range 3 {
		if again := f.reconcile(claim); again <= 0 {
			t.Error("the claim is not looked at again")
		}
		f.clock.SetTime(f.clock.Now().Add(2 * patience))
	}
	f.wantWrites(0)
}

// A newer status is not overwritten.
func TestNewerStatus(t *testing.T) {
	f := newFixture(t, 1)
	claim := f.claim("c", 1)
	f.remove(claim, 0)
	f.raced = func() {
		f.raced = nil
		newer := claim.DeepCopy()
		condition(newer, v1alpha1.ClaimConditionInplaceUpdate, metav1.ConditionTrue, "Newer", "")
		if err := f.api.Status().Update(t.Context(), newer); err != nil {
			t.Fatal(err)
		}
	}
	if again := f.reconcile(claim); again <= 0 {
		t.Error("the claim is not looked at again")
	}
	f.wantCondition(claim, v1alpha1.ClaimConditionReady, "True AllReplicasClaimed")
	f.reconcile(claim)
	f.wantCondition(claim, v1alpha1.ClaimConditionReady, "False SandboxMissing")
	f.wantCondition(claim, v1alpha1.ClaimConditionInplaceUpdate, "True Newer")
}

// What a client writes into a status heals, and the sandboxes of others are never shown.
func TestHeals(t *testing.T) {
	f := newFixture(t, 3)
	claim, other := f.claim("c", 2), f.claim("other", 1)
	want := claim.DeepCopy()
	claim.Status.Sandboxes = []v1alpha1.ClaimedSandbox{claim.Status.Sandboxes[1], other.Status.Sandboxes[0]}
	claim.Status.Sandboxes[0].PodIPs = []string{"evil"}
	claim.Status.Conditions = nil
	if err := f.api.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	f.reconcile(claim)
	f.wantCondition(claim, v1alpha1.ClaimConditionReady, "True AllReplicasClaimed")
	got := map[string]string{}
	for _, entry := range claim.Status.Sandboxes {
		got[entry.Name] = fmt.Sprint(entry.UID, entry.PodIPs)
	}
	for _, entry := range want.Status.Sandboxes {
		if got[entry.Name] != fmt.Sprint(entry.UID, entry.PodIPs) || len(got) != 2 {
			t.Errorf("the claim lists %v, want %v", got, want.Status.Sandboxes)
		}
	}
}

// Claims that are not Completed are the allocator's, and one that is being deleted is
// left alone.
func TestLeavesOthersAlone(t *testing.T) {
	f := newFixture(t, 2)
	deleted := f.claim("deleted", 1)
	waiting := testutil.Claim(f.set, "waiting", 2, func(c *v1alpha1.SandboxClaim) { c.Spec.CreateOnNoStock = new(false) })
	if err := f.api.Create(t.Context(), waiting); err != nil {
		t.Fatal(err)
	}
	f.remove(waiting, 0)
	f.reconcile(waiting)
	f.wantWrites(0)

	deleted.Finalizers = []string{"example.com/hold"}
	if err := f.api.Update(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	f.remove(deleted, 0)
	if err := f.api.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	f.reconcile(deleted)
	f.wantWrites(0)
}

// TestDeletedWhileItIsWritten checks that nothing is remembered of a claim that is deleted
// while its status is written, and of which the cache tells before that write returns.
func TestDeletedWhileItIsWritten(t *testing.T) {
	f := newFixture(t, 1)
	claim := f.claim("a", 1)
	f.remove(claim, 0)
	f.written = func() {
		if err := f.api.Delete(t.Context(), claim.DeepCopy()); err != nil {
			t.Error(err)
		}
		f.c.claimEvents().Delete(t.Context(), event.DeleteEvent{Object: claim.DeepCopy()}, &queued{})
	}
	f.reconcile(claim)
	if f.writes != 1 {
		t.Fatalf("it was written %d times", f.writes)
	}
	if len(f.c.pace.claims) != 0 {
		t.Errorf("of claims that are gone, %v are remembered", f.c.pace.claims)
	}
}

// TestRepeatedChangesAreDelayed checks that a claim whose sandbox changes its readiness without end
// is written rarely, that the last state is written, and that the end of the sandbox does not wait.
func TestRepeatedChangesAreDelayed(t *testing.T) {
	const total, most = 120, 9 // the pauses are 1, 2, 4, 8, 16, 32, 60 s
	f := newFixture(t, 1)
	claim := f.claim("c", 1)
	for i := range total {
		f.sandbox(claim, 0, says([]metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionTrue}[i%2], v1alpha1.ReasonPodReady, ""))
		f.reconcile(claim)
		if i == 0 {
			f.wantWrites(1)
		}
		f.clock.SetTime(f.clock.Now().Add(time.Second))
	}
	if f.writes > most {
		t.Errorf("%d writes for %d changes, want at most %d", f.writes, total, most)
	}
	f.sandbox(claim, 0, says(metav1.ConditionFalse, v1alpha1.ReasonPodReady, "the last"))
	for range 2 {
		f.clock.SetTime(f.clock.Now().Add(f.reconcile(claim)))
	}
	if ready := f.wantCondition(claim, v1alpha1.ClaimConditionReady, "False SandboxNotReady"); !strings.Contains(ready.Message, "the last") {
		t.Errorf("Ready says %q", ready.Message)
	}
	f.sandbox(claim, 0, says(metav1.ConditionTrue, v1alpha1.ReasonPodReady, ""))
	f.reconcile(claim)
	f.clock.SetTime(f.clock.Now().Add(2 * spacing))
	if left := f.reconcile(claim); left < time.Second {
		t.Errorf("after many changes the next one waits for %s", left)
	}
	f.sandbox(claim, 0, ended(v1alpha1.SandboxFailed, "Evicted"))
	f.reconcile(claim)
	f.wantCondition(claim, v1alpha1.ClaimConditionReady, "False PodFailed")
}
