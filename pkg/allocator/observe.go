// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

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
		span.End(storage.Slow)
	}
}

// outcomeOf returns the outcome of a create for the metrics.
func outcomeOf(claim *v1alpha1.SandboxClaim, err error) string {
	var refusal apierrors.APIStatus
	switch {
	case err == nil && claims.Unfinished(claim):
		return metrics.OutcomeWaiting
	case err == nil:
		return metrics.OutcomeOfEnd(claim)
	case errors.Is(err, ErrClaimExists):
		return metrics.OutcomeExists
	case is[*ShortageError](err):
		return metrics.OutcomeShortage
	case errors.Is(err, ErrSetNotFound):
		return metrics.OutcomeSetNotFound
	case is[*TooManyWaitingError](err):
		return metrics.OutcomeTooMany
	case is[*RefusedError](err), is[*MismatchError](err):
		return metrics.OutcomeRefused
	case errors.Is(err, ErrTooLarge):
		return metrics.OutcomeTooLarge
	case errors.Is(err, ErrUnknownOutcome):
		return metrics.OutcomeUnknown
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return metrics.OutcomeCanceled
	case errors.As(err, &refusal) && refusal.Status().Code < http.StatusInternalServerError:
		return metrics.OutcomeRefused
	}
	return metrics.OutcomeError
}

// withFirstObserved returns a claim of agent-sandbox that is about to be created with what is noted
// of that, unless the options are against it.
func (o *Options) withFirstObserved(ctx context.Context, claim *v1alpha1.SandboxClaim, now time.Time) *v1alpha1.SandboxClaim {
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
