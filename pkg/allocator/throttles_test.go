// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/throttles"
)

// TestThrottledClaimsDoNotSpin checks that the claims of a namespace and user that exceeds a write
// limit are not planned and encoded until the limit allows a write, that one of them tries then,
// and that all are served once the limit is not exceeded.
func TestThrottledClaimsDoNotSpin(t *testing.T) {
	const n, retryAfter = 20, 10 * time.Second
	set := setOf("a", "py")
	d := newDesk(t, set)
	d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
	for i := range n + 1 {
		d.stocks(fmt.Sprintf("box-%02d", i), set, pods)
	}
	throttled, served, tried := true, 0, map[string]int{}
	d.begin = func() Txn {
		return &slip{commit: func(s *slip) error {
			tried[s.user]++
			if throttled && s.user == "eve" {
				return &ThrottledError{Reason: "too many bytes", RetryAfter: retryAfter}
			}
			s.at(20)
			served++
			return nil
		}}
	}
	claimFor := func(user, name string) {
		d.Feeds.ClaimChanged(d.stored(func(c *v1alpha1.SandboxClaim) {
			warm(1)(c)
			c.Name, c.UID, c.Spec.ClaimTimeout = name, types.UID(name), nil
			c.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: user, v1alpha1.AnnotationClaimedByIdentity: "{}"}
		}))
	}
	work := func() {
		for d.finisher.unfinished.due.Len() > 0 {
			d.reconciler.Next(t.Context())
		}
	}
	for i := range n {
		claimFor("eve", fmt.Sprintf("eve-%02d", i))
	}
	claimFor("alice", "alice")
	work()
	if tried["eve"] != 1 || tried["alice"] != 1 || served != 1 {
		t.Fatalf("tried %v, served %d: want one of eve's claims to be tried, and alice's to be served", tried, served)
	}
	for range 6 { // woken by news
		for i := range n {
			d.finisher.unfinished.due.Add(types.UID(fmt.Sprintf("eve-%02d", i)))
		}
		work()
		d.clock.Step(time.Second)
	}
	if tried["eve"] != 1 {
		t.Errorf("%d transactions were made before it was time", tried["eve"])
	}
	d.clock.Step(retryAfter)
	for i := range n {
		d.finisher.unfinished.due.Add(types.UID(fmt.Sprintf("eve-%02d", i)))
	}
	work()
	if tried["eve"] != 2 {
		t.Errorf("%d transactions: want one to be tried again", tried["eve"])
	}
	throttled = false
	d.stepUntil(time.Second, func() bool { work(); return served == n+1 })
	if !d.committer.throttles.IsEmpty() {
		t.Error("throttles are remembered")
	}
}

// TestThrottledClaimEndsInTime checks that a throttled claim ends at its deadline.
func TestThrottledClaimEndsInTime(t *testing.T) {
	d := newDesk(t, setOf("a", "py"))
	claim := d.stored(func(c *v1alpha1.SandboxClaim) { warm(1)(c) })
	d.Feeds.ClaimChanged(claim)
	d.committer.throttles.Rejected(throttles.Key{Namespace: "ns"}, time.Hour, d.clock.Now())
	var ended bool
	d.begin = func() Txn {
		return &slip{commit: func(s *slip) error {
			ended = s.claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted
			s.at(20)
			return nil
		}}
	}
	d.reconciler.Next(t.Context())
	start := d.clock.Now()
	d.stepUntil(time.Second, func() bool {
		for d.finisher.unfinished.due.Len() > 0 {
			d.reconciler.Next(t.Context())
		}
		return ended
	})
	if took := d.clock.Since(start); took >= time.Hour {
		t.Errorf("it ended after %s", took)
	}
}
