// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// labelled returns a claim as it is after an edit of its labels.
func labelled(claim *v1alpha1.SandboxClaim) *v1alpha1.SandboxClaim {
	edited := claim.DeepCopy()
	edited.Spec.Labels = map[string]string{"team": "a"}
	edited.Generation++
	return edited
}

// TestTakenBeforeAnEdit: what was taken for a claim that had no labels is not bound past
// the policy about those that it has since.
func TestTakenBeforeAnEdit(t *testing.T) {
	d := withOwn(t, "x")
	d.supplier.templates.PodMetadata = &v1alpha1.PodMetadataPolicy{} // lets nothing through
	next := d.nextAttempt(warm(1))
	if p := d.planned(next); len(p.Bound) != 1 {
		t.Fatalf("bound %+v", p.Bound)
	}
	next.state.Claim = labelled(next.state.Claim)
	p := d.planned(next)
	if len(p.Bound) != 1 || p.Bound[0].Labels["team"] != "a" || strings.Contains(string(p.Bound[0].Spec.Template.Raw), `"team"`) {
		t.Errorf("bound %+v with the template %s", p.Bound, p.Bound[0].Spec.Template.Raw)
	}
}

// TestMadeBeforeAnEdit: what was made for a claim before an edit is not what it gets.
func TestMadeBeforeAnEdit(t *testing.T) {
	d := withOwn(t)
	next := d.nextAttempt(func(c *v1alpha1.SandboxClaim) { warm(1)(c); orFresh(c) })
	if p := d.planned(next); len(p.Made) != 1 {
		t.Fatalf("made %+v", p.Made)
	}
	next.state.Claim = labelled(next.state.Claim)
	if p := d.planned(next); len(p.Made) != 1 || p.Made[0].Labels["team"] != "a" {
		t.Errorf("made %+v", p.Made)
	}
}

// TestChargeOfWhatWasDropped checks that a quota is charged once for each sandbox of a
// claim, also where those that were admitted before an edit are made anew.
func TestChargeOfWhatWasDropped(t *testing.T) {
	d := withOwn(t)
	admitted, charged := 0, 0
	d.supplier.admit = func(_ context.Context, _ *v1alpha1.SandboxClaim, made []*v1alpha1.Sandbox, charge int) error {
		admitted, charged = admitted+len(made), charged+charge
		return nil
	}
	next := d.nextAttempt(func(c *v1alpha1.SandboxClaim) { warm(2)(c); orFresh(c) })
	expect := func(what string, makes, admits, charges int) *plan.Plan {
		t.Helper()
		p := d.planned(next)
		if len(p.Made) != makes || admitted != admits || charged != charges {
			t.Errorf("%s: makes %d, of which %d were admitted and %d charged, want %d, %d and %d", what, len(p.Made), admitted, charged, makes, admits, charges)
		}
		return p
	}
	edit := func(replicas int32) {
		edited := labelled(next.state.Claim)
		edited.Spec.Replicas = &replicas
		next.state.Claim = edited
	}
	expect("at first", 2, 2, 2)
	expect("once more", 2, 2, 2)
	edit(2)
	expect("with other labels", 2, 4, 2)
	edit(1)
	expect("for fewer", 1, 5, 2)
	edit(3)
	p := expect("for more", 3, 8, 4)
	d.committer.recordWrite(p, next.finder.reservation, 20)
	if next.finder.reservation.charged != 0 || len(next.finder.reservation.made) != 0 {
		t.Errorf("when all are written, %d are in hand and %d charged", len(next.finder.reservation.made), next.finder.reservation.charged)
	}
}

// starting is a sandbox that is being prepared, and has been ready since a time.
func starting(since int64) *v1alpha1.Sandbox {
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Name: "x", UID: "x", Annotations: map[string]string{v1alpha1.AnnotationStarting: "true"},
	}}
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(since, 0),
	})
	return sb
}

// TestWhoHasMarkedGoesOn: the server whose mark is on a sandbox works on its claim, also
// while it has no open call: no other server mounts the volumes.
func TestWhoHasMarkedGoesOn(t *testing.T) {
	r := newRuntimes(t, 0, succeeds)
	r.MembersChanged("me", []string{"me", "other"})
	r.prefers(prefersNone)
	claim := r.asks(withMounts)
	claim.CreationTimestamp.Time = r.clock.Now().Add(-time.Hour)
	u := r.finisher.unfinished.newUnfinished(claim, newReservation())
	u.claim = claim
	sb := starting(1)
	u.held[sb.Name] = sb
	if r.finisher.ownership.isMine(claim.UID, u) {
		t.Error("the claim of another server is this one's")
	}
	sb.Annotations[v1alpha1.AnnotationMounting] = r.finisher.runtimes.Mark(u.work.setups)
	if !r.finisher.ownership.isMine(claim.UID, u) {
		t.Error("no server continues with what this server has marked")
	}
}

// TestEndThatDoesNotFit: a claim whose end does not fit into a transaction with what is
// starting for it ends all the same.
func TestEndThatDoesNotFit(t *testing.T) {
	r := newRuntimes(t, 1, succeeds)
	first := r.creates()
	bound := r.last().sandboxes[0]
	bound.ResourceVersion = "21"

	r = newRuntimes(t, 0, succeeds)
	r.revision = 30
	r.held = []*v1alpha1.Sandbox{bound}
	write := r.write
	r.begin = func() Txn {
		return &slip{commit: func(s *slip) error {
			switch {
			case s.claim != nil && len(s.sandboxes) > 0:
				return etcdtxn.ErrTooLarge
			case s.claim == nil:
				r.held = nil
			}
			return write(s)
		}}
	}
	r.MembersChanged("me", []string{"me"})
	r.prefers(prefersAll)
	first.CreationTimestamp.Time = r.clock.Now()
	r.runs()
	r.Feeds.ClaimChanged(first)
	r.stepUntil(10*time.Millisecond, func() bool { return r.finisher.unfinished.of(first.UID) == nil })
	if end := r.last().claim; end == nil || end.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		t.Errorf("it ends as %+v", end)
	}
}
