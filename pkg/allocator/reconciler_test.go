// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// TestGoneClaimsPassWorkersOn checks for each share of the subreconcilers that a claim that was deferred,
// and that is gone when it is woken, leaves its place to another claim.
func TestGoneClaimsPassWorkersOn(t *testing.T) {
	d := newDesk(t)
	for name, of := range map[string]func(*fairness.WorkShare) reconciler.Subreconciler{
		"setups":   func(s *fairness.WorkShare) reconciler.Subreconciler { d.finisher.runtimes.Share = s; return d.finisher },
		"metadata": func(s *fairness.WorkShare) reconciler.Subreconciler { return reconciler.NewLimited(d.metadata, s) },
		"rebinds":  func(s *fairness.WorkShare) reconciler.Subreconciler { return reconciler.NewLimited(d.rebinder, s) },
	} {
		t.Run(name, func(t *testing.T) {
			var woken []types.UID
			s := fairness.NewWorkShare(4, func(uid types.UID) { woken = append(woken, uid) })
			sub := of(s)
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
			for i := 0; i < len(woken); i++ { // each wakes the next
				if _, err := sub.Reconcile(t.Context(), woken[i]); err != nil {
					t.Fatal(err)
				}
			}
			if len(woken) != 3 {
				t.Errorf("%v are woken of three claims", woken)
			}
			if s.End("a"); !s.IsIdle() {
				t.Error("claims that are gone still wait")
			}
		})
	}
}

// TestQuestionsEndWithTheServer: what runs in the background is waited for.
func TestQuestionsEndWithTheServer(t *testing.T) {
	a := New(Options{Store: &shelf{}})
	if a.reconciler.Background(func(context.Context) {}) {
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
		time.Sleep(50 * time.Millisecond) // so that one that does not wait is early
		ended = true
	}
	for !a.reconciler.Background(question) {
		time.Sleep(time.Millisecond)
	}
	stop()
	if <-stopped; !ended {
		t.Error("not waited for")
	}
}
