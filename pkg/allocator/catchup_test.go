// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// slip is a transaction on a shelf.
type slip struct {
	claim     *v1alpha1.SandboxClaim
	sandboxes []*v1alpha1.Sandbox
	commit    func(*slip)
}

func (s *slip) CreateClaim(_ context.Context, claim *v1alpha1.SandboxClaim) error {
	s.claim = claim
	return nil
}

func (s *slip) UpdateClaim(ctx context.Context, claim *v1alpha1.SandboxClaim, _ int64) error {
	return s.CreateClaim(ctx, claim)
}

func (s *slip) CreateSandbox(_ context.Context, sb *v1alpha1.Sandbox) error {
	s.sandboxes = append(s.sandboxes, sb)
	return nil
}

func (s *slip) UpdateSandbox(ctx context.Context, sb *v1alpha1.Sandbox, _ int64) error {
	return s.CreateSandbox(ctx, sb)
}

func (s *slip) Len() int   { return 1 + len(s.sandboxes) }
func (s *slip) Bytes() int { return 0 }

func (s *slip) Commit(context.Context) error {
	s.commit(s)
	return nil
}

// TestNewsBeforeTheJob: a sandbox that is ready before the answer of its transaction
// is back counts at once.
func TestNewsBeforeTheJob(t *testing.T) {
	d := newDesk(t, setOf("a", "py"))
	d.shelf.templates["py"] = templateOfPod("py")
	ctx, stop := context.WithCancel(t.Context())
	d.jobs.ctx = ctx
	defer d.jobs.running.Wait()
	defer stop()
	revision := 20
	phases := make(chan v1alpha1.SandboxClaimPhase, 2)
	commit := func(s *slip) {
		revision++
		s.claim.ResourceVersion = strconv.Itoa(revision)
		for _, sb := range s.sandboxes {
			sb.ResourceVersion = s.claim.ResourceVersion
		}
		phases <- s.claim.Status.Phase
		if s.claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted {
			return
		}
		ready := s.sandboxes[0].DeepCopy()
		revision++
		ready.ResourceVersion = strconv.Itoa(revision)
		ready.Status = v1alpha1.SandboxStatus{
			Phase: v1alpha1.SandboxRunning, PodInfo: v1alpha1.PodInfo{PodIP: "10.0.0.1"},
			Conditions: []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue}},
		}
		d.sandboxes[ready.Name] = ready
		d.SandboxChanged(ready)
	}
	d.begin = func() Txn { return &slip{commit: commit} }
	d.jobs.running.Go(func() {
		if _, err := d.Create(ctx, claimOf(func(c *v1alpha1.SandboxClaim) { warm(1)(c); orFresh(c) })); err != nil {
			t.Error(err)
		}
	})
	for _, want := range []v1alpha1.SandboxClaimPhase{v1alpha1.SandboxClaimPhaseClaiming, v1alpha1.SandboxClaimPhaseCompleted} {
		select {
		case got := <-phases:
			if got != want {
				t.Fatalf("writes %s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("never writes %s", want)
		}
	}
}

// TestGoneBeforeTheJob: one that nobody knows is gone, or so new that the watch has
// not told of it: others of its transaction, at 20, may come before it.
func TestGoneBeforeTheJob(t *testing.T) {
	for heard, want := range map[int64]bool{19: false, 20: false, 21: true} {
		d := newDesk(t)
		j := d.job(20, nil)
		sb := pooled.DeepCopy()
		sb.ResourceVersion = "20"
		j.fresh[sb.Name] = freshSandbox{Sandbox: sb}
		d.lag.hears(heard)
		if j.catchUp(t.Context()); j.stale != want {
			t.Errorf("heard of %d: reads everything again: %t", heard, j.stale)
		}
	}
}

// TestDatedWhenBound: not when it was set apart for a claim that waits for more.
func TestDatedWhenBound(t *testing.T) {
	set := setOf("a", "py")
	d := newDesk(t, set)
	j := d.holding(set)
	d.clock.Step(20 * time.Second)
	d.stocks("two", set, "abc")
	drafted := d.draft(j)
	dates := make([]time.Time, 0, 2)
	for _, b := range drafted.binds {
		dates = append(dates, boundAt(b.sandbox).UTC())
	}
	if now := d.clock.Now().UTC(); !slices.Equal(dates, []time.Time{now, now}) {
		t.Errorf("bound at %v, it is %v", dates, now)
	}
}

// TestFreshAreDatedForAdmission: which sees when they became the claim's, and may take
// it away.
func TestFreshAreDatedForAdmission(t *testing.T) {
	d := newDesk(t)
	d.shelf.templates["py"] = templateOfPod("py")
	admitted := 0
	d.options.Admit = func(_ context.Context, _ *v1alpha1.SandboxClaim, made []*v1alpha1.Sandbox) error {
		for _, sb := range made {
			admitted++
			if got := sb.Annotations[v1alpha1.AnnotationClaimTimestamp]; got != d.clock.Now().UTC().Format(time.RFC3339) {
				t.Errorf("admission is shown that it was claimed at %q", got)
			}
			sb.Annotations = nil
		}
		return nil
	}
	drafted := d.draft(d.job(0, func(c *v1alpha1.SandboxClaim) { warm(2)(c); orFresh(c) }))
	if admitted != 2 || len(drafted.fresh) != 2 || drafted.fresh[0].Annotations != nil {
		t.Errorf("admitted %d of %d", admitted, len(drafted.fresh))
	}
}
