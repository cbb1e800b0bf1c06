// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// recorded is a recorder that keeps its events.
type recorded struct {
	t      *testing.T
	events []string
}

func (r *recorded) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	ref, ok := regarding.(*corev1.ObjectReference)
	if !ok || ref.Kind != "SandboxClaim" || ref.UID == "" || ref.ResourceVersion != "" {
		r.t.Errorf("an event regards %v", regarding)
	}
	r.events = append(r.events, fmt.Sprintf("%s %s: %s", kind, reason, fmt.Sprintf(note, args...)))
}

func (r *recorded) AnnotatedEventf(regarding, related runtime.Object, _ map[string]string, kind, reason, action, note string, args ...any) {
	r.Eventf(regarding, related, kind, reason, action, note, args...)
}

// delays is a queue that notes when a request is due.
type delays struct {
	queue.Interface
	due []time.Duration
}

func (d *delays) Add(reconcile.Request)                         { d.due = append(d.due, 0) }
func (d *delays) AddAfter(_ reconcile.Request, t time.Duration) { d.due = append(d.due, t) }

// fixture is the controller beside a server that answers claims at once.
type fixture struct {
	*testing.T
	server *testutil.Server
	set    *v1alpha1.SandboxSet
	api    client.WithWatch
	c      *Controller
	events *recorded
	clock  *clocktesting.FakePassiveClock
}

func newFixture(t *testing.T, all bool) *fixture {
	server := testutil.Start(t, testutil.WithOptions(func(o *options.Options) { o.SyncWindow = 0 }))
	api := server.RuntimeClient(t)
	f := &fixture{
		T: t, server: server, api: api, set: server.Set(t, "default", "pool", 5), events: &recorded{t: t},
		clock: clocktesting.NewFakePassiveClock(time.Now()),
	}
	f.c = New(api, f.clock, all)
	f.c.recorder.EventRecorder = f.events
	return f
}

func (f *fixture) create(name string, replicas int32) *v1alpha1.SandboxClaim {
	f.Helper()
	claim := testutil.Claim(f.set, name, replicas, func(claim *v1alpha1.SandboxClaim) { claim.Spec.CreateOnNoStock = new(false) })
	if err := f.api.Create(f.Context(), claim); err != nil {
		f.Fatal(err)
	}
	return claim
}

// stock adds a sandbox and waits until the claim has got it.
func (f *fixture) stock(number int, claim *v1alpha1.SandboxClaim) *v1alpha1.SandboxClaim {
	f.Helper()
	f.server.Stock(f, f.set, number, 1)
	return f.server.AwaitClaim(f, claim.Namespace, claim.Name, func(after *v1alpha1.SandboxClaim) string {
		if after.Status.ClaimedReplicas == claim.Status.ClaimedReplicas {
			return "no more is claimed"
		}
		return ""
	})
}

func (f *fixture) created(claim *v1alpha1.SandboxClaim, initially bool) []time.Duration {
	var q delays
	f.c.events().Create(f.Context(), event.CreateEvent{Object: claim, IsInInitialList: initially}, &q)
	return q.due
}

func (f *fixture) updated(before, after *v1alpha1.SandboxClaim) []time.Duration {
	var q delays
	f.c.events().Update(f.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, &q)
	return q.due
}

// reconcile returns the events that it records.
func (f *fixture) reconcile(claim *v1alpha1.SandboxClaim) []string {
	f.Helper()
	f.events.events = nil
	if _, err := f.c.Reconcile(f.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)}); err != nil {
		f.Fatal(err)
	}
	return f.events.events
}

func (f *fixture) want(what string, got []string, want ...string) {
	f.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestClaimThatWaits(t *testing.T) {
	f := newFixture(t, false)
	claim := f.create("waits", 2)
	f.clock.SetTime(claim.CreationTimestamp.Add(minWait / 2)) // however long the create took
	if due := f.created(claim, true); len(due) != 1 || due[0] <= 0 || due[0] > minWait {
		t.Fatalf("a new claim is looked at after %v", due)
	}
	f.want("after a while", f.reconcile(claim),
		"Warning NoAvailableSandboxes: SandboxSet pool has too few available sandboxes. Claiming sandboxes: 0/2 claimed; "+
			"waits for 2 sandboxes of SandboxSet pool")
	f.want("nothing new", f.reconcile(claim))

	f.clock.SetTime(f.clock.Now().Add(minWait))
	half := f.stock(0, claim)
	if due := f.updated(claim, half); len(due) != 1 || due[0] > 0 {
		t.Errorf("a claim that got something is looked at after %v", due)
	}
	f.want("one of two", f.reconcile(half), "Normal SandboxClaimed: Claiming sandboxes: 1/2 claimed; waits for 1 sandbox of SandboxSet pool")

	whole := f.stock(1, half)
	if due := f.updated(half, whole); len(due) != 1 || due[0] > 0 {
		t.Errorf("a completed claim is looked at after %v", due)
	}
	f.want("all of it", f.reconcile(whole), "Normal ClaimCompleted: Successfully claimed 2/2 sandboxes")
	f.want("once", f.reconcile(whole))
	if len(f.c.reported) > 0 {
		t.Errorf("still remembered: %v", f.c.reported)
	}
}

func TestClaimWithoutSet(t *testing.T) {
	f := newFixture(t, false)
	f.set.Name = "nowhere"
	claim := f.create("lost", 1)
	f.want("after a while", f.reconcile(claim), "Warning NoAvailableSandboxes: SandboxSet nowhere not found in namespace default")
	f.c.events().Delete(t.Context(), event.DeleteEvent{Object: claim}, &delays{})
	if len(f.c.reported) > 0 {
		t.Errorf("a deleted claim is remembered: %v", f.c.reported)
	}
}

// A burst that the pool can serve costs neither writes nor work.
func TestWarmClaims(t *testing.T) {
	f := newFixture(t, false)
	claim := f.stock(0, f.create("warm", 1)) // as it is after its create
	if due := f.created(claim, false); len(due) != 0 {
		t.Errorf("a claim that was bound at once is looked at after %v", due)
	}
	f.want("queued anyway", f.reconcile(claim))

	// One that took less than the minWait.
	before := claim.DeepCopy()
	before.Status = v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseClaiming}
	if due := f.updated(before, claim); len(due) != 0 {
		t.Errorf("a claim that was bound soon is looked at after %v", due)
	}
	f.want("the look that was due", f.reconcile(claim))

	all := New(f.api, f.clock, true)
	all.recorder.EventRecorder = f.events
	f.c = all
	if due := f.created(claim, true); len(due) != 0 {
		t.Errorf("a claim from before the start is looked at after %v", due)
	}
	if due := f.created(claim, false); len(due) != 1 || due[0] != 0 {
		t.Errorf("with all events a claim is looked at after %v", due)
	}
	f.want("all events", f.reconcile(claim), "Normal ClaimCompleted: Successfully claimed 1/1 sandboxes")
	f.want("once", f.reconcile(claim))
	// A later write of the status by another client is no news.
	later := claim.DeepCopy()
	later.Status.Message = "edited"
	later.ManagedFields = []metav1.ManagedFieldsEntry{}
	if due := f.updated(claim, later); len(due) != 0 {
		t.Errorf("an edit of a completed claim is looked at after %v", due)
	}
}

// A claim that is deleted while it is looked at is not remembered.
func TestDeletedMeanwhile(t *testing.T) {
	f := newFixture(t, false)
	claim := f.create("brief", 2)
	deleted := make(chan struct{})
	f.c.client = interceptor.NewClient(f.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			go func() {
				defer close(deleted)
				f.c.events().Delete(ctx, event.DeleteEvent{Object: claim}, &delays{})
			}()
			select {
			case <-deleted:
			case <-time.After(100 * time.Millisecond): // it waits, as it should
			}
			return err
		},
	})
	f.reconcile(claim)
	<-deleted
	if len(f.c.reported) > 0 {
		t.Errorf("a deleted claim is remembered: %v", f.c.reported)
	}
}

// TestCause: a claim that waits has one more event when it comes to say why what it waits
// for cannot start.
func TestCause(t *testing.T) {
	f := newFixture(t, false)
	claim := f.create("stuck", 2)
	f.reconcile(claim)
	told := claim.DeepCopy()
	told.Status.Waiting = &v1alpha1.ClaimWaiting{Replicas: 2, PoolProblem: "2 sandboxes of SandboxSet pool cannot start: Unschedulable: 0/4 nodes"}
	told.Status.Message = "Claiming sandboxes: 0/2 claimed; waits for 2 sandboxes of SandboxSet pool: " +
		"2 sandboxes of SandboxSet pool cannot start: Unschedulable: 0/4 nodes"
	if due := f.updated(claim, told); len(due) != 1 {
		t.Fatalf("a claim that comes to know why it waits is looked at after %v", due)
	}
	// Only the allocator writes what a claim waits for.
	f.c.client = interceptor.NewClient(f.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if read, ok := o.(*v1alpha1.SandboxClaim); ok {
				read.Status.Waiting, read.Status.Message = told.Status.Waiting, told.Status.Message
			}
			return err
		},
	})
	f.want("the cause", f.reconcile(told), "Warning NoAvailableSandboxes: SandboxSet pool has too few available sandboxes. "+told.Status.Message)
	f.want("once", f.reconcile(told))
	if due := f.updated(told, told); len(due) != 0 {
		t.Errorf("without news it is looked at after %v", due)
	}
}

// TestIncomplete: a claim that ends short has an event of another reason, also if it did
// not wait; with many of these that has a bound for each namespace.
func TestIncomplete(t *testing.T) {
	f := newFixture(t, false)
	claim := f.create("short", 2)
	short := claim.DeepCopy()
	short.Status = v1alpha1.SandboxClaimStatus{
		Phase: v1alpha1.SandboxClaimPhaseCompleted, ClaimedReplicas: 1, Message: "too large for one transaction",
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ClaimConditionCompleted, Status: metav1.ConditionTrue,
			Reason: v1alpha1.ReasonTooLarge, LastTransitionTime: metav1.NewTime(f.clock.Now()),
		}},
	}
	if due := f.created(short, true); len(due) != 0 {
		t.Errorf("a claim from before the start is looked at after %v", due)
	}
	if due := f.updated(short, short); len(due) != 0 {
		t.Errorf("a claim that ended long ago is looked at after %v", due)
	}
	if due := f.created(short, false); len(due) != 1 || due[0] != 0 {
		t.Errorf("a claim that ended short in its create is looked at after %v", due)
	}
	if err := f.api.Status().Update(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	f.want("its end", f.reconcile(short), "Warning ClaimIncomplete: Claimed 1/2 sandboxes. too large for one transaction")
	f.want("once", f.reconcile(short))

	queued := 0
	for i := range 2 * shortBurst {
		other := short.DeepCopy()
		other.UID = types.UID(fmt.Sprint(i))
		queued += len(f.created(other, false))
	}
	if queued >= 2*shortBurst {
		t.Errorf("all %d claims that end short at once have events", queued)
	}
}

func TestMadeAnew(t *testing.T) {
	f := newFixture(t, true)
	claim := f.create("again", 2)
	f.reconcile(claim)
	recreated := claim.DeepCopy()
	recreated.UID = "other"
	if due := f.updated(claim, recreated); len(due) != 1 {
		t.Errorf("the new one is looked at after %v", due)
	}
	if len(f.c.reported) > 0 {
		t.Errorf("the old one is remembered: %v", f.c.reported)
	}
}

func TestWhatAClaimWaitsFor(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		want   string
	}{
		"the pool": {
			func(c *v1alpha1.SandboxClaim) { c.Spec.CreateOnNoStock = new(false) },
			"SandboxSet pool has too few available sandboxes. Claiming sandboxes: 0/1 claimed",
		},
		"fresh ones that cannot start": {
			func(c *v1alpha1.SandboxClaim) {
				c.Status.Waiting = &v1alpha1.ClaimWaiting{Starting: 1, StartProblem: "Unschedulable: 0/4 nodes"}
				c.Status.Message += "; 1 sandbox is being started: Unschedulable: 0/4 nodes"
			},
			"SandboxSet pool has too few available sandboxes, others are being started. Claiming sandboxes: 0/1 claimed; " +
				"1 sandbox is being started: Unschedulable: 0/4 nodes",
		},
		"the pool, because none can be made": {
			func(c *v1alpha1.SandboxClaim) {
				c.Status.Waiting = &v1alpha1.ClaimWaiting{Replicas: 1, CreateProblem: "no template"}
			},
			"SandboxSet pool has too few available sandboxes. Claiming sandboxes: 0/1 claimed",
		},
		"a set that does not exist": {
			func(c *v1alpha1.SandboxClaim) {
				c.Status.Waiting = &v1alpha1.ClaimWaiting{Reason: v1alpha1.ReasonSandboxSetNotFound}
				c.Status.Message = "SandboxSet pool not found in namespace ns"
			},
			"SandboxSet pool not found in namespace ns",
		},
		"a resize": {
			func(c *v1alpha1.SandboxClaim) {
				c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClaimConditionInplaceUpdate, Reason: v1alpha1.ReasonInplaceUpdating}}
			},
			"Sandboxes of SandboxSet pool are being resized. Claiming sandboxes: 0/1 claimed",
		},
		"a resize that is over": {
			func(c *v1alpha1.SandboxClaim) {
				c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClaimConditionInplaceUpdate, Reason: v1alpha1.ReasonFailed}}
			},
			"SandboxSet pool has too few available sandboxes, others are being started. Claiming sandboxes: 0/1 claimed",
		},
		"fresh ones": {
			func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = v1alpha1.WarmPoolNone },
			"Sandboxes of SandboxSet pool are being started. Claiming sandboxes: 0/1 claimed",
		},
	}
	for name, tc := range tests {
		claim := &v1alpha1.SandboxClaim{
			Spec:   v1alpha1.SandboxClaimSpec{TemplateName: "pool"},
			Status: v1alpha1.SandboxClaimStatus{Message: v1alpha1.ClaimingMessage(0, 1)},
		}
		tc.change(claim)
		if got := waitingMessage(claim); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
