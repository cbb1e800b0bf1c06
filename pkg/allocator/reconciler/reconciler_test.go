// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// newTest returns a Reconciler that does not run, and has no subreconcilers.
func newTest(t *testing.T) *Reconciler {
	r := New(clocktesting.NewFakeClock(time.Unix(1e9, 0)), func(error) time.Duration { return 0 })
	t.Cleanup(r.Queue.ShutDown)
	return r
}

// TestReconcileCallsAll: the error of one Subreconciler does not keep a claim from the others.
func TestReconcileCallsAll(t *testing.T) {
	r := newTest(t)
	var called []string
	sub := func(name string, err error) Subreconciler {
		return stubSubreconciler(func() (time.Duration, error) { called = append(called, name); return 0, err })
	}
	r.Subreconcilers = []Subreconciler{sub("first", errors.New("it is away")), sub("second", nil)}
	r.Queue.Add("claim")
	r.Next(t.Context())
	if !slices.Equal(called, []string{"first", "second"}) || r.Queue.NumRequeues("claim") != 1 {
		t.Errorf("called %v, tried again %d times", called, r.Queue.NumRequeues("claim"))
	}
}

// stubSubreconciler has work on each claim.
type stubSubreconciler func() (time.Duration, error)

func (stubSubreconciler) NamespaceOf(types.UID) string { return "ns" }

func (s stubSubreconciler) Reconcile(context.Context, types.UID) (time.Duration, error) { return s() }

// TestGoneClaimPassesWorkerOn: a claim that was deferred, and that is gone when it is woken, leaves its
// worker to another claim.
func TestGoneClaimPassesWorkerOn(t *testing.T) {
	r := newTest(t)
	r.share = fairness.NewWorkShare(4, r.Queue.Add)
	for _, other := range []string{"a", "b", "c"} {
		if !r.share.Begin(other, "x") {
			t.Fatal("the first task of a namespace does not begin")
		}
	}
	for _, uid := range []types.UID{"gone-1", "gone-2", "gone-3"} {
		if r.share.Begin("a", uid) {
			t.Fatal("a has more than its share")
		}
	}
	r.share.End("b")
	r.share.End("c")
	if r.Queue.Len() == 0 {
		t.Fatal("none is woken")
	}
	for r.Queue.Len() > 0 {
		r.Next(t.Context())
	}
	if r.share.End("a"); r.Queue.Len() > 0 || !r.share.IsIdle() {
		t.Error("claims that are gone still wait")
	}
}
