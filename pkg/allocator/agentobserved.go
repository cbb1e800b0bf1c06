// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
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
