// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// TestReconcileCallsAll: the error of one subreconciler does not keep a claim from the others.
func TestReconcileCallsAll(t *testing.T) {
	d := newDesk(t)
	var called []string
	sub := func(name string, err error) subreconciler {
		return stubSubreconciler(func() (time.Duration, error) { called = append(called, name); return 0, err })
	}
	d.reconciler.subreconcilers = []subreconciler{sub("first", errDown), sub("second", nil)}
	d.reconciler.queue.Add("claim")
	d.reconciler.next(t.Context())
	if !slices.Equal(called, []string{"first", "second"}) || d.reconciler.queue.NumRequeues("claim") != 1 {
		t.Errorf("called %v, tried again %d times", called, d.reconciler.queue.NumRequeues("claim"))
	}
}

// stubSubreconciler has work on each claim.
type stubSubreconciler func() (time.Duration, error)

func (stubSubreconciler) namespaceOf(types.UID) string { return "ns" }

func (s stubSubreconciler) reconcile(context.Context, types.UID) (time.Duration, error) { return s() }

// TestDeletedClaimPassesWorkerOn checks for each WorkShare that a claim that was deferred, and that is
// gone when it is woken, leaves its worker to another claim.
func TestDeletedClaimPassesWorkerOn(t *testing.T) {
	d := newDesk(t)
	limit := func(i int) func(*fairness.WorkShare) {
		return func(s *fairness.WorkShare) {
			l := d.reconciler.subreconcilers[i].(limited)
			l.share = s
			d.reconciler.subreconcilers[i] = l
		}
	}
	for name, use := range map[string]func(*fairness.WorkShare){
		"claims":   func(s *fairness.WorkShare) { d.reconciler.share = s },
		"setups":   func(s *fairness.WorkShare) { d.finisher.setupShare = s },
		"metadata": limit(2),
		"rebinds":  limit(1),
	} {
		t.Run(name, func(t *testing.T) {
			s := fairness.NewWorkShare(4, d.reconciler.queue.Add)
			use(s)
			for _, other := range []string{"a", "b", "c"} {
				if !s.Begin(other, "x") {
					t.Fatal("the first task of a namespace does not begin")
				}
			}
			for _, uid := range []types.UID{"gone-1", "gone-2", "gone-3"} {
				if s.Begin("a", uid) {
					t.Fatal("a has more than its share")
				}
			}
			s.End("b")
			s.End("c")
			if d.reconciler.queue.Len() == 0 {
				t.Fatal("none is woken")
			}
			for d.reconciler.queue.Len() > 0 {
				d.reconciler.next(t.Context())
			}
			if s.End("a"); d.reconciler.queue.Len() > 0 {
				t.Errorf("%d claims that are gone still wait", d.reconciler.queue.Len())
			}
		})
	}
}

// TestQuestionsEndWithTheServer: what runs in the background is waited for.
func TestQuestionsEndWithTheServer(t *testing.T) {
	a := New(Options{Store: &shelf{}})
	if a.reconciler.background(func(context.Context) {}) {
		t.Error("in the background of what does not run")
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.Run(ctx)
	}()
	ended := false
	question := func(ctx context.Context) {
		<-ctx.Done()
		time.Sleep(50 * time.Millisecond) // for whoever does not wait to be early
		ended = true
	}
	for !a.reconciler.background(question) {
		time.Sleep(time.Millisecond)
	}
	stop()
	if <-stopped; !ended {
		t.Error("not waited for")
	}
}
