// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// GetsToken reports whether the agent-runtime of a sandbox gets an access token in the pool
// that the sandbox is in.
type GetsToken func(ctx context.Context, sandbox *v1alpha1.Sandbox) bool

// SetGetsToken lets a store of NewStore ask gets about each sandbox that comes into a pool. It
// is called before anything is served.
func SetGetsToken(store *genericregistry.Store, gets GetsToken) {
	strategy, ok := store.CreateStrategy.(Strategy)
	if !ok {
		return // the strategy of a test
	}
	strategy.getsToken = gets
	store.CreateStrategy, store.UpdateStrategy, store.ResetFieldsStrategy = strategy, strategy, strategy
}

// enterPool notes on a sandbox that comes into a pool whether its agent-runtime gets an access
// token there.
func (s Strategy) enterPool(ctx context.Context, sandbox *v1alpha1.Sandbox) {
	if s.getsToken == nil || !v1alpha1.IsInPool(sandbox) || !s.getsToken(ctx, sandbox) {
		return
	}
	sandbox.Status = *sandbox.Status.DeepCopy()
	claims.BeginPoolSetup(sandbox, s.clock.Now())
}

// noteRestart notes on a sandbox of a pool that its agent-runtime, which had a token, gets it again:
// a container was restarted, or may have been, because the sandbox becomes unready. Restarts that
// were not known before count: a token that is given twice does no harm, and one that is lost does.
func (s Strategy) noteRestart(sandbox, stored *v1alpha1.Sandbox) {
	restarted := ptr.Deref(sandbox.Status.PodInfo.RestartCount, 0) != ptr.Deref(stored.Status.PodInfo.RestartCount, 0) ||
		!meta.IsStatusConditionTrue(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
	if restarted && claims.HadPoolSetup(sandbox) && claims.HadPoolSetup(stored) && sandbox.Status.Phase != v1alpha1.SandboxFailed {
		claims.BeginPoolSetup(sandbox, s.clock.Now())
	}
}
