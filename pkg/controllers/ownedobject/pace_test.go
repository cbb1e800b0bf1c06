// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/writepace"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// cluster is a server with a webhook and other writers.
type cluster struct {
	client.Client
	// refuse is how writes are answered; nil lets them through.
	refuse error
	// mutate is what a webhook makes of what is written.
	mutate func(client.Object)
	writes int
}

func (c *cluster) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	c.writes++
	if c.refuse != nil {
		return c.refuse
	}
	return c.Client.Create(ctx, object, opts...)
}

func (c *cluster) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	c.writes++
	if c.refuse != nil {
		return c.refuse
	}
	if c.mutate != nil {
		c.mutate(object)
	}
	return c.Client.Patch(ctx, object, patch, opts...)
}

// run reconciles every second for some minutes, as if each brought an event, and returns how
// many writes that took in each minute.
func run(t *testing.T, c *cluster, r *Reconciler[*v1alpha1.SandboxTemplate], clock *testingclock.FakePassiveClock, each func()) (writes []int) {
	t.Helper()
	for range 4 {
		before := c.writes
		for range 60 {
			result, err := r.Ensure(t.Context(), ownerOf("now"), wantOf(ownerOf("now"), "wanted"))
			if err != nil && !errors.Is(err, c.refuse) || result.RequeueAfter > Recheck {
				t.Fatal(result, err)
			}
			each()
			clock.SetTime(clock.Now().Add(time.Second))
		}
		writes = append(writes, c.writes-before)
	}
	return writes
}

// TestWritesThatDoNotLast: an object that is refused, or changed back however that is done,
// costs a few requests in the first minute and one a minute from then on, and the owner has
// an event. What the owner wants next is written at once.
func TestWritesThatDoNotLast(t *testing.T) {
	server := testutil.Start(t).RuntimeClient(t)
	other := wantOf(ownerOf("now"), "another").Spec
	stored := func() *v1alpha1.SandboxTemplate {
		object := &v1alpha1.SandboxTemplate{}
		if err := server.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "box"}, object); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return object
	}
	for name, test := range map[string]struct {
		exists *v1alpha1.SandboxTemplate
		refuse error
		mutate func(client.Object)
		each   func()
		event  string
	}{
		"a create is refused": {refuse: apierrors.NewForbidden(v1alpha1.Resource("sandboxtemplates"), "box", errors.New("quota")), event: "SandboxTemplateFailed"},
		"a correction is refused": {
			exists: wantOf(ownerOf("now"), "another"), refuse: apierrors.NewBadRequest("denied by a webhook"), event: "SandboxTemplateFailed",
		},
		"a webhook changes it": {
			exists: wantOf(ownerOf("now"), "another"), event: "SandboxTemplateChanged SandboxTemplate box was not stored as it was written",
			mutate: func(object client.Object) { object.(*v1alpha1.SandboxTemplate).Spec = other },
		},
		"a controller changes it": {event: "SandboxTemplateChanged SandboxTemplate box was changed or deleted", each: func() {
			if object := stored(); object.Name != "" && imageOf(object) != "another" {
				object.Spec = other
				if err := server.Update(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
		}},
		"a controller deletes it": {event: "SandboxTemplateChanged SandboxTemplate box was changed or deleted", each: func() {
			if object := stored(); object.Name != "" {
				if err := server.Delete(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() {
				object := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "box"}}
				if err := server.Delete(context.WithoutCancel(t.Context()), object); client.IgnoreNotFound(err) != nil {
					t.Error(err)
				}
			})
			if test.exists != nil {
				if err := server.Create(t.Context(), test.exists); err != nil {
					t.Fatal(err)
				}
			}
			if test.each == nil {
				test.each = func() {}
			}
			recorder, clock := events.NewFakeRecorder(1000), testingclock.NewFakePassiveClock(time.Now())
			c := &cluster{Client: server, refuse: test.refuse, mutate: test.mutate}
			r := reconcilerOf(c, recorder)
			r.Pacer = writepace.New(clock)
			got := run(t, c, r, clock, test.each)
			if want := []int{6, 1, 1, 1}; !cmp.Equal(want, got) {
				t.Errorf("writes by the minute: %v, want %v", got, want)
			}
			all := recorded(recorder)
			if !slices.ContainsFunc(all, func(e string) bool { return strings.HasPrefix(e, "Warning "+test.event) }) || len(all) > c.writes {
				t.Errorf("events %q for %d writes", all, c.writes)
			}
			// It is over, but that brings no event. It is not written before its time, unless the
			// owner changes.
			c.refuse, c.mutate, c.writes = nil, nil, 0
			if result, err := r.Ensure(t.Context(), ownerOf("now"), wantOf(ownerOf("now"), "wanted")); err != nil || result.RequeueAfter <= 0 || c.writes > 0 {
				t.Errorf("too early: %v, %v, %d writes", result, err, c.writes)
			}
			next := ownerOf("now")
			next.Generation++
			if result, err := r.Ensure(t.Context(), next, wantOf(next, "next")); err != nil || result.RequeueAfter > 0 || c.writes != 1 {
				t.Errorf("after a change of the owner: %v, %v, %d writes", result, err, c.writes)
			}
		})
	}
}

// TestWriteAfterRefusals: an object that is written at last was not changed by anyone.
func TestWriteAfterRefusals(t *testing.T) {
	recorder, clock := events.NewFakeRecorder(10), testingclock.NewFakePassiveClock(time.Now())
	c := &cluster{Client: testutil.Start(t).RuntimeClient(t), refuse: errors.New("connection refused")}
	r := reconcilerOf(c, recorder)
	r.Pacer = writepace.New(clock)
	for range 3 {
		if _, err := r.Ensure(t.Context(), ownerOf("now"), wantOf(ownerOf("now"), "wanted")); !errors.Is(err, c.refuse) {
			t.Fatal(err)
		}
		clock.SetTime(clock.Now().Add(Recheck))
	}
	c.refuse = nil
	if _, err := r.Ensure(t.Context(), ownerOf("now"), wantOf(ownerOf("now"), "wanted")); err != nil || c.writes != 4 {
		t.Fatal(err, c.writes)
	}
	if all := recorded(recorder); len(all) > 0 {
		t.Errorf("events: %q", all)
	}
	// What it does not want any more, and then wants again, is written at once.
	for range 2 {
		if err := r.Remove(t.Context(), c, ownerOf("now"), "box", nil); err != nil {
			t.Fatal(err)
		}
		if result, err := r.Ensure(t.Context(), ownerOf("now"), wantOf(ownerOf("now"), "wanted")); err != nil || result.RequeueAfter > 0 {
			t.Fatal(result, err)
		}
	}
	if all := recorded(recorder); len(all) > 0 || c.writes != 6 {
		t.Errorf("events: %q, %d writes", all, c.writes)
	}
}

// TestNamespaceAsOwner: an object of a namespace is known by its labels, and needs no owner
// reference.
func TestNamespaceAsOwner(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}
	server := testutil.Start(t).RuntimeClient(t)
	recorder := events.NewFakeRecorder(10)
	r := reconcilerOf(server, recorder)
	r.OwnerKind = OwnerKindNamespace
	want := func() *v1alpha1.SandboxTemplate {
		object := wantOf(ownerOf("now"), "wanted")
		object.OwnerReferences = nil
		return object
	}
	for range 2 {
		if result, err := r.Ensure(t.Context(), namespace, want()); err != nil || result.RequeueAfter > 0 {
			t.Fatal(result, err)
		}
	}
	stored := &v1alpha1.SandboxTemplate{}
	if err := server.Get(t.Context(), client.ObjectKeyFromObject(want()), stored); err != nil || len(stored.OwnerReferences) > 0 || stored.Generation != 1 {
		t.Errorf("stored is %+v, %v", stored.ObjectMeta, err)
	}
	// One with other labels is not deleted.
	for _, labels := range []map[string]string{{"owner": "other"}, want().Labels} {
		if err := r.Remove(t.Context(), server, namespace, stored.Name, labels); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Get(t.Context(), client.ObjectKeyFromObject(want()), stored); !apierrors.IsNotFound(err) {
		t.Errorf("it is left: %v", err)
	}
	// Another one has the name.
	foreign := want()
	foreign.Labels = nil
	if err := server.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if result, err := r.Ensure(t.Context(), namespace, want()); err != nil || result.RequeueAfter != Recheck {
		t.Error(result, err)
	}
	if all := recorded(recorder); len(all) != 1 {
		t.Errorf("events: %q", all)
	}
}

// about records what the last event was about.
type about struct {
	recorder.EventRecorder
	regarding *corev1.ObjectReference
}

func (a *about) Eventf(regarding, _ runtime.Object, _, _, _, _ string, _ ...any) {
	a.regarding, _ = regarding.(*corev1.ObjectReference)
}

// TestEventsOfNamespaces: events about an object of a namespace are on the object,
// where who looks at the namespace sees them.
func TestEventsOfNamespaces(t *testing.T) {
	about := &about{}
	r := &Reconciler[*networkingv1.NetworkPolicy]{Kind: "NetworkPolicy", OwnerKind: OwnerKindNamespace, Recorder: about}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "policy"}}
	denied := apierrors.NewForbidden(networkingv1.Resource("networkpolicies"), "policy", errors.New("quota"))
	if err := r.handleWriteError(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, policy, denied); err == nil {
		t.Error("a refusal is no error")
	}
	want := &corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy", Namespace: "ns", Name: "policy"}
	if diff := cmp.Diff(want, about.regarding); diff != "" {
		t.Errorf("the event regards (-want +got):\n%s", diff)
	}
}
