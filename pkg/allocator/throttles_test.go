// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
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
	if n := d.committer.throttles.n.Load(); n != 0 {
		t.Errorf("%d throttles are remembered", n)
	}
}

// TestThrottledClaimEndsInTime checks that a throttled claim ends at its deadline.
func TestThrottledClaimEndsInTime(t *testing.T) {
	d := newDesk(t, setOf("a", "py"))
	claim := d.stored(func(c *v1alpha1.SandboxClaim) { warm(1)(c) })
	d.Feeds.ClaimChanged(claim)
	d.committer.throttles.rejected(limitKey{namespace: "ns"}, time.Hour, d.clock.Now())
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

// TestThrottles checks that one claim of a limitKey is tried at a time, that the others are spread,
// and that throttles are bounded and expire.
func TestThrottles(t *testing.T) {
	now := time.Unix(1e9, 0)
	key := limitKey{"ns", "eve"}
	th := newThrottles()
	if th.delay(key, "a", now) != 0 {
		t.Error("a claim waits although nothing is throttled")
	}
	th.rejected(key, 10*time.Second, now)
	waits := map[time.Duration]bool{}
	for i := range 100 {
		left := th.delay(key, types.UID(fmt.Sprint(i)), now)
		if waits[left] = true; left < 10*time.Second || left > 20*time.Second || left != th.delay(key, types.UID(fmt.Sprint(i)), now) {
			t.Errorf("a claim waits for %s", left)
		}
	}
	if len(waits) < 50 {
		t.Errorf("100 claims wait for %d different times", len(waits))
	}
	if th.delay(limitKey{"ns", "alice"}, "a", now) != 0 || th.delay(limitKey{"other", "eve"}, "a", now) != 0 {
		t.Error("another limitKey is throttled")
	}
	now = now.Add(10 * time.Second)
	for claim, want := range map[types.UID]bool{"a": true, "b": false} {
		th.done(key, "b")
		th.delay(key, "a", now)
		if tries := th.delay(key, claim, now) == 0; tries != want {
			t.Errorf("claim %s tries: %t", claim, tries)
		}
	}
	th.done(key, "b")
	if th.delay(key, "b", now) == 0 {
		t.Error("another claim ends the try of the first")
	}
	if th.done(key, "a"); th.delay(key, "b", now) != 0 {
		t.Error("no other claim tries after the first")
	}
	if th.accepted(key); th.delay(key, "c", now) != 0 || th.n.Load() != 0 {
		t.Error("claims wait after one has succeeded")
	}
	for i := range 2 * maxThrottles {
		th.rejected(limitKey{"ns", fmt.Sprint(i)}, time.Second, now)
	}
	if n := len(th.byKey); n != maxThrottles {
		t.Errorf("%d are remembered", n)
	}
	if th.removeExpired(now.Add(time.Second + throttleTTL)); th.n.Load() != 0 || len(th.byKey) != 0 {
		t.Errorf("%d are not removed", len(th.byKey))
	}
}
