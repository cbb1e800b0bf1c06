// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// joinTimeout is how long a sandbox that comes into a pool waits until this server knows the
// others.
const joinTimeout = 5 * time.Second

// poolRuntimes says which agent-runtimes get a token in their pools.
type poolRuntimes struct {
	// lookup finds templates.
	lookup    podtemplate.Lookup
	templates *podtemplate.Cache

	// joined is closed when the servers are known.
	joined chan struct{}
	once   sync.Once
	// agreed is set if all servers know the tokens.
	agreed atomic.Bool
}

func newPoolRuntimes(lookup podtemplate.Lookup) *poolRuntimes {
	return &poolRuntimes{lookup: lookup, templates: podtemplate.NewCache(), joined: make(chan struct{})}
}

// membersChanged takes in the names of all servers. A server that has lost contact with the others
// uses what it knew: without tokens the sandboxes would be open.
func (p *poolRuntimes) membersChanged(servers []string) {
	if len(servers) == 0 {
		return
	}
	p.agreed.Store(!slices.ContainsFunc(servers, func(name string) bool { return !agentruntime.KnowsPoolTokens(name) }))
	p.once.Do(func() { close(p.joined) })
}

// getsToken is a sandbox.GetsToken. The pools of agent-sandbox have no tokens, because its clients
// have no way to read them. While this server does not know the others, a sandbox gets one: without
// it the sandbox would be open.
func (p *poolRuntimes) getsToken(ctx context.Context, sb *v1alpha1.Sandbox) bool {
	if !ofOurGroup(sb) || v1alpha1.OfAgentSandbox(sb) {
		return false
	}
	if !podtemplate.NamesAgentRuntime(sb.Spec.Runtimes) {
		// The server that initializes the runtime finds out, where that is not known now.
		if whole, err := p.withTemplate(ctx, sb); err == nil && !p.templates.BringsAgentRuntime(whole.Spec.Template) {
			return false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	select {
	case <-p.joined:
		return p.agreed.Load()
	case <-ctx.Done():
		return true
	}
}

// ofOurGroup reports whether the pool of a sandbox is a SandboxSet, and no SandboxWarmPool.
func ofOurGroup(sb *v1alpha1.Sandbox) bool {
	pool := v1alpha1.PoolOf(sb)
	if pool == nil {
		return false
	}
	gv, err := schema.ParseGroupVersion(pool.APIVersion)
	return err == nil && gv.Group == v1alpha1.GroupName
}

// withTemplate is an agentruntime.Setup.WithTemplate.
func (p *poolRuntimes) withTemplate(ctx context.Context, sb *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error) {
	return p.templates.Whole(ctx, sb, p.lookup)
}
