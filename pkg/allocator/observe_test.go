// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// oneTxn is a store with one transaction, whose commit is answered with err.
type oneTxn struct {
	Store
	Txn
	err error
}

func (o *oneTxn) Begin() Txn                   { return o }
func (o *oneTxn) Len() int                     { return 3 }
func (o *oneTxn) Bytes() int                   { return 1000 }
func (o *oneTxn) Commit(context.Context) error { return o.err }
func (o *oneTxn) CreateClaim(context.Context, *v1alpha1.SandboxClaim) error {
	return nil
}

func TestTransactionsAreCounted(t *testing.T) {
	registerMetrics()
	moved := func(indices ...int) error {
		conflict := &etcdtxn.ConflictError{}
		for _, i := range indices {
			conflict.Moved = append(conflict.Moved, etcdtxn.Moved{Index: i})
		}
		return fmt.Errorf("committing: %w", conflict)
	}
	cases := map[string]struct {
		err               error
		withoutClaim      bool
		result            string
		claims, sandboxes float64 // that moved
	}{
		"committed":              {result: resultCommitted},
		"the claim moved":        {err: moved(0), result: resultConflict, claims: 1},
		"two sandboxes moved":    {err: moved(1, 2), result: resultConflict, sandboxes: 2},
		"both":                   {err: moved(0, 2), result: resultConflict, claims: 1, sandboxes: 1},
		"a sandbox by itself":    {err: moved(0), withoutClaim: true, result: resultConflict, sandboxes: 1},
		"too large":              {err: fmt.Errorf("%w", etcdtxn.ErrTooLarge), result: resultTooLarge},
		"no answer":              {err: fmt.Errorf("%w", etcdtxn.ErrUnknownOutcome), result: resultUnknown},
		"refused by etcd itself": {err: errors.New("no permission"), result: resultError},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			count := func() [3]float64 {
				commits, err := testutil.GetHistogramMetricCount(transactionDuration.WithLabelValues(tc.result))
				if err != nil {
					t.Fatal(err)
				}
				claims, err := testutil.GetCounterMetricValue(transactionConflicts.WithLabelValues(movedClaim))
				if err != nil {
					t.Fatal(err)
				}
				sandboxes, err := testutil.GetCounterMetricValue(transactionConflicts.WithLabelValues(movedSandbox))
				if err != nil {
					t.Fatal(err)
				}
				return [3]float64{float64(commits), claims, sandboxes}
			}
			before := count()
			txn := observedStore{&oneTxn{err: tc.err}, clock.RealClock{}}.Begin()
			if !tc.withoutClaim {
				if err := txn.CreateClaim(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := txn.Commit(t.Context()); !errors.Is(err, tc.err) {
				t.Errorf("the error %v became %v", tc.err, err)
			}
			want := [3]float64{before[0] + 1, before[1] + tc.claims, before[2] + tc.sandboxes}
			if got := count(); got != want {
				t.Errorf("commits and what moved went from %v to %v, want %v", before, got, want)
			}
		})
	}
}

func TestOutcomes(t *testing.T) {
	now := time.Now()
	ended := func(conditions ...metav1.Condition) *v1alpha1.SandboxClaim {
		return &v1alpha1.SandboxClaim{Status: v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseCompleted, Conditions: conditions}}
	}
	is := func(kind, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason}
	}
	completed := func(reason string) metav1.Condition { return is(v1alpha1.ClaimConditionCompleted, reason) }
	waiting := &v1alpha1.SandboxClaim{Status: v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseClaiming}}
	cases := map[string]struct {
		claim *v1alpha1.SandboxClaim
		err   error
		want  string
	}{
		"bound":      {claim: ended(completed(v1alpha1.ReasonAllReplicasClaimed)), want: outcomeBound},
		"waiting":    {claim: waiting, want: outcomeWaiting},
		"timed out":  {claim: ended(is(v1alpha1.ClaimConditionTimedOut, ""), completed(v1alpha1.ReasonTimeoutReached)), want: outcomeTimedOut},
		"deleted":    {claim: plan.Deleted(waiting, now), want: outcomeDeleted},
		"no env":     {claim: ended(completed(v1alpha1.ReasonEnvVarsInjectionRejected)), want: outcomeRefused},
		"no volumes": {claim: ended(completed(v1alpha1.ReasonVolumeClaimTemplatesRejected)), want: outcomeRefused},
		"never fits": {claim: ended(completed(v1alpha1.ReasonTooLarge)), want: outcomeRefused},
		"refused":    {err: fmt.Errorf("x: %w", &RefusedError{}), want: outcomeRefused},
		"no source":  {err: fmt.Errorf("x: %w", &SourceError{}), want: outcomeSetNotFound},
		"shortage":   {err: fmt.Errorf("x: %w", &ShortageError{}), want: outcomeShortage},
		"no set":     {err: ErrSetNotFound, want: outcomeSetNotFound},
		"exists":     {err: ErrClaimExists, want: outcomeExists},
		"too large":  {err: fmt.Errorf("%w: x", ErrTooLarge), want: outcomeTooLarge},
		"unknown":    {err: fmt.Errorf("%w: %w", ErrUnknownOutcome, context.DeadlineExceeded), want: outcomeUnknown},
		"left":       {err: context.Canceled, want: outcomeCanceled},
		"too late":   {err: fmt.Errorf("x: %w", context.DeadlineExceeded), want: outcomeCanceled},
		"quota":      {err: fmt.Errorf("x: %w", apierrors.NewForbidden(v1alpha1.Resource("sandboxes"), "s", errors.New("quota"))), want: outcomeRefused},
		"webhook":    {err: apierrors.NewInternalError(errors.New("no answer")), want: outcomeError},
		"other":      {err: errors.New("x"), want: outcomeError},
	}
	for name, tc := range cases {
		if got := outcomeOf(tc.claim, tc.err); got != tc.want {
			t.Errorf("%s: outcome %q, want %q", name, got, tc.want)
		}
	}
}

func TestLag(t *testing.T) {
	registerMetrics()
	clk := clocktesting.NewFakePassiveClock(time.Now())
	pass := func(d time.Duration) { clk.SetTime(clk.Now().Add(d)) }
	l := lag{clock: clk}
	want := func(what string, behind time.Duration) {
		t.Helper()
		if got := l.behind(); got != behind {
			t.Errorf("%s: behind by %v, want %v", what, got, behind)
		}
	}
	want("nothing written", 0)
	l.expect(10)
	pass(time.Second)
	l.expect(11) // not measured: one at a time
	l.observe(9)
	want("older news", time.Second)
	l.observe(10)
	want("heard", 0)
	l.observe(20)
	l.expect(15) // the watch was faster than the answer
	pass(time.Second)
	want("heard before", 0)
	l.expect(30)
	pass(time.Minute)
	want("the watch is silent", time.Minute)
	l.observe(40) // a list
	want("listed", 0)
}

// What observing costs a claim that is bound at once: an observed create and an
// observed transaction of a server that traces nothing.
func BenchmarkObserve(b *testing.B) {
	a := New(Options{Store: &oneTxn{}})
	claim := &v1alpha1.SandboxClaim{Status: v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseCompleted}}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ctx, answered := observeCreate(context.Background(), a.options.Clock, &a.stock.sets, claim)
			txn := a.committer.store.Begin()
			_ = txn.CreateClaim(ctx, claim)
			_ = txn.Commit(ctx)
			observeWritten(true, &plan.Plan{Claim: claim})
			answered(claim, nil)
		}
	})
}
