// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// A sandbox that is kept at its shutdownTime has no address and no Service then, and runs
// again when the time is taken away.
func TestExpiry(t *testing.T) {
	api := testutil.Start(t).RuntimeClient(t)
	sandbox := newSandbox("kept", "busybox")
	sandbox.Spec.Service, sandbox.Spec.ShutdownPolicy = new(true), v1alpha1.ShutdownRetain
	sandbox.Spec.ShutdownTime = new(metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second)))
	if err := api.Create(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	get := func() *v1alpha1.Sandbox {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(sandbox), sandbox); err != nil {
			t.Fatal(err)
		}
		return sandbox
	}
	run := func(after time.Duration) {
		clock := clocktesting.NewFakePassiveClock(sandbox.CreationTimestamp.Add(after))
		lookup := &templates.Lookup{Cache: api, Server: api}
		for range 3 { // steps
			if _, err := New(api, lookup, clock, Options{}).Reconcile(t.Context(), queue.RequestFor(sandbox)); err != nil {
				t.Fatal(err)
			}
			if _, err := NewExpiry(api, clock, 1).Reconcile(t.Context(), queue.RequestFor(sandbox)); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(time.Minute)
	if got := get(); got.Status.SandboxIP == "" || got.Status.ServiceFQDN != "kept.default.svc.cluster.local" {
		t.Fatalf("before its time: %+v", got.Status)
	}
	run(2 * time.Hour)
	if got := get(); !v1alpha1.SandboxExpired(got) || got.Status.SandboxIP != "" || got.Status.ServiceFQDN != "" {
		t.Fatalf("after its time: %+v", got.Status)
	}
	sandbox.Spec.ShutdownTime = nil
	if err := api.Update(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	run(3 * time.Hour)
	if got := get(); got.Status.Phase != v1alpha1.SandboxRunning || got.Status.SandboxIP == "" {
		t.Fatalf("without a time: %+v", got.Status)
	}
}
