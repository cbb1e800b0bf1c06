// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/fairness"
)

const (
	// setupsOfClaim is how many runtimes are set up for one claim at a time.
	setupsOfClaim = 512
	// setupsAtOnce is about how many a server sets up at a time. A namespace has as many of
	// them as it leaves to others.
	setupsAtOnce = 4096
)

// setupFunc is Options.SetUp.
type setupFunc func(ctx context.Context, claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) error

// noSetUp is for a server that is built without a client of runtimes: what it cannot set
// up must not count.
func noSetUp(context.Context, *v1alpha1.SandboxClaim, *v1alpha1.Sandbox) error {
	return &claims.SetupError{
		Condition: v1alpha1.SandboxConditionRuntimeInitialized, Reason: v1alpha1.ReasonRuntimeInitFailed, Hopeless: true,
		Message: "this server cannot set up agent-runtimes; a claim with skipInitRuntime does without",
	}
}

// setups are the runtimes that this server sets up for one claim: in memory, until a
// transaction has what came of it. All of it can be lost.
type setups struct {
	// nonce distinguishes this work on the claim from any other, also of this server.
	nonce string

	mu sync.Mutex
	// calls are by the UIDs of the sandboxes, and next those that have not begun.
	calls map[types.UID]*setupCall
	next  []*setupCall
	// callers is how many goroutines there are.
	callers int
	// isNotified is set if the claim is due already for the calls that have ended.
	isNotified bool
	// hopeless is why no sandbox of the claim can be set up; nil if none has said so.
	hopeless *RefusedError
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

func newSetups() *setups {
	return &setups{nonce: string(uuid.NewUUID()), calls: map[types.UID]*setupCall{}}
}

// clearNotified records that the attempt which begins now sees the results of all calls that have ended so far.
func (s *setups) clearNotified() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isNotified = false
}

// results are how the calls ended that have ended, and why there is no hope for others.
func (s *setups) results() (map[types.UID]plan.SetupResult, *RefusedError) {
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

// hasCalls reports whether there is anything that only this server knows, or will know.
func (s *setups) hasCalls() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0
}

// keepOnly cancels and forgets all calls but those of sandboxes that are starting, and whose
// runtime is the one that was called: one that has started anew knows nothing of it, and
// at the address may be another pod by now. Where volumes may have been mounted into it,
// it has failed: they are not mounted twice.
func (s *setups) keepOnly(held []*v1alpha1.Sandbox) {
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
func (s *setups) add(state *plan.State, all []*v1alpha1.Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
func (s *setups) take() *setupCall {
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
func (s *setups) requeue(call *setupCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers--
	s.next = append([]*setupCall{call}, s.next...)
}

// begin returns the context of a call; nil if it is canceled.
func (s *setups) begin(ctx context.Context, call *setupCall, now time.Time) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call.canceled {
		return nil
	}
	ctx, call.cancel = context.WithTimeout(ctx, call.by.Sub(now))
	return ctx
}

// end takes in how a call ended, and returns when the claim is due because of that: at once
// where it was the last, so that the whole of a claim is one transaction, and otherwise
// after the progress interval, or never if that is due already.
func (s *setups) end(call *setupCall, err error) (after time.Duration, due bool) {
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
		s.hopeless = &RefusedError{Reason: f.Reason, Message: f.Message}
	}
	for _, other := range s.calls {
		if other.result == nil {
			due, s.isNotified = !s.isNotified, true
			return progressInterval, due
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

// runtimeCaller sets up the agent-runtimes of what claims hold.
type runtimeCaller struct {
	reconciler *reconciler.Reconciler
	clock      clock.PassiveClock
	// share keeps the setting up of runtimes from being one namespace's.
	share *fairness.WorkShare
	setUp setupFunc
	// members are the servers of the store; nil before they are known.
	members atomic.Pointer[members]
}

func newRuntimeCaller(r *reconciler.Reconciler, c clock.PassiveClock, setUp setupFunc) *runtimeCaller {
	if setUp == nil {
		setUp = noSetUp
	}
	return &runtimeCaller{reconciler: r, clock: c, share: fairness.NewWorkShare(setupsAtOnce, r.Queue.Add), setUp: setUp}
}

// setupsOf is what this server knows of the setups of a claim that holds these sandboxes,
// and why none of them can be set up; nil if that is not known.
func (c *runtimeCaller) setupsOf(u *unfinishedClaim, held []*v1alpha1.Sandbox) (plan.Setups, *RefusedError) {
	u.work.setups.keepOnly(held)
	results, hopeless := u.work.setups.results()
	known := plan.Setups{Results: results}
	if members := c.members.Load(); members != nil {
		known.Mounting, known.Servers = members.mark(u.work.setups), members.servers
	}
	return known, hopeless
}

// setUpRuntimes begins to set up the runtimes of what the claim holds, as far as that is
// due. It is called when what was planned is written, and makes no transaction wait.
func (c *runtimeCaller) setUpRuntimes(u *unfinishedClaim) {
	seen := u.snapshot()
	if len(seen.held) == 0 {
		u.work.setups.keepOnly(nil)
		return
	}
	state := plan.State{Claim: seen.claim, Start: u.startTime(), Held: seen.held, Now: c.clock.Now()}
	state.Setups, _ = c.setupsOf(u, seen.held)
	u.work.setups.add(&state, state.ToSetUp())
	c.callAll(u)
}

// callAll begins the calls of a claim, as many as may be at a time. The end of one
// begins the next, and so does the share when it has room.
func (c *runtimeCaller) callAll(u *unfinishedClaim) {
	s := u.work.setups
	for call := s.take(); call != nil; call = s.take() {
		namespace, uid := call.claim.Namespace, call.claim.UID
		if !c.share.Begin(namespace, uid) {
			s.requeue(call)
			return
		}
		if !c.reconciler.Background(func(ctx context.Context) { c.call(ctx, u, call) }) {
			s.requeue(call)
			c.share.End(namespace)
			return
		}
	}
}

// call sets up one runtime.
func (c *runtimeCaller) call(ctx context.Context, u *unfinishedClaim, call *setupCall) {
	s, begin := u.work.setups, c.clock.Now()
	var err error
	if within := s.begin(ctx, call, begin); within != nil {
		if u.work.span != nil {
			within = trace.ContextWithSpan(within, u.work.span)
		}
		err = c.setUp(within, call.claim, call.sb)
		metrics.ObserveSetup(err, c.clock.Since(begin))
	}
	after, due := s.end(call, err)
	c.share.End(call.claim.Namespace)
	if ctx.Err() != nil {
		return // another server continues
	}
	if due {
		c.reconciler.Queue.AddAfter(call.claim.UID, after)
	}
	c.callAll(u)
}

// members are the servers of the store, as far as this one knows.
type members struct {
	self string
	// servers are nil where they are not known.
	servers []string
}

// mark is the AnnotationMounting of this server's work on a claim.
func (m *members) mark(s *setups) string { return m.self + "/" + s.nonce }
