// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package expire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

const held = "example.com/hold"

// reasons is a recorder that keeps the reasons of events.
type reasons struct {
	recorder.EventRecorder
	seen []string
}

func (r *reasons) Eventf(_, _ runtime.Object, kind, reason, _, _ string, _ ...any) {
	r.seen = append(r.seen, kind+" "+reason)
}

// fixture is a controller beside a real server, and the claims mine, of two sandboxes, and
// other. Its cache shows what the server has, or nothing while it lags.
type fixture struct {
	*testing.T
	api    client.WithWatch
	server *testutil.Server
	set    *v1alpha1.SandboxSet
	clock  *clocktesting.FakePassiveClock
	c      *Controller
	events *reasons
	lags   bool
	// raced runs before a sandbox is deleted, and where it fails that does.
	raced func(name string) error
	mine  *v1alpha1.SandboxClaim
	other *v1alpha1.SandboxClaim
}

func newFixture(t *testing.T, server *testutil.Server, name string, lifecycle v1alpha1.SandboxClaimLifecycle) *fixture {
	f := &fixture{
		T: t, server: server, api: server.RuntimeClient(t), events: &reasons{},
		clock: clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second)),
	}
	f.set = server.Set(t, "default", "pool-"+name, 3)
	server.Stock(t, f.set, 0, 3)
	f.mine = f.claim("mine-"+name, 2, func(c *v1alpha1.SandboxClaim) {
		c.Spec.Lifecycle = lifecycle.DeepCopy()
		if lifecycle.ShutdownTime != nil {
			c.Spec.Lifecycle.ShutdownTime = in(time.Hour) // a time that has passed would bind nothing
		}
	})
	if lifecycle.ShutdownTime != nil {
		f.change(func(c *v1alpha1.SandboxClaim) { c.Spec.Lifecycle.ShutdownTime = lifecycle.ShutdownTime })
	}
	f.other = f.claim("other-"+name, 1, nil)
	f.restart()
	return f
}

// restart replaces the controller by another process.
func (f *fixture) restart() {
	f.c = New(interceptor.NewClient(f.api, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if f.raced != nil {
				if err := f.raced(o.GetName()); err != nil {
					return err
				}
			}
			return c.Delete(ctx, o, opts...)
		},
	}), f.api, f.clock, 1, true)
	f.c.finder.Cache, f.c.recorder.EventRecorder = f, f.events
}

func (f *fixture) claim(name string, replicas int32, change func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	f.Helper()
	claim := testutil.Claim(f.set, name, replicas, change)
	if err := f.api.Create(f.Context(), claim); err != nil {
		f.Fatal(err)
	}
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		f.Fatalf("the claim did not complete: %+v", claim.Status)
	}
	return claim
}

func (f *fixture) BoundTo(uid types.UID) ([]*v1alpha1.Sandbox, error) {
	list := &v1alpha1.SandboxList{}
	if err := f.api.List(f.Context(), list); err != nil || f.lags {
		return nil, err
	}
	var bound []*v1alpha1.Sandbox
	for i := range list.Items {
		if list.Items[i].Annotations[v1alpha1.AnnotationOwner] == string(uid) {
			bound = append(bound, &list.Items[i])
		}
	}
	return bound, nil
}

func (f *fixture) IsCurrent(client.Object) bool { return !f.lags }

// step reconciles once, and returns after what time it is to be done again.
func (f *fixture) step() time.Duration {
	f.Helper()
	result, err := f.c.Reconcile(f.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f.mine)})
	if err != nil {
		f.Fatal(err)
	}
	return result.RequeueAfter
}

// later lets time pass.
func (f *fixture) later(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }

// sees describes what there is of the claim mine: its sandboxes, and the claim.
func (f *fixture) sees() []string {
	f.Helper()
	var all []string
	for i, entry := range f.mine.Status.Sandboxes {
		sb := &v1alpha1.Sandbox{}
		err := f.api.Get(f.Context(), client.ObjectKey{Namespace: "default", Name: entry.Name}, sb)
		if client.IgnoreNotFound(err) != nil {
			f.Fatal(err)
		}
		line := fmt.Sprintf("sandbox %d", i)
		if len(sb.OwnerReferences) > 0 {
			line += " owned"
		}
		if sb.DeletionTimestamp != nil {
			line += " deleting"
		}
		if err == nil {
			all = append(all, line)
		}
	}
	claim := &v1alpha1.SandboxClaim{}
	err := f.api.Get(f.Context(), client.ObjectKeyFromObject(f.mine), claim)
	if apierrors.IsNotFound(err) {
		return all
	}
	if err != nil {
		f.Fatal(err)
	}
	line := "claim"
	if v1alpha1.HasExpired(claim) {
		line += " expired"
	}
	if claim.DeletionTimestamp != nil {
		line += " deleting " + strings.Join(claim.Finalizers, ",")
	}
	return append(all, line)
}

func (f *fixture) wants(when string, want ...string) {
	f.Helper()
	if diff := cmp.Diff(want, f.sees()); diff != "" {
		f.Errorf("%s (-want +got):\n%s", when, diff)
	}
	f.othersUntouched()
}

// othersUntouched fails unless the claim other and its sandbox are as they were.
func (f *fixture) othersUntouched() {
	f.Helper()
	sb := &v1alpha1.Sandbox{}
	if err := f.api.Get(f.Context(), client.ObjectKey{Namespace: "default", Name: f.other.Status.Sandboxes[0].Name}, sb); err != nil || len(sb.OwnerReferences) > 0 {
		f.Errorf("the sandbox of another claim: %v, %v", sb.OwnerReferences, err)
	}
}

func (f *fixture) change(change func(*v1alpha1.SandboxClaim)) {
	f.Helper()
	claim := &v1alpha1.SandboxClaim{}
	if err := f.api.Get(f.Context(), client.ObjectKeyFromObject(f.mine), claim); err != nil {
		f.Fatal(err)
	}
	change(claim)
	if err := f.api.Update(f.Context(), claim); err != nil {
		f.Fatal(err)
	}
}

// status changes the status of the claim mine.
func (f *fixture) status(change func(*v1alpha1.SandboxClaim)) {
	f.Helper()
	claim := &v1alpha1.SandboxClaim{}
	if err := f.api.Get(f.Context(), client.ObjectKeyFromObject(f.mine), claim); err != nil {
		f.Fatal(err)
	}
	change(claim)
	if err := f.api.Status().Update(f.Context(), claim); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) finish(at time.Time) {
	f.Helper()
	f.status(func(c *v1alpha1.SandboxClaim) {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ClaimConditionFinished, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodFailed, LastTransitionTime: metav1.NewTime(at),
		})
	})
}

func in(d time.Duration) *metav1.Time {
	return &metav1.Time{Time: time.Now().Truncate(time.Second).Add(d)}
}

// The steps of each policy, each one by another process.
func TestPolicies(t *testing.T) {
	server := testutil.Start(t)
	both, none := []string{"sandbox 0", "sandbox 1"}, []string(nil)
	tests := map[v1alpha1.ShutdownPolicy][][]string{ // what there is after each step
		v1alpha1.ShutdownRetain: {{"claim expired"}, {"claim expired"}},
		v1alpha1.ShutdownDelete: {none, none},
		v1alpha1.ShutdownDeleteForeground: {
			{"sandbox 0 owned", "sandbox 1 owned", "claim expired"},
			{"sandbox 0 owned", "sandbox 1 owned", "claim expired deleting " + metav1.FinalizerDeleteDependents},
			{"sandbox 0 owned", "sandbox 1 owned", "claim expired deleting " + metav1.FinalizerDeleteDependents},
		},
	}
	for policy, steps := range tests {
		t.Run(string(policy), func(t *testing.T) {
			f := newFixture(t, server, strings.ToLower(string(policy)), v1alpha1.SandboxClaimLifecycle{ShutdownTime: in(time.Hour), ShutdownPolicy: policy})
			if left := f.step(); left <= 0 || left > time.Hour {
				t.Errorf("looked at again after %s", left)
			}
			f.wants("before", append(both, "claim")...)
			f.later(2 * time.Hour)
			f.step()
			f.wants("first it says so", append(both, "claim expired")...)
			for i, want := range steps {
				f.restart()
				f.step()
				f.wants(fmt.Sprintf("step %d", i+1), want...)
			}
			if want := []string{"Normal ClaimExpired"}; !slices.Equal(f.events.seen, want) {
				t.Errorf("events %q, want %q", f.events.seen, want)
			}
		})
	}
}

// When a claim ends: at the earlier of two times, which may be moved until then and not
// after. The clock may go backwards: what has expired stays so.
func TestDue(t *testing.T) {
	server := testutil.Start(t)
	seconds := func(n int32) *int32 { return &n }
	t.Run("ttl", func(t *testing.T) {
		f := newFixture(t, server, "ttl", v1alpha1.SandboxClaimLifecycle{TTLSecondsAfterFinished: seconds(60), ShutdownTime: in(10 * time.Hour)})
		f.later(time.Hour)
		if left := f.step(); left <= 0 {
			t.Errorf("looked at again after %s", left)
		}
		f.finish(f.clock.Now())
		f.later(59 * time.Second)
		if left := f.step(); left != time.Second {
			t.Errorf("looked at again after %s", left)
		}
		f.later(time.Second)
		f.step()
		f.wants("due", "sandbox 0", "sandbox 1", "claim expired")
		f.later(-time.Hour) // the clock is set back
		f.change(func(c *v1alpha1.SandboxClaim) { c.Spec.Lifecycle.TTLSecondsAfterFinished = nil })
		f.step()
		f.wants("expired for good", "claim expired")
	})
	t.Run("at once", func(t *testing.T) {
		f := newFixture(t, server, "at-once", v1alpha1.SandboxClaimLifecycle{TTLSecondsAfterFinished: seconds(0)})
		if left := f.step(); left != 0 {
			t.Errorf("not finished, and looked at again after %s", left)
		}
		f.finish(f.clock.Now())
		f.step()
		f.step()
		f.wants("finished", "claim expired")
	})
	t.Run("edits", func(t *testing.T) {
		f := newFixture(t, server, "edits", v1alpha1.SandboxClaimLifecycle{ShutdownTime: in(time.Hour)})
		f.later(2 * time.Hour)
		f.change(func(c *v1alpha1.SandboxClaim) { c.Spec.Lifecycle.ShutdownTime = in(9 * time.Hour) })
		f.step()
		f.wants("later", "sandbox 0", "sandbox 1", "claim")
		f.change(func(c *v1alpha1.SandboxClaim) { c.Spec.Lifecycle = nil })
		f.later(20 * time.Hour)
		if left := f.step(); left != 0 {
			t.Errorf("looked at again after %s", left)
		}
		f.wants("removed", "sandbox 0", "sandbox 1", "claim")
		f.change(func(c *v1alpha1.SandboxClaim) {
			c.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{ShutdownTime: in(time.Hour), ShutdownPolicy: v1alpha1.ShutdownDelete}
		})
		f.step()
		f.step()
		f.wants("set again", []string(nil)...)
	})
	t.Run("ended by the allocator", func(t *testing.T) {
		f := newFixture(t, server, "allocator", v1alpha1.SandboxClaimLifecycle{ShutdownTime: in(0)})
		f.status(func(c *v1alpha1.SandboxClaim) {
			for _, kind := range []string{v1alpha1.ClaimConditionCompleted, v1alpha1.ClaimConditionReady} {
				meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonClaimExpired, Message: "x"})
			}
		})
		f.step()
		f.step()
		f.wants("over", "claim expired")
		if len(f.events.seen) != 1 {
			t.Errorf("events %q", f.events.seen)
		}
	})
}

// What is not the claim's stays: a sandbox that failed and is kept, and one that was
// another claim's by the time that it was to be deleted.
func TestWhatStays(t *testing.T) {
	server := testutil.Start(t)
	f := newFixture(t, server, "stays", v1alpha1.SandboxClaimLifecycle{ShutdownTime: in(0), ShutdownPolicy: v1alpha1.ShutdownDelete})
	patch := func(name, patch string) {
		t.Helper()
		sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if err := f.api.Patch(t.Context(), sb, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	patch(f.mine.Status.Sandboxes[0].Name, `{"metadata":{"labels":{"`+v1alpha1.LabelReservedFailedSandbox+`":"true"}}}`)
	f.step()
	f.raced = func(name string) error {
		f.raced = nil
		patch(name, `{"metadata":{"annotations":{"moved":"yes"}}}`)
		return nil
	}
	if again := f.step(); again <= 0 {
		t.Error("a sandbox that changed is not looked at again")
	}
	f.wants("one changed", "sandbox 0", "sandbox 1", "claim expired")
	f.step()
	f.wants("the end", "sandbox 0")
}

// A cache that is behind costs no sandbox: a claim does not go before all that it has is
// known.
func TestCacheThatLags(t *testing.T) {
	server := testutil.Start(t)
	f := newFixture(t, server, "lags", v1alpha1.SandboxClaimLifecycle{ShutdownTime: in(0), ShutdownPolicy: v1alpha1.ShutdownDelete})
	f.lags = true
	f.step()
	f.step()
	f.wants("the end", []string(nil)...)
}

// What holds a sandbox holds its claim, if that is to go after it.
func TestForegroundWaitsForWhatIsBeingDeleted(t *testing.T) {
	server := testutil.Start(t)
	f := newFixture(t, server, "held", v1alpha1.SandboxClaimLifecycle{ShutdownTime: in(0), ShutdownPolicy: v1alpha1.ShutdownDeleteForeground})
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: f.mine.Status.Sandboxes[0].Name}}
	if err := f.api.Patch(t.Context(), sb, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+held+`"]}}`))); err != nil {
		t.Fatal(err)
	}
	if err := f.api.Delete(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	f.step()
	if again := f.step(); again < graphLag {
		t.Errorf("the claim is deleted %s after its sandboxes became its own", again)
	}
	f.wants("owned", "sandbox 0 owned deleting", "sandbox 1 owned", "claim expired")
}

// A sandbox that cannot be deleted keeps its claim, and no other sandbox.
func TestOneThatCannotBeDeleted(t *testing.T) {
	server := testutil.Start(t)
	f := newFixture(t, server, "refused", v1alpha1.SandboxClaimLifecycle{ShutdownTime: in(0), ShutdownPolicy: v1alpha1.ShutdownDelete})
	f.step()
	refused := make(chan struct{})
	f.raced = func(name string) error {
		if name == f.mine.Status.Sandboxes[0].Name {
			close(refused)
			return errors.New("a webhook says no")
		}
		<-refused
		time.Sleep(50 * time.Millisecond) // by then it is known
		return nil
	}
	if _, err := f.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f.mine)}); err == nil {
		t.Error("the end of the claim is not tried again")
	}
	f.wants("one is left", "sandbox 0", "claim expired")
}

// Where a user made the claim an owner, without the right to bind, it stays that one, for
// which the claim waits.
func TestForegroundKeepsItsReference(t *testing.T) {
	server := testutil.Start(t)
	f := newFixture(t, server, "reference", v1alpha1.SandboxClaimLifecycle{ShutdownTime: in(0), ShutdownPolicy: v1alpha1.ShutdownDeleteForeground})
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: f.mine.Status.Sandboxes[0].Name}}
	owner := metav1.OwnerReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxClaim", Name: f.mine.Name, UID: f.mine.UID,
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{owner}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.api.Patch(t.Context(), sb, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	f.step()
	f.step()
	if err := f.api.Get(t.Context(), client.ObjectKeyFromObject(sb), sb); err != nil {
		t.Fatal(err)
	}
	owner.BlockOwnerDeletion = new(true)
	if diff := cmp.Diff([]metav1.OwnerReference{owner}, sb.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}
