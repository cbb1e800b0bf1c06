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
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// oneTxn is a store with one transaction, whose commit is answered with err.
type oneTxn struct {
	Store
	Txn
	err error
}

func (o *oneTxn) Begin() Txn { return o }

func (o *oneTxn) Len() int { return 3 }

func (o *oneTxn) Bytes() int { return 1000 }

func (o *oneTxn) Commit(context.Context) error { return o.err }

func (o *oneTxn) CreateClaim(context.Context, *v1alpha1.SandboxClaim) error {
	return nil
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
		"bound":      {claim: ended(completed(v1alpha1.ReasonAllReplicasClaimed)), want: metrics.OutcomeBound},
		"waiting":    {claim: waiting, want: metrics.OutcomeWaiting},
		"timed out":  {claim: ended(is(v1alpha1.ClaimConditionTimedOut, ""), completed(v1alpha1.ReasonTimeoutReached)), want: metrics.OutcomeTimedOut},
		"deleted":    {claim: plan.Deleted(waiting, now), want: metrics.OutcomeDeleted},
		"no env":     {claim: ended(completed(v1alpha1.ReasonEnvVarsInjectionRejected)), want: metrics.OutcomeRefused},
		"no volumes": {claim: ended(completed(v1alpha1.ReasonVolumeClaimTemplatesRejected)), want: metrics.OutcomeRefused},
		"never fits": {claim: ended(completed(v1alpha1.ReasonTooLarge)), want: metrics.OutcomeRefused},
		"refused":    {err: fmt.Errorf("x: %w", &RefusedError{}), want: metrics.OutcomeRefused},
		"no source":  {err: fmt.Errorf("x: %w", &SourceError{}), want: metrics.OutcomeSetNotFound},
		"shortage":   {err: fmt.Errorf("x: %w", &ShortageError{}), want: metrics.OutcomeShortage},
		"no set":     {err: ErrSetNotFound, want: metrics.OutcomeSetNotFound},
		"exists":     {err: ErrClaimExists, want: metrics.OutcomeExists},
		"too large":  {err: fmt.Errorf("%w: x", ErrTooLarge), want: metrics.OutcomeTooLarge},
		"unknown":    {err: fmt.Errorf("%w: %w", ErrUnknownOutcome, context.DeadlineExceeded), want: metrics.OutcomeUnknown},
		"left":       {err: context.Canceled, want: metrics.OutcomeCanceled},
		"too late":   {err: fmt.Errorf("x: %w", context.DeadlineExceeded), want: metrics.OutcomeCanceled},
		"quota":      {err: fmt.Errorf("x: %w", apierrors.NewForbidden(v1alpha1.Resource("sandboxes"), "s", errors.New("quota"))), want: metrics.OutcomeRefused},
		"webhook":    {err: apierrors.NewInternalError(errors.New("no answer")), want: metrics.OutcomeError},
		"other":      {err: errors.New("x"), want: metrics.OutcomeError},
	}
	for name, tc := range cases {
		if got := outcomeOf(tc.claim, tc.err); got != tc.want {
			t.Errorf("%s: outcome %q, want %q", name, got, tc.want)
		}
	}
}

// What observing costs a claim that is bound at once: an observed create and an
// observed transaction of a server that traces nothing.
func BenchmarkObserve(b *testing.B) {
	a := New(Options{Store: &oneTxn{}})
	claim := &v1alpha1.SandboxClaim{Status: v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseCompleted}}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ctx, answered := observeCreate(context.Background(), a.options.Clock, &a.stock.Sets, claim)
			txn := a.committer.store.Begin()
			_ = txn.CreateClaim(ctx, claim)
			_ = txn.Commit(ctx)
			metrics.ObserveWritten(&plan.Plan{Claim: claim}, &a.stock.Sets, a.options.Clock.Now())
			answered(claim, nil)
		}
	})
}

// TestRefusedIsNotCounted: a claim of agent-sandbox that is refused was given nothing, and is no
// failed create.
func TestRefusedIsNotCounted(t *testing.T) {
	d := newDesk(t, setOf("a", "py"))
	d.comes(templateOfPod("py"))
	refused := d.newAttempt(func(c *v1alpha1.SandboxClaim) { ofWarmPool("a")(c); asksEnv(c) })
	p := d.planned(refused)
	n, _ := gathered(t, "agent_sandbox_claim_creation_total", "", "")
	metrics.ObserveWritten(p, &d.stock.Sets, birth)
	if got, _ := gathered(t, "agent_sandbox_claim_creation_total", "", ""); got != n || refused.state.Refused == nil || p.BecomesReady() {
		t.Errorf("a claim that is refused (%v) makes %d series of %d", refused.state.Refused, got, n)
	}
	if got := outcomeOf(p.Claim, nil); got != metrics.OutcomeWaiting {
		t.Errorf("its create is counted as %s", got)
	}
}

// TestTransactionsAreCounted: what had changed when a transaction was refused is counted by its kind,
// and the error stays as it was.
func TestTransactionsAreCounted(t *testing.T) {
	metrics.Register()
	conflict := fmt.Errorf("committing: %w", &etcdtxn.ConflictError{Modified: []etcdtxn.Modified{{Index: 0}}})
	for moved, begin := range map[string]func(Txn) error{
		"claim":   func(txn Txn) error { return txn.CreateClaim(t.Context(), nil) },
		"sandbox": func(Txn) error { return nil },
	} {
		_, before := gathered(t, "sandlot_transaction_conflicts_total", "moved", moved)
		txn := storage.Observed(&oneTxn{err: conflict}, clock.RealClock{}).Begin()
		if err := begin(txn); err != nil {
			t.Fatal(err)
		}
		if err := txn.Commit(t.Context()); !errors.Is(err, conflict) {
			t.Errorf("the error %v became %v", conflict, err)
		}
		if _, got := gathered(t, "sandlot_transaction_conflicts_total", "moved", moved); got != before+1 {
			t.Errorf("conflicts of the kind %s went from %v to %v", moved, before, got)
		}
	}
}

// gathered returns how many series a metric has, and the sum of its counters: of those with the value
// of a label, or of all if the label is "".
func gathered(t *testing.T, name, label, value string) (series int, total float64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			has := label == ""
			for _, pair := range metric.GetLabel() {
				has = has || pair.GetName() == label && pair.GetValue() == value
			}
			if has {
				series++
				total += metric.GetCounter().GetValue()
			}
		}
	}
	return series, total
}
