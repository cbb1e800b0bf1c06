// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtimesetup sets up the agent-runtimes of the sandboxes that claims hold: a Caller calls them, and the
// Setups of a claim have what came of that.
package runtimesetup

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// setupsAtOnce is about how many a server sets up at a time. A namespace has as many of
// them as it leaves to others.
const setupsAtOnce = 4096

// SetUp sets up the agent-runtime of a sandbox that a claim holds, as SetUp of the options of the allocator.
type SetUp func(ctx context.Context, claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) error

// None is the SetUp of a server that is built without a client of runtimes: what it cannot set
// up must not count.
func None(context.Context, *v1alpha1.SandboxClaim, *v1alpha1.Sandbox) error {
	return &claims.SetupError{
		Condition: v1alpha1.SandboxConditionRuntimeInitialized, Reason: v1alpha1.ReasonRuntimeInitFailed, Hopeless: true,
		Message: "this server cannot set up agent-runtimes; a claim with skipInitRuntime does without",
	}
}

// Caller sets up the agent-runtimes of what claims hold.
type Caller struct {
	reconciler *reconciler.Reconciler
	clock      clock.PassiveClock
	// Share keeps the setting up of runtimes from being one namespace's, and SetUp sets up one. Both are set
	// before the first use.
	Share *fairness.WorkShare
	SetUp SetUp
	// members are the servers of the store; nil before they are known.
	members atomic.Pointer[members]
}

// NewCaller returns a Caller. If setUp is nil, no runtime can be set up.
func NewCaller(r *reconciler.Reconciler, c clock.PassiveClock, setUp SetUp) *Caller {
	if setUp == nil {
		setUp = None
	}
	return &Caller{reconciler: r, clock: c, Share: fairness.NewWorkShare(setupsAtOnce, r.Queue.Add), SetUp: setUp}
}

// SetMembers says which servers have the same store; nil is not known.
func (c *Caller) SetMembers(self string, servers []string) {
	c.members.Store(&members{self: self, servers: servers})
}

// Mark returns the AnnotationMounting of this server's work on a claim; "" if the servers are not known yet.
func (c *Caller) Mark(s *Setups) string {
	if members := c.members.Load(); members != nil {
		return members.mark(s)
	}
	return ""
}

// Known is what this server knows of the setups of a claim that holds these sandboxes,
// and why none of them can be set up; nil if that is not known.
func (c *Caller) Known(s *Setups, held []*v1alpha1.Sandbox) (plan.Setups, *plan.RefusedError) {
	s.KeepOnly(held)
	results, hopeless := s.results()
	known := plan.Setups{Results: results}
	if members := c.members.Load(); members != nil {
		known.Mounting, known.Servers = members.mark(s), members.servers
	}
	return known, hopeless
}

// Begin begins to set up the runtimes of what a claim holds, as far as that is due. The caller has set the claim
// of the state, its start, and what it holds. span is that of the create; nil if there was none here.
func (c *Caller) Begin(s *Setups, state plan.State, span trace.Span) {
	state.Now = c.clock.Now()
	state.Setups, _ = c.Known(s, state.Held)
	s.add(&state, state.ToSetUp(), span)
	c.callAll(s)
}

// callAll begins the calls of a claim, as many as may be at a time. The end of one
// begins the next, and so does the share when it has room.
func (c *Caller) callAll(s *Setups) {
	for call := s.take(); call != nil; call = s.take() {
		namespace, uid := call.claim.Namespace, call.claim.UID
		if !c.Share.Begin(namespace, uid) {
			s.requeue(call)
			return
		}
		if !c.reconciler.Background(func(ctx context.Context) { c.call(ctx, s, call) }) {
			s.requeue(call)
			c.Share.End(namespace)
			return
		}
	}
}

// call sets up one runtime.
func (c *Caller) call(ctx context.Context, s *Setups, call *setupCall) {
	begin := c.clock.Now()
	var err error
	if within := s.begin(ctx, call, begin); within != nil {
		err = c.SetUp(within, call.claim, call.sb)
		metrics.ObserveSetup(err, c.clock.Since(begin))
	}
	after, due := s.end(call, err)
	c.Share.End(call.claim.Namespace)
	if ctx.Err() != nil {
		return // another server continues
	}
	if due {
		c.reconciler.Queue.AddAfter(call.claim.UID, after)
	}
	c.callAll(s)
}

// members are the servers of the store, as far as this one knows.
type members struct {
	self string
	// servers are nil where they are not known.
	servers []string
}

// mark is the AnnotationMounting of this server's work on a claim.
func (m *members) mark(s *Setups) string { return m.self + "/" + s.nonce }
