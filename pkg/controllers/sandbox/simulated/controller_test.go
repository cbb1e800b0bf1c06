// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

func newSandbox(name, image string) *v1alpha1.Sandbox {
	sandbox := builders.Sandbox(name)
	sandbox.Namespace, sandbox.Labels, sandbox.Spec.Template = "default", map[string]string{}, builders.PodTemplateOf(image)
	return sandbox
}

// counting is a queue that counts what is put in.
type counting struct {
	queue.Interface
	added int
}

func (c *counting) Add(reconcile.Request)                     { c.added++ }
func (c *counting) AddAfter(reconcile.Request, time.Duration) { c.added++ }

// queued is how often a change of a sandbox queues it.
func queued(before, after *v1alpha1.Sandbox) int {
	var q counting
	controller := New(nil, nil, clocktesting.NewFakePassiveClock(time.Now()), Options{})
	controller.events().Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, &q)
	return q.added
}

func TestController(t *testing.T) {
	api := testutil.Start(t).RuntimeClient(t)
	create := func(t *testing.T, sandbox *v1alpha1.Sandbox) {
		if err := api.Create(t.Context(), sandbox); err != nil {
			t.Fatal(err)
		}
	}
	get := func(t *testing.T, name string) *v1alpha1.Sandbox {
		sandbox := &v1alpha1.Sandbox{}
		if err := api.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: name}, sandbox); err != nil {
			t.Fatal(err)
		}
		return sandbox
	}
	// run reconciles a sandbox so long after its creation.
	run := func(t *testing.T, c client.Client, sandbox *v1alpha1.Sandbox, after time.Duration) reconcile.Result {
		controller := New(c, &templates.Lookup{Cache: c, Server: c}, clocktesting.NewFakePassiveClock(sandbox.CreationTimestamp.Add(after)), Options{StartDelay: time.Second})
		result, err := controller.Reconcile(t.Context(), queue.RequestFor(sandbox))
		if err != nil {
			t.Fatal(err)
		}
		return result
	}

	t.Run("starts after the delay", func(t *testing.T) {
		sandbox := newSandbox("starts", "busybox")
		create(t, sandbox)
		if got := run(t, api, sandbox, 300*time.Millisecond); got.RequeueAfter != 700*time.Millisecond {
			t.Errorf("requeue after %s", got.RequeueAfter)
		}
		if got := get(t, "starts"); got.Status.Phase == v1alpha1.SandboxRunning {
			t.Error("runs too early")
		}
		run(t, api, sandbox, time.Second)
		got := get(t, "starts")
		revision, err := podtemplate.SandboxRevision(got)
		if err != nil {
			t.Fatal(err)
		}
		address := addressOf(got.UID)
		want := v1alpha1.SandboxStatus{
			ObservedGeneration: 1,
			Phase:              v1alpha1.SandboxRunning,
			Message:            runningMessage,
			NodeName:           "simulated",
			SandboxIP:          address,
			UpdateRevision:     revision,
			PodInfo:            v1alpha1.PodInfo{PodIP: address, NodeName: "simulated", PodUID: got.UID},
			Conditions: []metav1.Condition{{
				Type: "Ready", Status: "True", Reason: "PodReady", ObservedGeneration: 1,
				LastTransitionTime: metav1.NewTime(sandbox.CreationTimestamp.Add(time.Second)),
			}},
		}
		if diff := cmp.Diff(want, got.Status); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		run(t, api, sandbox, time.Minute)
		if again := get(t, "starts"); again.ResourceVersion != got.ResourceVersion {
			t.Error("wrote the status of a sandbox that runs")
		}
	})

	t.Run("fails on demand", func(t *testing.T) {
		sandbox := newSandbox("fails", FailImage)
		create(t, sandbox)
		run(t, api, sandbox, time.Second)
		got := get(t, "fails")
		want := v1alpha1.SandboxStatus{
			ObservedGeneration: 1,
			Phase:              v1alpha1.SandboxFailed,
			Message:            failedMessage,
			Conditions: []metav1.Condition{{
				Type: "Ready", Status: "False", Reason: "StartContainerFailed", ObservedGeneration: 1, Message: failedMessage,
			}},
		}
		if diff := cmp.Diff(want, got.Status, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime"),
			cmpopts.IgnoreFields(v1alpha1.SandboxStatus{}, "UpdateRevision")); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})

	t.Run("waits for its template", func(t *testing.T) {
		sandbox := newSandbox("refers", "")
		sandbox.Spec.Template, sandbox.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "base"}
		create(t, sandbox)
		run(t, api, sandbox, time.Second)
		waiting := get(t, "refers")
		if s := waiting.Status; s.Phase != v1alpha1.SandboxPending || !strings.Contains(s.Message, "SandboxTemplate base: not found") ||
			len(s.Conditions) != 1 || s.Conditions[0].Reason != v1alpha1.ReasonTemplateNotFound || s.UpdateRevision == "" {
			t.Errorf("status %+v", s)
		}
		run(t, api, sandbox, time.Minute)
		if again := get(t, "refers"); again.ResourceVersion != waiting.ResourceVersion {
			t.Error("wrote the same again")
		}
		if queued(sandbox, waiting) != 0 {
			t.Error("looks again before there is anything new")
		}
		var q counting
		enqueueStarting := New(nil, nil, clocktesting.NewFakePassiveClock(time.Now()), Options{}).enqueueStarting
		if enqueueStarting(waiting, &q); q.added != 1 {
			t.Error("the template does not wake it")
		}
		template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "base"}}
		template.Spec.Template = newSandbox("", "busybox").Spec.Template
		if err := api.Create(t.Context(), template); err != nil {
			t.Fatal(err)
		}
		run(t, api, sandbox, time.Minute)
		got := get(t, "refers")
		if s := got.Status; s.Phase != v1alpha1.SandboxRunning || s.Message != runningMessage || s.UpdateRevision != waiting.Status.UpdateRevision {
			t.Errorf("status %+v", s)
		}
		if enqueueStarting(got, &q); q.added != 1 {
			t.Error("the template wakes a sandbox that runs")
		}
	})

	t.Run("a claim at the same time", func(t *testing.T) {
		sandbox := newSandbox("claimed", "busybox")
		create(t, sandbox)
		racing := interceptor.NewClient(api, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if claimed := get(t, "claimed"); claimed.Labels["taken"] == "" {
					claimed.Labels = map[string]string{"taken": "yes"}
					if err := api.Update(ctx, claimed); err != nil {
						t.Fatal(err)
					}
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
		if got := run(t, racing, sandbox, time.Second); got.RequeueAfter != conflictDelay {
			t.Errorf("requeue after %s", got.RequeueAfter)
		}
		run(t, racing, sandbox, time.Second)
		if got := get(t, "claimed"); got.Status.Phase != v1alpha1.SandboxRunning || got.Labels["taken"] != "yes" {
			t.Errorf("phase %s, labels %v", got.Status.Phase, got.Labels)
		}
	})

	t.Run("another sandbox of that name", func(t *testing.T) {
		sandbox := newSandbox("recreated", "busybox")
		create(t, sandbox)
		racing := interceptor.NewClient(api, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if err := api.Delete(ctx, get(t, "recreated")); err != nil {
					t.Fatal(err)
				}
				create(t, newSandbox("recreated", "busybox"))
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
		if got := run(t, racing, sandbox, time.Second); got.RequeueAfter != conflictDelay {
			t.Errorf("requeue after %s", got.RequeueAfter)
		}
		if got := get(t, "recreated"); got.Status.SandboxIP != "" {
			t.Errorf("the new one got the status of the old: %+v", got.Status)
		}
	})

	t.Run("absent", func(t *testing.T) {
		run(t, api, newSandbox("absent", "busybox"), time.Second)
	})

	t.Run("pauses and resumes", func(t *testing.T) {
		sandbox := newSandbox("rests", "busybox")
		create(t, sandbox)
		run(t, api, sandbox, time.Second)
		ran := get(t, "rests").Status
		setPaused := func(paused bool) {
			sandbox = get(t, "rests")
			sandbox.Spec.Paused = paused
			if err := api.Update(t.Context(), sandbox); err != nil {
				t.Fatal(err)
			}
		}
		check := func(want v1alpha1.SandboxStatus) {
			t.Helper()
			want.UpdateRevision = ran.UpdateRevision
			got := get(t, "rests").Status
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime", "ObservedGeneration")); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		}

		setPaused(true)
		run(t, api, sandbox, 2*time.Second)
		check(v1alpha1.SandboxStatus{ObservedGeneration: 2, Phase: v1alpha1.SandboxPaused, Conditions: []metav1.Condition{
			{Type: "Ready", Status: "False", Reason: "PodReady", Message: "The sandbox is paused"},
			{Type: "SandboxPaused", Status: "True", Reason: "StopPauseSucceed"},
		}})
		setPaused(false)
		run(t, api, sandbox, 10*time.Second)
		check(v1alpha1.SandboxStatus{ObservedGeneration: 3, Phase: v1alpha1.SandboxResuming, Conditions: []metav1.Condition{
			{Type: "Ready", Status: "False", Reason: "PodReady", Message: "The sandbox is being resumed"},
			{Type: "SandboxResumed", Status: "False", Reason: "CreatePod"},
		}})
		if got := run(t, api, sandbox, 10300*time.Millisecond); got.RequeueAfter != 700*time.Millisecond {
			t.Errorf("requeue after %s", got.RequeueAfter)
		}
		run(t, api, sandbox, 11*time.Second)
		want := ran
		want.ObservedGeneration = 3
		want.Conditions = []metav1.Condition{
			{Type: "Ready", Status: "True", Reason: "PodReady"},
			{Type: "SandboxResumed", Status: "True", Reason: "CreatePod"},
		}
		check(want)
	})

	t.Run("observes a changed spec", func(t *testing.T) {
		sandbox := newSandbox("edited", "busybox")
		create(t, sandbox)
		run(t, api, sandbox, time.Second)
		before := get(t, "edited")
		sandbox = before.DeepCopy()
		sandbox.Spec.Template.Raw = []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"main","image":"busybox"}]}}`)
		if err := api.Update(t.Context(), sandbox); err != nil {
			t.Fatal(err)
		}
		if due := queued(before, sandbox); due != 1 {
			t.Errorf("queued %d times", due)
		}
		run(t, api, sandbox, time.Minute)
		got := get(t, "edited")
		want := before.DeepCopy().Status
		want.ObservedGeneration, want.Conditions[0].ObservedGeneration = 2, 2
		var err error
		if want.UpdateRevision, err = podtemplate.SandboxRevision(got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Status); diff != "" || want.UpdateRevision == before.Status.UpdateRevision {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		// The write of this, and of a claim, that observes what it changes itself.
		claimed := got.DeepCopy()
		claimed.Generation, claimed.Status.ObservedGeneration, claimed.Status.Conditions[0].ObservedGeneration = 3, 3, 3
		if due := queued(sandbox, got) + queued(got, claimed); due != 0 {
			t.Errorf("queued %d times for nothing", due)
		}
		run(t, api, sandbox, time.Minute)
		if again := get(t, "edited"); again.ResourceVersion != got.ResourceVersion {
			t.Error("wrote a status that was up to date")
		}
	})

	t.Run("lets go of what is deleted", func(t *testing.T) {
		sandbox := newSandbox("imported", "busybox")
		sandbox.Finalizers = []string{"example.com/other", v1alpha1.FinalizerSandbox}
		create(t, sandbox)
		run(t, api, sandbox, time.Second)
		before := get(t, "imported")
		run(t, api, sandbox, time.Minute)
		if len(before.Finalizers) != 2 || get(t, "imported").ResourceVersion != before.ResourceVersion {
			t.Fatal("changed one that is not deleted")
		}
		if err := api.Delete(t.Context(), sandbox); err != nil {
			t.Fatal(err)
		}
		deleting := get(t, "imported")
		if due := queued(before, deleting); due != 1 {
			t.Errorf("queued %d times", due)
		}
		run(t, api, sandbox, time.Minute)
		got := get(t, "imported")
		if diff := cmp.Diff([]string{"example.com/other"}, got.Finalizers); diff != "" {
			t.Errorf("finalizers (-want +got):\n%s", diff)
		}
		run(t, api, sandbox, time.Minute)
		if get(t, "imported").ResourceVersion != got.ResourceVersion {
			t.Error("wrote for nothing")
		}
	})

	t.Run("is paused before it starts", func(t *testing.T) {
		sandbox := newSandbox("never-ran", "busybox")
		sandbox.Spec.Paused = true
		create(t, sandbox)
		run(t, api, sandbox, 0)
		if got := get(t, "never-ran"); got.Status.Phase != v1alpha1.SandboxPaused || got.Status.SandboxIP != "" {
			t.Errorf("status %+v", got.Status)
		}
	})

	for _, phase := range []v1alpha1.SandboxPhase{v1alpha1.SandboxFailed, v1alpha1.SandboxSucceeded} {
		t.Run("leaves alone "+string(phase), func(t *testing.T) {
			sandbox := newSandbox(strings.ToLower("phase-"+string(phase)), "busybox")
			create(t, sandbox)
			sandbox.Status.Phase = phase
			if err := api.Status().Update(t.Context(), sandbox); err != nil {
				t.Fatal(err)
			}
			run(t, api, sandbox, time.Hour)
			if got := get(t, sandbox.Name); got.Status.Phase != phase {
				t.Errorf("phase %s", got.Status.Phase)
			}
		})
	}
}

func TestAddressOf(t *testing.T) {
	own := netip.MustParsePrefix("127.0.0.0/16")
	seen := map[string]int{}
	for i := range 10000 {
		address := addressOf(types.UID(fmt.Sprintf("uid-%d", i)))
		ip, err := netip.ParseAddr(address)
		if err != nil || !ip.IsLoopback() || own.Contains(ip) {
			t.Fatalf("address %s: %v", address, err)
		}
		seen[address]++
	}
	if len(seen) < 9900 {
		t.Errorf("%d addresses for 10000 sandboxes", len(seen))
	}
	if got, want := addressOf("a"), "127.215.41.221"; got != want {
		t.Errorf("address %s, want %s as before", got, want)
	}
}

func TestFailImageInAnyContainer(t *testing.T) {
	sandbox := newSandbox("a", "x")
	sandbox.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"` + FailImage + `"}]}}`)
	if fails, err := wantsToFail(sandbox.Spec.Template); err != nil || !fails {
		t.Error(fails, err)
	}
	sandbox.Spec.Template.Raw = []byte(`{"spec":{"containers":7}}`)
	if _, err := wantsToFail(sandbox.Spec.Template); err == nil {
		t.Error("read a template that is none")
	}
}
