// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ttl

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// reasons is a recorder that keeps the reasons of events.
type reasons struct {
	recorder.EventRecorder
	seen []string
}

func (r *reasons) Eventf(_, _ runtime.Object, kind, reason, _, _ string, _ ...any) {
	r.seen = append(r.seen, kind+" "+reason)
}

// A deletion is recorded once, and only when it happens.
func TestDeletionIsRecorded(t *testing.T) {
	server := testutil.Start(t)
	api := server.RuntimeClient(t)
	set := server.Set(t, "default", "pool", 1)
	server.Stock(t, set, 0, 1)
	claim := testutil.Claim(set, "old", 1, nil)
	if err := api.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if claim.Status.CompletionTime == nil {
		t.Fatalf("the claim did not complete: %+v", claim.Status)
	}
	clock := clocktesting.NewFakePassiveClock(claim.Status.CompletionTime.Time)
	events := &reasons{}
	c := New(api, clock, 1, true)
	c.recorder.EventRecorder = events
	reconcileOnce := func(after time.Duration, want ...string) {
		t.Helper()
		clock.SetTime(claim.Status.CompletionTime.Add(after))
		if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(events.seen, want) {
			t.Errorf("after %s: events %q, want %q", after, events.seen, want)
		}
	}
	reconcileOnce(time.Minute)
	reconcileOnce(2*time.Hour, "Normal "+eventTTLDelete)
	reconcileOnce(3*time.Hour, "Normal "+eventTTLDelete)
}
