// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// The server is asked for a sandbox that some user has a hand in, and not for each of
// a pool.
func TestRemovalReader(t *testing.T) {
	type cache struct{ client.Client }
	type server struct{ client.Reader }
	c := New(Options{Clock: clock.RealClock{}, Client: cache{}, Reader: server{}})
	owned := func(kind string) *v1alpha1.Sandbox {
		sandbox := box(new(false))
		sandbox.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: "o", UID: "o", Controller: new(true),
		}}
		return sandbox
	}
	for name, test := range map[string]struct {
		sandbox *v1alpha1.Sandbox
		server  bool
	}{
		"a user's": {box(new(false)), true},
		"claimed":  {owned("SandboxClaim"), true},
		"pooled":   {owned("SandboxSet"), false},
	} {
		if _, asked := c.removalReader(test.sandbox).(server); asked != test.server {
			t.Errorf("%s: asks the server: %v", name, asked)
		}
	}
}

// records is a client that has a sandbox and its Service, and notes what is deleted.
type records struct {
	client.Client
	sandbox *v1alpha1.Sandbox
	deleted []string
}

func (r *records) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch object := into.(type) {
	case *v1alpha1.Sandbox:
		r.sandbox.DeepCopyInto(object)
	case *corev1.Service:
		serviceOf(r.sandbox, &corev1.PodSpec{}).DeepCopyInto(object)
	}
	return nil
}

func (r *records) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	r.deleted = append(r.deleted, object.GetName())
	return nil
}

// The Service of the user before goes also where it is seen only later that the sandbox was
// recycled.
func TestServiceOfTheUserBefore(t *testing.T) {
	is := func(phase v1alpha1.SandboxPhase, recycled int32, kind string) *v1alpha1.Sandbox {
		sandbox := box(nil)
		sandbox.Status.Phase, sandbox.Status.RecycledCount = phase, recycled
		sandbox.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: "o", UID: "o", Controller: new(true),
		}}
		return sandbox
	}
	used := is(v1alpha1.SandboxRunning, 0, "SandboxClaim")
	for name, test := range map[string]struct {
		before, sandbox *v1alpha1.Sandbox
		want            bool
	}{
		"is being recycled":    {used, is(v1alpha1.SandboxRecycling, 0, "SandboxClaim"), true},
		"was recycled":         {used, is(v1alpha1.SandboxRunning, 1, "SandboxSet"), true},
		"was recycled again":   {is(v1alpha1.SandboxRunning, 1, "SandboxSet"), is(v1alpha1.SandboxRunning, 2, "SandboxSet"), true},
		"new in the pool":      {is(v1alpha1.SandboxPending, 0, "SandboxSet"), is(v1alpha1.SandboxRunning, 0, "SandboxSet"), false},
		"another user's again": {is(v1alpha1.SandboxRunning, 1, "SandboxSet"), is(v1alpha1.SandboxRunning, 1, "SandboxClaim"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := concerned().Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.sandbox}); got != test.want {
				t.Errorf("an update is let through: %v", got)
			}
			if got := concerned().Create(event.CreateEvent{Object: test.sandbox}); got != test.want {
				t.Errorf("after a restart it is let through: %v", got)
			}
			api := &records{sandbox: test.sandbox}
			request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(test.sandbox)}
			if _, err := New(Options{Clock: clock.RealClock{}, Client: api, Reader: api}).Reconcile(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			if got := len(api.deleted) > 0; got != test.want {
				t.Errorf("deleted: %v", api.deleted)
			}
		})
	}
}

// TestServiceFailed: a sandbox with a name that no Service can have, which is stored since before
// such names were refused, has an event that says so, and no Service.
func TestServiceFailed(t *testing.T) {
	sandbox := box(new(true))
	sandbox.Name = "a.b"
	recorder := events.NewFakeRecorder(1)
	api := &records{sandbox: sandbox}
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(sandbox)}
	if result, err := New(Options{Clock: clock.RealClock{}, Client: api, Reader: api, Recorder: recorder}).Reconcile(t.Context(), request); err != nil || result.RequeueAfter > 0 {
		t.Fatal(result, err)
	}
	close(recorder.Events)
	if event := <-recorder.Events; !strings.HasPrefix(event, "Warning ServiceFailed ") || !strings.Contains(event, `"a.b"`) {
		t.Errorf("the event is %q", event)
	}
}
