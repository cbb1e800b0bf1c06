// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

var badMetadata = &RefusedError{Reason: v1alpha1.ReasonInvalidMetadata, Message: v1alpha1.InvalidMetadataMessage("team")}

// TestRandomSequencesOfAgentSandbox: whatever happens to a claim of agent-sandbox, and to what
// it has, it has one sandbox at most, comes to rest, and has one when it can.
func TestRandomSequencesOfAgentSandbox(t *testing.T) {
	for seed := range uint64(1000) {
		newAgentWorld(t, dataOf(seed)).runAgent()
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// newAgentWorld is a world with a claim of agent-sandbox, of a pool or of none.
func newAgentWorld(t testing.TB, data []byte) *world {
	w := newWorld(t, data)
	cold, env, skips := w.chance(2), w.chance(4), w.chance(2)
	w.claim, w.room, w.fit = claimOf(func(c *v1alpha1.SandboxClaim) {
		fromAgents(c)
		c.Spec.SkipInitRuntime = skips
		if env {
			c.Spec.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: "b"}}
		}
		c.CreationTimestamp = metav1.NewTime(w.now)
	}), 127, 127
	if cold {
		w.sandboxes = map[string]*v1alpha1.Sandbox{}
	}
	return w
}

// findOfAgent adds to an offer what is found for a claim of agent-sandbox, for which one
// sandbox is made, of its name.
func (w *world) findOfAgent(a *Assessment, marks *Marks, stock []*v1alpha1.Sandbox, o Offer, makes bool) Offer {
	if len(stock) > 0 && !v1alpha1.NeedsFresh(&a.State.Claim.Spec) {
		o.Candidates = []Candidate{{Sandbox: stock[0], Template: stock[0].Spec.Template, Lock: "lock"}}
		return o
	}
	if !makes {
		return o
	}
	if other := w.sandboxes[a.State.Claim.Name]; other != nil {
		a.State.Making.Name = NameTaken
		if other.DeletionTimestamp != nil {
			a.State.Making.Name = NameLeaving
		}
		return o
	}
	w.names++
	model := stocked("model")
	if w.names%2 == 0 {
		hasRuntime(model)
	}
	sb, err := marks.NewSandbox(model, nil, a.State.Claim.Name, types.UID(fmt.Sprintf("uid-%d", w.names)), "lock", w.now)
	if err != nil {
		w.Fatal(err)
	}
	delete(w.gone, sb.Name) // which is another one
	o.Made = []*v1alpha1.Sandbox{sb}
	return o
}

// runAgent lets things happen, plans and heals after each, and then lets the claim have what it
// can have.
func (w *world) runAgent() {
	for len(w.data) > 0 && !w.Failed() {
		if w.stored || w.chance(2) {
			w.happensToAgent()
		}
		if claims.Unfinished(w.claim) && w.chance(2) {
			w.settles()
		}
		w.checkAgent()
	}
	if !w.stored || w.Failed() {
		return
	}
	w.broken, w.disallowed, w.eligible = false, false, served()
	w.edits(false)
	for _, sb := range w.those(func(sb *v1alpha1.Sandbox) bool {
		return sb.DeletionTimestamp != nil || sb.Name == w.claim.Name && !isLive(sb)
	}) {
		delete(w.sandboxes, sb.Name)
	}
	w.change(func(sb *v1alpha1.Sandbox) bool { return sb.Name == w.claim.Name && v1alpha1.IsReservedFailed(sb) }, func(sb *v1alpha1.Sandbox) {
		delete(sb.Labels, v1alpha1.LabelReservedFailedSandbox) // or the name stays taken
		w.gone[sb.Name] = false
	})
	for range 20 { // more than may fail
		w.now = w.now.Add(2 * time.Minute)
		w.heals()
		if claims.Unfinished(w.claim) {
			w.settles()
		}
		for range w.those(startsStill) {
			w.change(startsStill, becomeReady)
		}
		w.setsUpWell()
		w.checkAgent()
	}
	if own := w.sandboxes[claims.AgentSandbox(w.claim)]; claims.Unfinished(w.claim) || HasLostSandbox(w.claim, own) {
		w.Errorf("it could have a sandbox, and has %v: %+v", own != nil, w.claim.Status)
	}
}

// setsUpWell lets all calls end well that can have begun.
func (w *world) setsUpWell() {
	s := w.state()
	for _, sb := range s.ToSetUp() {
		if w.results == nil {
			w.results = map[types.UID]SetupResult{}
		}
		w.results[sb.UID] = SetupResult{}
	}
}

// happensToAgent lets something happen that happens to claims of agent-sandbox, or to all.
func (w *world) happensToAgent() {
	switch w.draw(6) {
	case 0: // its sandbox is deleted, or another's of its name is
		w.change(func(sb *v1alpha1.Sandbox) bool { return isHeld(sb) || sb.Name == w.claim.Name }, func(sb *v1alpha1.Sandbox) {
			sb.DeletionTimestamp = &metav1.Time{Time: w.now}
		})
	case 1: // what was deleted is gone
		for _, sb := range w.those(func(sb *v1alpha1.Sandbox) bool { return sb.DeletionTimestamp != nil }) {
			delete(w.sandboxes, sb.Name)
		}
	case 2:
		w.edits(!w.bad)
	case 3:
		w.heals()
	default:
		w.happens()
	}
}

// edits changes the metadata of the claim, to what it cannot have or back.
func (w *world) edits(bad bool) {
	if w.bad == bad {
		return
	}
	w.bad = bad
	next := w.claim.DeepCopy()
	next.Generation++
	w.claim = next
	if w.stored && !claims.Unfinished(w.claim) {
		w.claim = MetadataSynced(w.claim, w.brought(), w.those(isHeld), w.now)
	}
}

// brought is what comes of bringing the metadata of the claim to what it holds.
func (w *world) brought() *MetadataReport {
	if w.bad {
		return &MetadataReport{Kept: 1, Why: []string{"team"}, Invalid: true}
	}
	return &MetadataReport{Changed: 1}
}

// heals opens the claim again if it has lost its sandbox.
func (w *world) heals() {
	own := w.sandboxes[claims.AgentSandbox(w.claim)]
	if !w.stored || !CanRebind(w.claim, w.now) || !HasLostSandbox(w.claim, own) || w.now.Before(ReopenTime(w.claim)) {
		return
	}
	before := w.claim.DeepCopy()
	w.claim = Reopen(w.claim, w.now)
	switch {
	case !claims.Unfinished(w.claim) || claims.AgentSandbox(w.claim) != "":
		w.Errorf("opened again, it is %+v and names %q", w.claim.Status, claims.AgentSandbox(w.claim))
	case w.claim.UID != before.UID || w.claim.Generation != before.Generation:
		w.Error("opened again, it is another claim")
	case !w.rewritten && ReopenTime(w.claim).Before(w.now) && w.now.Sub(w.claim.CreationTimestamp.Time) > atBirth+time.Second:
		w.Errorf("it may be opened again at once, at %v", w.now)
	}
}

// checkAgent checks what is true of a claim of agent-sandbox at every moment.
func (w *world) checkAgent() {
	w.Helper()
	if !w.stored || w.rewritten {
		return
	}
	live := w.those(func(sb *v1alpha1.Sandbox) bool { return isLive(sb) && !v1alpha1.IsReservedFailed(sb) })
	if len(live) > 1 {
		w.Errorf("it has %s", namesOf(live))
	}
	ready := meta.FindStatusCondition(w.claim.Status.Conditions, v1alpha1.ClaimConditionReady)
	switch {
	case ready == nil:
		w.Error("it says nothing of being Ready")
	case ready.Status == metav1.ConditionTrue && claims.AgentSandbox(w.claim) == "":
		w.Error("it is Ready without a sandbox")
	case ready.Status == metav1.ConditionTrue && w.bad && !claims.Unfinished(w.claim) && w.claim.Status.ObservedGeneration == w.claim.Generation &&
		!HasLostSandbox(w.claim, w.sandboxes[claims.AgentSandbox(w.claim)]): // which the healer reports
		w.Error("it is Ready with metadata that it cannot have")
	}
	if listed := w.claim.Status.Sandboxes; !claims.Unfinished(w.claim) && (len(listed) != 1 || listed[0].Name != w.claim.Annotations[v1alpha1.AgentAnnotationSandboxName]) {
		w.Errorf("it is Completed, names %q and has %v", w.claim.Annotations[v1alpha1.AgentAnnotationSandboxName], listed)
	}
}
