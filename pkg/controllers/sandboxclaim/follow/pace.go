// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/writepace"
)

const (
	// gather is how long a claim waits for more news of its sandboxes: what happens to one
	// of many often happens to all.
	gather = 50 * time.Millisecond
	// spacing is between two writes of one claim, and perSandbox more for each sandbox that
	// it lists: a claim is written as a whole. So one of 10,000 is written every ten seconds.
	spacing    = 500 * time.Millisecond
	perSandbox = time.Millisecond
	// patience is how long the cache may take to show what the server has before the
	// server is asked.
	patience = time.Second
)

// pace spaces the writes of claims. It knows only the claims that were written, or were in
// doubt, and are not deleted yet.
type pace struct {
	clock clock.PassiveClock
	// repeated delays repeatable changes further: readiness and addresses of sandboxes.
	repeated *writepace.Pacer

	mu     sync.Mutex
	claims map[types.NamespacedName]*paced
}

// paced is what is known of one claim.
type paced struct {
	// next is when the claim may be written again.
	next time.Time
	// doubted is since when the cache is not believed, or when the server was asked last
	// since; zero while it is believed.
	doubted time.Time
}

func newPace(clk clock.PassiveClock) *pace {
	return &pace{clock: clk, repeated: writepace.New(clk), claims: map[types.NamespacedName]*paced{}}
}

func (p *pace) of(claim types.NamespacedName) *paced {
	known := p.claims[claim]
	if known == nil {
		known = &paced{}
		p.claims[claim] = known
	}
	return known
}

// left returns how long a claim has to wait until it is written again.
func (p *pace) left(claim types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.claims[claim]
	if known == nil {
		return 0
	}
	return max(0, known.next.Sub(p.clock.Now()))
}

// written records that a claim with so many sandboxes was written, and if the change was
// repeatable.
func (p *pace) written(claim *v1alpha1.SandboxClaim, sandboxes int, repeatable bool) {
	if repeatable {
		p.repeated.RecordWrite(claim)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	*p.of(client.ObjectKeyFromObject(claim)) = paced{next: p.clock.Now().Add(spacing + time.Duration(sandboxes)*perSandbox)}
}

// doubt reports whether the cache had time enough to show all sandboxes of a claim, since
// the server was asked for them last.
func (p *pace) doubt(claim types.NamespacedName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, now := p.of(claim), p.clock.Now()
	switch {
	case known.doubted.IsZero():
		known.doubted = now
	case now.Sub(known.doubted) >= patience:
		known.doubted = now
		return true
	}
	return false
}

// trust notes that what the cache shows of a claim is what the claim says.
func (p *pace) trust(claim types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.claims[claim]; known != nil {
		known.doubted = time.Time{}
	}
}

// forget forgets a claim that is deleted.
func (p *pace) forget(claim types.NamespacedName) {
	p.repeated.Forget(claim)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.claims, claim)
}
