// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
)

// TestEventsBeforeCreateIsBack: a sandbox that is ready before the answer of its
// transaction is back counts at once.
func TestEventsBeforeCreateIsBack(t *testing.T) {
	d := newDesk(t, setOf("a", "py"))
	d.shelf.templates["py"] = templateOfPod("py")
	d.runs()
	revision := 20
	d.begin = func() Txn {
		return &slip{commit: func(s *slip) error {
			revision++
			s.at(revision)
			if s.claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted {
				return nil
			}
			ready := s.sandboxes[0].DeepCopy()
			revision++
			ready.ResourceVersion, ready.Status = strconv.Itoa(revision), running()
			d.Feeds.SandboxChanged(ready)
			return nil
		}}
	}
	created := make(chan *v1alpha1.SandboxClaim, 1)
	go func() {
		claim, err := d.Create(t.Context(), claimOf(func(c *v1alpha1.SandboxClaim) { warm(1)(c); orFresh(c) }))
		if err != nil {
			t.Error(err)
		}
		created <- claim
	}()
	select {
	case claim := <-created:
		if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || claim.Status.ClaimedReplicas != 1 {
			t.Errorf("returns %+v", claim.Status)
		}
	case <-time.After(time.Minute):
		t.Fatal("never completes")
	}
	if d.finisher.unfinished.of("claim-uid") != nil {
		t.Error("continues")
	}
}

// TestDatedWhenBound: not when it was set apart for a claim that waits for more.
func TestDatedWhenBound(t *testing.T) {
	set := setOf("a", "py")
	d := newDesk(t, set)
	next := d.holding(set)
	d.clock.Step(20 * time.Second)
	d.stocks("two", set, pods)
	var dates []string
	for _, sb := range d.planned(next).Bound {
		dates = append(dates, sb.Annotations[v1alpha1.AnnotationClaimTimestamp])
	}
	if now := d.clock.Now().UTC().Format(time.RFC3339); !slices.Equal(dates, []string{now, now}) {
		t.Errorf("bound at %v, it is %v", dates, now)
	}
}

// TestFreshAreDatedForAdmission: which sees when they became the claim's, and may take
// it away.
func TestFreshAreDatedForAdmission(t *testing.T) {
	d := newDesk(t)
	d.shelf.templates["py"] = templateOfPod("py")
	admitted := 0
	d.supplier.admit = func(_ context.Context, _ *v1alpha1.SandboxClaim, made []*v1alpha1.Sandbox, _ int) error {
		for _, sb := range made {
			admitted++
			if got := sb.Annotations[v1alpha1.AnnotationClaimTimestamp]; got != d.clock.Now().UTC().Format(time.RFC3339) || !plan.IsStarting(sb) {
				t.Errorf("admission is shown that it was claimed at %q", got)
			}
			sb.Annotations = nil
		}
		return nil
	}
	first := d.newAttempt(func(c *v1alpha1.SandboxClaim) { warm(2)(c); orFresh(c) })
	p := d.planned(first)
	if admitted != 2 || len(p.Made) != 2 || len(p.Made[0].Annotations) > 0 {
		t.Errorf("admitted %d of %d", admitted, len(p.Made))
	}
	if again := d.planned(first); admitted != 2 || len(again.Made) != 2 || again.Made[0].Name != p.Made[0].Name {
		t.Errorf("admitted %d of %d, planned again", admitted, len(again.Made))
	}
}

// TestRefusedByAdmission: a new claim fails; one that continues does so without more, and
// tries again after a while.
func TestRefusedByAdmission(t *testing.T) {
	d := newDesk(t)
	d.shelf.templates["py"] = templateOfPod("py")
	asked := 0
	d.supplier.admit = func(context.Context, *v1alpha1.SandboxClaim, []*v1alpha1.Sandbox, int) error {
		asked++
		return errDown
	}
	fresh := func(c *v1alpha1.SandboxClaim) { warm(1)(c); orFresh(c) }
	if _, err := d.newAttempt(fresh).plan(t.Context()); err == nil || asked != 1 {
		t.Errorf("a new claim: %v, asked %d times", err, asked)
	}
	next := d.nextAttempt(fresh)
	p := d.planned(next)
	again := next.finder.reservation.makeBackoff.Until.Sub(d.clock.Now())
	if len(p.Made) != 0 || asked != 2 || again < time.Second || again > 2*time.Second {
		t.Errorf("made %d, asked %d times, tries again after %s", len(p.Made), asked, again)
	}
	if d.planned(next); asked != 2 {
		t.Error("asked again at once")
	}
	d.clock.Step(again)
	if d.planned(next); asked != 3 {
		t.Error("not asked again")
	}
}
