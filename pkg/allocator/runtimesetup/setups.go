// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// setupsOfClaim is how many runtimes are set up for one claim at a time.
const setupsOfClaim = 512

// Setups are the runtimes that this server sets up for one claim: in memory, until a
// transaction has what came of it. All of it can be lost.
type Setups struct {
	// nonce distinguishes this work on the claim from any other, also of this server.
	nonce string

	mu sync.Mutex
	// calls are by the UIDs of the sandboxes, and next those that have not begun.
	calls map[types.UID]*setupCall
	next  []*setupCall
	// span is that of the create of the claim; nil if there was none here.
	span trace.Span
	// callers is how many goroutines there are.
	callers int
	// isNotified is set if the claim is due already for the calls that have ended.
	isNotified bool
	// hopeless is why no sandbox of the claim can be set up; nil if none has said so.
	hopeless *plan.RefusedError
}

// setupCall is the setting up of one runtime.
type setupCall struct {
	claim *v1alpha1.SandboxClaim
	sb    *v1alpha1.Sandbox
	// runtime is the one that is called, as it was seen last.
	runtime plan.Runtime
	// by is until when it has to be done.
	by time.Time
	// cancel ends it; nil before it has begun. The result of one is not needed that is
	// canceled.
	cancel   context.CancelFunc
	canceled bool
	// result is nil before the end.
	result *plan.SetupResult
}

func newSetupCall(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) *setupCall {
	return &setupCall{claim: claim, sb: sb, runtime: plan.RuntimeOf(sb)}
}

// New returns Setups without calls.
func New() *Setups {
	return &Setups{nonce: string(uuid.NewUUID()), calls: map[types.UID]*setupCall{}}
}

// ClearNotified records that the attempt which begins now sees the results of all calls that have ended so far.
func (s *Setups) ClearNotified() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isNotified = false
}

// results are how the calls ended that have ended, and why there is no hope for others.
func (s *Setups) results() (map[types.UID]plan.SetupResult, *plan.RefusedError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended map[types.UID]plan.SetupResult // most claims have none
	for uid, call := range s.calls {
		if call.result != nil {
			if ended == nil {
				ended = make(map[types.UID]plan.SetupResult, len(s.calls))
			}
			ended[uid] = *call.result
		}
	}
	return ended, s.hopeless
}

// HasCalls reports whether there is anything that only this server knows, or will know.
func (s *Setups) HasCalls() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0
}

// KeepOnly cancels and forgets all calls but those of sandboxes that are starting, and whose
// runtime is the one that was called: one that has started anew knows nothing of it, and
// at the address may be another pod by now. Where volumes may have been mounted into it,
// it has failed: they are not mounted twice.
func (s *Setups) KeepOnly(held []*v1alpha1.Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) == 0 {
		return
	}
	before := maps.Clone(s.calls)
	for _, sb := range held {
		call := before[sb.UID]
		if call == nil || !plan.IsStarting(sb) || sb.DeletionTimestamp != nil {
			continue
		}
		if is := plan.RuntimeOf(sb); is.IsSame(call.runtime) {
			call.runtime = is
			delete(before, sb.UID)
		} else if claims.Mounts(call.claim) && call.cancel != nil { // it had begun
			delete(before, sb.UID)
			call.drop()
			call.result = &plan.SetupResult{Failed: startedAnew()}
		}
	}
	for uid, call := range before {
		call.drop()
		delete(s.calls, uid)
	}
}

// drop cancels a call.
func (c *setupCall) drop() {
	c.canceled = true
	if c.cancel != nil {
		c.cancel()
	}
}

// startedAnew is why volumes may be mounted into a runtime that is gone.
func startedAnew() *claims.SetupError {
	return &claims.SetupError{
		Condition: v1alpha1.SandboxConditionVolumesMounted, Reason: v1alpha1.ReasonMountFailed,
		Message: "its pod, or a container of it, started anew or became unready while its volumes were mounted",
	}
}

// add adds calls for sandboxes that have none.
func (s *Setups) add(state *plan.State, all []*v1alpha1.Sandbox, span trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.span = span
	for _, sb := range all {
		if s.calls[sb.UID] == nil {
			call := newSetupCall(state.Claim, sb)
			call.by = state.SetUpBy(sb)
			s.calls[sb.UID] = call
			s.next = append(s.next, call)
		}
	}
}

// take returns the next call for another goroutine; nil if there is none, or if there are
// goroutines enough.
func (s *Setups) take() *setupCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.next) > 0 && s.callers < setupsOfClaim {
		call := s.next[0]
		s.next[0], s.next = nil, s.next[1:]
		if !call.canceled {
			s.callers++
			return call
		}
	}
	return nil
}

// requeue undoes take.
func (s *Setups) requeue(call *setupCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers--
	s.next = append([]*setupCall{call}, s.next...)
}

// begin returns the context of a call; nil if it is canceled.
func (s *Setups) begin(ctx context.Context, call *setupCall, now time.Time) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call.canceled {
		return nil
	}
	if s.span != nil {
		ctx = trace.ContextWithSpan(ctx, s.span)
	}
	ctx, call.cancel = context.WithTimeout(ctx, call.by.Sub(now))
	return ctx
}

// end takes in how a call ended, and returns when the claim is due because of that: at once
// where it was the last, so that the whole of a claim is one transaction, and otherwise
// after the progress interval, or never if that is due already.
func (s *Setups) end(call *setupCall, err error) (after time.Duration, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers--
	if call.cancel != nil {
		call.cancel()
	}
	if call.canceled {
		return 0, false
	}
	call.result = &plan.SetupResult{Failed: setupError(err)}
	if f := call.result.Failed; f != nil && f.Hopeless && s.hopeless == nil {
		s.hopeless = &plan.RefusedError{Reason: f.Reason, Message: f.Message}
	}
	for _, other := range s.calls {
		if other.result == nil {
			due, s.isNotified = !s.isNotified, true
			return plan.ProgressInterval, due
		}
	}
	s.isNotified = true
	return 0, true
}

// setupError is what is reported of a setup that failed.
func setupError(err error) *claims.SetupError {
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[*claims.SetupError](err); ok {
		return failed
	}
	failed := &claims.SetupError{Condition: v1alpha1.SandboxConditionRuntimeInitialized, Reason: v1alpha1.ReasonRuntimeInitFailed}
	if failed.Message = err.Error(); errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		failed.Message = "its agent-runtime was not set up in time"
	}
	return failed
}
