// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"k8s.io/apiserver/pkg/warning"
	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// observed returns a claim of agent-sandbox that is about to be created with what is noted
// of that, unless the options are against it.
func (o *Options) observed(ctx context.Context, claim *v1alpha1.SandboxClaim, now time.Time) *v1alpha1.SandboxClaim {
	if o.WithoutObservations || !v1alpha1.OfAgentSandbox(claim) {
		return claim
	}
	return plan.Observe(claim, now, traceContext(ctx))
}

// traceContext returns the trace that a request is in as an annotation has it; "" if the
// request is not traced, or the trace is not kept.
func traceContext(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	encoded, err := json.Marshal(carrier)
	if err != nil {
		return ""
	}
	return claims.TraceContext(string(encoded))
}

// Create stores a claim that was admitted, with the sandboxes that it asks for, and
// returns it as stored.
//
// What can be bound at once is in the first transaction. A claim that needs more
// waits, in the order in which claims came, for the sync window and never beyond ctx;
// then it is returned as it stands, Claiming, and goes on in the background. A ctx that
// is done before the first transaction costs nothing; afterwards it only ends the
// waiting.
//
// Errors: ErrClaimExists, ErrSetNotFound, *MismatchError, *ShortageError, *TooManyWaitingError,
// *RefusedError, ErrTooLarge, *ThrottledError, those of Options.Admit (nothing was written in all these cases), ErrUnknownOutcome,
// the error of ctx, and those of the store.
func (a *Allocator) Create(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	ctx, answered := observeCreate(ctx, a.options.Clock, &a.stock.Sets, claim)
	created, err := a.create(ctx, claim)
	answered(created, err)
	return created, err
}

func (a *Allocator) create(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	now := a.options.Clock.Now()
	claim = a.options.observed(ctx, claim, now)
	known := a.finisher.known
	u := known.open(ctx, claim, now)
	stored, waits, err := a.first(ctx, u, claim, now)
	if err != nil || !claims.Unfinished(stored) {
		known.forget(u, claim.UID)
		if err == nil {
			a.warn(ctx, claim, u)
		}
		return stored, a.refusal(ctx, claim, err)
	}
	a.finisher.setUpRuntimes(u)
	known.begin(u, claim.UID)
	if waits && a.reconciler.IsRunning() {
		a.await(ctx, u)
	}
	a.warn(ctx, claim, u)
	return u.latest().DeepCopy(), nil
}

// first writes the claim's first state, with what can be bound now, or fails and
// leaves nothing behind. It reports whether it is worth waiting for more.
func (a *Allocator) first(ctx context.Context, u *unfinished, claim *v1alpha1.SandboxClaim, now time.Time) (*v1alpha1.SandboxClaim, bool, error) {
	try := &attempt{planner: a.planner, reservation: &u.work.reservation, state: plan.State{Claim: claim, New: true, Start: now}}
	try.state.Setups, _ = a.finisher.setupsOf(u, nil)
	detached := false
	for {
		if err := ctx.Err(); err != nil {
			return nil, false, err // a caller that is gone costs nothing
		}
		p, err := try.plan(ctx)
		if err != nil {
			return nil, false, err
		}
		if err := a.join(u, &try.state.Eligible, p); err != nil {
			return nil, false, err
		}
		stored, err := a.committer.write(ctx, true, p, try.reservation)
		if err != nil {
			a.stock.Queue.Leave(u.waiter) // or the next plan would be behind it
		}
		if errors.Is(err, errNotWritten) && !detached {
			// It was on its way, and is seen through also if the caller has left.
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), a.options.ResolveTimeout)
			defer cancel()
			detached = true
		}
		if errors.Is(err, errReplan) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if stored == p.Claim {
			all, _ := p.Sandboxes()
			u.recordWrite(view{}, stored, all)
		} else {
			u.setClaim(stored) // found out by reading: what it holds has to be read, too
		}
		u.recordPlan(&try.state, p)
		u.work.recordWrite(p, now)
		return stored, !u.outlook.hopeless, nil
	}
}

// join queues a claim that is about to be stored for what it lacks. From then on
// newcomers do not overtake it. One that only waits for its next transaction is not
// refused, however many wait.
func (a *Allocator) join(u *unfinished, e *claims.Eligible, p *plan.Plan) error {
	if p.Wants.Need == 0 || makesTheRest(e, p) {
		return nil
	}
	wants, most := candidates.WantsOf(p.Claim, e, p.Wants, 0), a.options.MaxWaiting
	if a.stock.Queue.Free(wants.Sources) >= wants.Need {
		most = math.MaxInt
	}
	if !a.stock.Queue.Join(u.waiter, wants, most) {
		return &TooManyWaitingError{Namespace: p.Claim.Namespace, Most: a.options.MaxWaiting}
	}
	return nil
}

// makesTheRest reports whether what a claim lacks after a plan is made for it.
func makesTheRest(e *claims.Eligible, p *plan.Plan) bool {
	return claims.CreatesOnNoStock(p.Claim) && e.CanMake() && p.Broken == nil
}

// refusal is the error for the client whose claim could not be created.
func (a *Allocator) refusal(ctx context.Context, claim *v1alpha1.SandboxClaim, err error) error {
	if errors.Is(err, etcdtxn.ErrTooLarge) && !errors.Is(err, ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if short := (*ShortageError)(nil); errors.As(err, &short) {
		short.RetryAfter = a.options.RetryAfter
	}
	if tooMany := (*TooManyWaitingError)(nil); errors.As(err, &tooMany) {
		tooMany.RetryAfter = a.options.RetryAfter
	}
	return a.unlessExists(ctx, claim, err)
}

// unlessExists returns ErrClaimExists instead of a refusal if the claim's name is taken. A client that
// tries again, because the first answer was lost, must not read that nothing was bound.
func (a *Allocator) unlessExists(ctx context.Context, claim *v1alpha1.SandboxClaim, err error) error {
	var shortage *ShortageError
	var tooMany *TooManyWaitingError
	var refused *RefusedError
	var mismatch *MismatchError
	var throttled *ThrottledError
	if !errors.As(err, &throttled) && !errors.As(err, &shortage) && !errors.As(err, &tooMany) && !errors.As(err, &refused) && !errors.As(err, &mismatch) && !errors.Is(err, ErrSetNotFound) {
		return err
	}
	stored, readErr := a.planner.store.Claim(ctx, claim.Namespace, claim.Name)
	switch {
	case readErr != nil:
		return readErr
	case stored != nil:
		return ErrClaimExists
	}
	return err
}

// await waits for the claim's end within the sync window, and not beyond ctx, less
// what is needed to answer in time. Each call that waits holds a seat that others need,
// so with too many of them it does not wait: those who came before are served before.
func (a *Allocator) await(ctx context.Context, u *unfinished) {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > int64(a.options.MaxWaitingCreates) {
		return
	}
	_, span := tracing.Start(ctx, "Wait for sandboxes")
	defer span.End(slow)
	window := a.options.SyncWindow
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(a.options.Clock.Now())
		window = min(window, left-min(left/5, time.Second))
	}
	timer := a.options.Clock.NewTimer(max(0, window))
	defer timer.Stop()
	select {
	case <-u.done:
	case <-timer.C():
	case <-ctx.Done():
	}
}

// warn warns the client of a claim of what does not reach its sandboxes.
func (a *Allocator) warn(ctx context.Context, claim *v1alpha1.SandboxClaim, u *unfinished) {
	warnOfHeldBack(ctx, u.keptFromPods())
	warnOfRuntimes(ctx, claim, u.runtimeless())
}

// maxWarned is how many fields one warning names.
const maxWarned = 5

// warnOfHeldBack warns the client of which of its labels and annotations are not on all of
// the pods.
func warnOfHeldBack(ctx context.Context, fields []string) {
	if len(fields) == 0 {
		return
	}
	named := strings.Join(fields[:min(len(fields), maxWarned)], ", ")
	if more := len(fields) - maxWarned; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	warning.AddWarning(ctx, "", named+": on the sandboxes, but not on all of their pods: "+
		"held back by a podMetadataPolicy, by the default of the installation, or because the pod template says otherwise")
}

// warnOfRuntimes warns the client that its envVars are not delivered in the sandboxes of some
// pools, which are named as plan.Marks names them.
func warnOfRuntimes(ctx context.Context, claim *v1alpha1.SandboxClaim, pools []string) {
	if len(pools) == 0 || len(claim.Spec.EnvVars) == 0 {
		return
	}
	named := strings.Join(pools[:min(len(pools), maxWarned)], ", ")
	if more := len(pools) - maxWarned; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	warning.AddWarning(ctx, "", named+" has no agent-runtime: envVars are not delivered")
}

// slow is how long a part of a claim may take before it is logged.
const slow = 500 * time.Millisecond

// observeCreate begins a span for the create of a claim. The returned function ends
// it and counts how the create went.
func observeCreate(ctx context.Context, c clock.PassiveClock, sets claims.Sets, claim *v1alpha1.SandboxClaim) (context.Context, func(*v1alpha1.SandboxClaim, error)) {
	start := c.Now()
	asked, _ := v1alpha1.AskedOf(claim)
	ctx, span := tracing.Start(ctx, "Bind SandboxClaim",
		attribute.String("namespace", claim.Namespace),
		attribute.String("template", asked),
		attribute.Int("replicas", claims.Replicas(claim)))
	return ctx, func(created *v1alpha1.SandboxClaim, err error) {
		outcome := outcomeOf(created, err)
		took := c.Since(start)
		metrics.ObserveCreate(claim, sets, outcome, start, took)
		span.AddEvent("Answered", attribute.String("outcome", outcome))
		span.RecordError(err)
		span.End(slow)
	}
}
