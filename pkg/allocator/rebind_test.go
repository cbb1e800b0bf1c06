// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// healing is a desk with a claim of agent-sandbox that is bound to the sandbox "box".
type healing struct {
	*desk
	claim *v1alpha1.SandboxClaim
	box   *v1alpha1.Sandbox
	// wrote are the claims that were written, and conflict is what is answered instead.
	wrote    []*v1alpha1.SandboxClaim
	conflict error
}

func newHealing(t *testing.T) *healing {
	h := &healing{desk: newDesk(t)}
	h.claim = h.stored(ofWarmPool("a"))
	h.claim.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted
	h.claim.Status.Sandboxes, h.claim.Status.ClaimedReplicas = []v1alpha1.ClaimedSandbox{{Name: "box", UID: "box-uid"}}, 1
	meta.SetStatusCondition(&h.claim.Status.Conditions, metav1.Condition{Type: v1alpha1.ClaimConditionCompleted, Status: metav1.ConditionTrue, Reason: "Because"})
	h.box = &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "box", UID: "box-uid", ResourceVersion: "5", Labels: map[string]string{v1alpha1.LabelClaimName: "mine"},
		Annotations: map[string]string{v1alpha1.AnnotationOwner: "claim-uid", v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup},
	}}
	h.claims["mine"], h.sandboxes["box"] = h.claim, h.box
	h.begin = func() Txn {
		return &slip{commit: func(s *slip) error {
			if h.conflict != nil {
				return h.conflict
			}
			h.wrote = append(h.wrote, s.claim)
			return nil
		}}
	}
	return h
}

// reconcileDue reconciles the claims that are due.
func (h *healing) reconcileDue() {
	for h.reconciler.Queue.Len() > 0 {
		h.reconciler.Next(h.Context())
	}
}

func (h *healing) known() bool {
	return h.rebinder.NamespaceOf(h.claim.UID) != ""
}

// TestHealer: a claim is opened again when it has lost its sandbox, whatever shows that, and
// only then; by the server whose work it is; and not at once again.
func TestHealer(t *testing.T) {
	gone := func(h *healing) { delete(h.sandboxes, "box") }
	missing := func(h *healing) *v1alpha1.SandboxClaim {
		meta.SetStatusCondition(&h.claim.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ClaimConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSandboxMissing})
		return h.claim
	}
	tests := map[string]struct {
		event  func(h *healing)
		opened int
		known  bool
	}{
		"its sandbox is gone": {func(h *healing) { gone(h); h.Feeds.SandboxDeleted(h.box) }, 1, false},
		"its sandbox is being deleted": {func(h *healing) {
			h.box.DeletionTimestamp = &metav1.Time{Time: h.clock.Now()}
			h.Feeds.SandboxChanged(h.box)
		}, 1, false},
		"its sandbox is another's": {func(h *healing) {
			h.box.Annotations[v1alpha1.AnnotationOwner] = "other"
			h.Feeds.ClaimChanged(missing(h))
		}, 1, false},
		"it says so, and is wrong":    {func(h *healing) { h.Feeds.ClaimChanged(missing(h)) }, 0, false},
		"a list, and it is gone":      {func(h *healing) { gone(h); h.Feeds.ClaimsListed([]*v1alpha1.SandboxClaim{h.claim}, 9) }, 1, false},
		"a list, and all is well":     {func(h *healing) { h.Feeds.ClaimsListed([]*v1alpha1.SandboxClaim{h.claim}, 9) }, 0, false},
		"its sandbox changes":         {func(h *healing) { h.Feeds.SandboxChanged(h.box) }, 0, false},
		"the claim is gone as well":   {func(h *healing) { gone(h); delete(h.claims, "mine"); h.Feeds.SandboxDeleted(h.box) }, 0, false},
		"the claim is another":        {func(h *healing) { gone(h); h.claim.UID = "new"; h.Feeds.SandboxDeleted(h.box) }, 0, false},
		"another server's work":       {func(h *healing) { gone(h); h.othersWork(); h.Feeds.SandboxDeleted(h.box) }, 0, true},
		"it was opened a moment ago":  {func(h *healing) { gone(h); h.openedBefore(time.Second); h.Feeds.SandboxDeleted(h.box) }, 0, true},
		"it was opened some time ago": {func(h *healing) { gone(h); h.openedBefore(2 * time.Minute); h.Feeds.SandboxDeleted(h.box) }, 1, false},
		"the claim changes meanwhile": {func(h *healing) { gone(h); h.conflict = &etcdtxn.ConflictError{}; h.Feeds.SandboxDeleted(h.box) }, 0, true},
		"etcd is away for the moment": {func(h *healing) { gone(h); h.conflict = errDown; h.Feeds.SandboxDeleted(h.box) }, 0, true},
		"a sandbox of our own API": {func(h *healing) {
			gone(h)
			delete(h.box.Annotations, v1alpha1.AnnotationAPI)
			h.Feeds.SandboxDeleted(h.box)
		}, 0, false},
		"the claim cannot be read now": {func(h *healing) { gone(h); h.unreadable = "mine"; h.Feeds.SandboxDeleted(h.box) }, 0, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHealing(t)
			tc.event(h)
			h.reconcileDue()
			if len(h.wrote) != tc.opened || h.known() != tc.known {
				t.Fatalf("opened %d times, known: %v", len(h.wrote), h.known())
			}
			for _, claim := range h.wrote {
				if claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming || len(claim.Status.Sandboxes) > 0 || meta.IsStatusConditionTrue(claim.Status.Conditions, v1alpha1.ClaimConditionCompleted) {
					t.Errorf("it becomes %+v", claim.Status)
				}
			}
		})
	}
}

// TestHealerReadsLittle: a list of claims that are well costs no read of a claim each.
func TestHealerReadsLittle(t *testing.T) {
	h := newHealing(t)
	h.Feeds.ClaimsListed([]*v1alpha1.SandboxClaim{h.claim}, 9)
	h.reconcileDue()
	if n := h.read["claim mine"]; n > 0 {
		t.Errorf("it is read %d times", n)
	}
}

// TestHealerGoesOn: what could not be written is written later, and what is another server's
// when that is gone.
func TestHealerGoesOn(t *testing.T) {
	for name, tc := range map[string]struct{ hinder, free func(h *healing) }{
		"a conflict": {func(h *healing) { h.conflict = errors.Join(errDown) }, func(h *healing) { h.conflict = nil }},
		"another server": {func(h *healing) { h.othersWork() }, func(h *healing) {
			h.MembersChanged("me", nil)
		}},
		"a rest": {func(h *healing) { h.openedBefore(time.Second) }, func(*healing) {}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHealing(t)
			delete(h.sandboxes, "box")
			tc.hinder(h)
			h.Feeds.SandboxDeleted(h.box)
			h.reconcileDue()
			if len(h.wrote) > 0 {
				t.Fatal("it is opened")
			}
			tc.free(h)
			h.stepUntil(time.Second, func() bool {
				h.reconcileDue()
				return len(h.wrote) == 1
			})
		})
	}
}

// othersWork makes the claim the work of another server.
func (h *healing) othersWork() {
	none := func(string, string) bool { return false }
	h.reconciler.SetPreference(none)
}

// openedBefore is how long ago the claim, which is old, was opened again.
func (h *healing) openedBefore(ago time.Duration) {
	h.claim.CreationTimestamp = metav1.NewTime(h.clock.Now().Add(-24 * time.Hour))
	h.claim.Status.ClaimStartTime = &metav1.Time{Time: h.clock.Now().Add(-ago)}
}

// TestClaimIsOpenedAgainWhileItIsForgotten: a claim that has ended may be open again before
// the work on it has.
func TestClaimIsOpenedAgainWhileItIsForgotten(t *testing.T) {
	d := newDesk(t, setOf("a", "py"))
	next := d.nextAttempt(ofWarmPool("a"))
	uid := next.state.Claim.UID
	for phase, stays := range map[v1alpha1.SandboxClaimPhase]bool{v1alpha1.SandboxClaimPhaseClaiming: true, v1alpha1.SandboxClaimPhaseCompleted: false} {
		claim := next.state.Claim.DeepCopy()
		claim.Status.Phase, claim.ResourceVersion = phase, "99"
		d.finisher.unfinished.adopt(claim, false)
		u := d.finisher.unfinished.of(uid)
		u.setClaim(claim)
		d.finisher.unfinished.forget(u, uid)
		if now := d.finisher.unfinished.of(uid); (now != nil) != stays {
			t.Errorf("%s: is it known: %t", phase, now != nil)
		} else if now != nil {
			now.setClaim(ended(claim))
			d.finisher.unfinished.forget(now, uid)
		}
	}
}

// ended is a claim at its end.
func ended(claim *v1alpha1.SandboxClaim) *v1alpha1.SandboxClaim {
	next := claim.DeepCopy()
	next.Status.Phase, next.ResourceVersion = v1alpha1.SandboxClaimPhaseCompleted, "100"
	return next
}
