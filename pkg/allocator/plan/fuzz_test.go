// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// FuzzPlan looks for a sequence of events after which a plan is not true.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(dataOf(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data)%2 == 0 {
			newWorld(t, data).run()
		} else {
			newAgentWorld(t, data).runAgent()
		}
	})
}

func TestRandomSequences(t *testing.T) {
	for seed := range uint64(1000) {
		newWorld(t, dataOf(seed)).run()
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func dataOf(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	data := make([]byte, 40+r.IntN(300))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// run lets things happen, plans after each, and then lets the claim's time run out.
func (w *world) run() {
	for len(w.data) > 0 && !w.Failed() {
		if w.stored || w.chance(2) {
			w.happens()
		}
		if claims.Unfinished(w.claim) && w.chance(2) {
			w.settles()
		}
	}
	if !w.stored || w.Failed() {
		return
	}
	if until := Deadline(w.claim, w.start); w.now.Before(until) {
		w.now = until
	}
	most := len(w.those(isHeld)) + 3
	for n := 0; claims.Unfinished(w.claim) && !w.Failed(); n++ {
		if n == most {
			w.Fatalf("continues after %d plans past its time: %+v", n, w.claim.Status)
		}
		w.turn(false)
	}
}

// settles plans until there is nothing more to write.
func (w *world) settles() {
	most := len(w.those(isHeld)) + claims.Replicas(w.claim) + 4
	for n := 0; !w.Failed() && claims.Unfinished(w.claim); n++ {
		lost := w.chance(4)
		if lost {
			n--
		}
		p, written := w.turn(lost)
		if p == nil || !p.Changes() {
			return
		}
		if !written && w.chance(2) {
			return // the next plan is made from what happens until then
		}
		if n == most {
			w.Fatalf("does not settle: %+v", p.Claim.Status)
		}
	}
}

// turn makes a plan, checks it, and writes it unless it is lost. It returns nil if the
// claim is rather not stored.
func (w *world) turn(lost bool) (p *Plan, written bool) {
	w.Helper()
	p = w.plan()
	if p == nil || !p.Changes() || lost || w.tooLarge(p) {
		return p, false
	}
	s := w.state()
	w.write(p)
	all, _ := p.Sandboxes()
	if p.Ends() {
		if left := w.those(func(sb *v1alpha1.Sandbox) bool {
			return isHeld(sb) && isOnTheWay(sb)
		}); len(left) > 0 {
			w.Errorf("the claim has ended and holds %s, which is starting", left[0].Name)
		}
		return p, true
	}
	// There is something new where all or nothing begins again, where the template is
	// asked because what was on its way has been released, and where the first sandbox with
	// the image of the claim counts.
	news := claims.AllOrNothing(w.claim) && len(p.Released) > 0 || s.Refused == nil && w.state().Refused != nil ||
		asksForImage(w.claim) && len(p.Bound) > 0
	if len(all) < s.Room-1 && !news { // a new claim leaves room for a guard
		if again := w.plan(); again != nil && again.Changes() {
			w.Errorf("writes again with nothing new:\n%s", cmp.Diff(shown(p), shown(again)))
		}
	}
	return p, true
}

// plan makes a plan of the state and checks it.
func (w *world) plan() *Plan {
	w.Helper()
	s := w.state()
	marks, err := NewMarks(s.Claim)
	if err != nil {
		w.Fatal(err)
	}
	if s.New && s.Refused != nil {
		return nil
	}
	before, held := s.Claim.DeepCopy(), deepCopies(s.Held)
	a := Assess(s)
	offer, ok := w.find(a, marks)
	if !ok {
		return nil
	}
	s.Making.Name = a.State.Making.Name // was found with the offer
	p, err := a.Next(offer, marks)
	if err != nil {
		w.Fatal(err)
	}
	w.check(&s, &offer, p)
	if !apiequality.Semantic.DeepEqual(before, s.Claim) || !apiequality.Semantic.DeepEqual(held, s.Held) {
		w.Error("the plan changes what it was made from")
	}
	// A dry run is a plan from the same offer.
	same := Assess(s)
	if same.IsTrial() && len(offer.Candidates) > 0 {
		same.SkipTrial(&offer.Candidates[0])
	}
	if dry, err := same.Next(offer, marks); err != nil || !apiequality.Semantic.DeepEqual(shown(p), shown(dry)) {
		w.Errorf("another plan from the same differs: %v\n%s", err, cmp.Diff(shown(p), shown(dry)))
	}
	return p
}

func deepCopies(all []*v1alpha1.Sandbox) []*v1alpha1.Sandbox {
	copies := make([]*v1alpha1.Sandbox, 0, len(all))
	for _, sb := range all {
		copies = append(copies, sb.DeepCopy())
	}
	return copies
}

// shown is what of a plan is seen outside.
func shown(p *Plan) any {
	all, existing := p.Sandboxes()
	return []any{p.Claim, all, existing, p.Wants}
}

// check checks what is true of every plan.
func (w *world) check(s *State, o *Offer, p *Plan) {
	w.Helper()
	all, existing := p.Sandboxes()
	replicas, status := claims.Replicas(s.Claim), &p.Claim.Status
	// All or nothing may be too large for a transaction, and is not cut.
	cut := len(all)
	if claims.AllOrNothing(s.Claim) {
		cut = len(p.Released)
	}
	if cut > s.Room || existing != len(all)-len(p.Made) {
		w.Errorf("changes %d sandboxes, there is room for %d", cut, s.Room)
	}
	if p.Ends() != (status.CompletionTime != nil && status.Phase == v1alpha1.SandboxClaimPhaseCompleted) {
		w.Errorf("ends: %t, %+v", p.Ends(), status)
	}
	if !p.Ends() && !p.Until.After(s.Now) && !p.ChangesSandboxes() {
		w.Errorf("continues until %v, now is %v", p.Until, s.Now)
	}
	if !p.Ends() && int(status.ClaimedReplicas) >= replicas && !p.ChangesSandboxes() {
		w.Errorf("continues with %d of %d", status.ClaimedReplicas, replicas)
	}
	if have := replicas - int(status.ClaimedReplicas); p.Wants.Need < 0 || p.Wants.Need > max(0, have) || p.Ends() && p.Wants.Need > 0 {
		w.Errorf("waits for %d and lacks %d", p.Wants.Need, have)
	}
	after := make(map[string]*v1alpha1.Sandbox, len(s.Held)+len(all))
	for _, sb := range s.Held {
		after[sb.Name] = sb
	}
	for _, sb := range p.Marked {
		if was := after[sb.Name]; was == nil || !IsStarting(was) || !IsStarting(sb) || was.Annotations[v1alpha1.AnnotationMounting] != "" {
			w.Errorf("%s is marked", sb.Name)
		}
	}
	for _, some := range [][]*v1alpha1.Sandbox{p.Released, p.Counted} {
		for _, sb := range some {
			if was := after[sb.Name]; was == nil || !IsStarting(was) || IsStarting(sb) {
				w.Errorf("%s was not starting, or still is", sb.Name)
			}
		}
	}
	for _, sb := range p.Counted {
		// One that has ended is a claim of agent-sandbox's as it is.
		if progress := beforeSetup(after[sb.Name], s.Now); progress != Done && (progress != Failed || !claims.Continuous(s.Claim)) {
			w.Errorf("%s counts, and is not ready", sb.Name)
		}
	}
	for _, sb := range slices.Concat(p.Counted, p.Bound) {
		result, ended := s.Setups.Results[sb.UID]
		if !IsStarting(sb) && !s.Claim.Spec.SkipInitRuntime && podtemplate.HasAgentRuntime(sb) && (!ended || result.Failed != nil) {
			w.Errorf("%s counts, and is not set up", sb.Name)
		}
	}
	onTheWay := 0
	for _, sb := range slices.Concat(s.Held, p.Bound, p.Made) {
		if isOnTheWay(sb) {
			onTheWay++
		}
	}
	if most := mayFail(s.Claim); !w.rewritten && len(p.Bound)+len(p.Made) > 0 &&
		int(status.FailedReplicas)+onTheWay-len(p.Released)-len(p.Counted) > most {
		w.Errorf("has %d on the way, of which %d failed before, and %d may fail", onTheWay, status.FailedReplicas, most)
	}
	for i, sb := range slices.Concat(p.Bound, p.Made) {
		switch was := w.sandboxes[sb.Name]; {
		case i < len(p.Bound) && (was == nil || isHeld(was) || o.Candidates[i].Sandbox.Name != sb.Name):
			w.Errorf("%s is bound, and was not in the pool", sb.Name)
		case i >= len(p.Bound) && was != nil:
			w.Errorf("%s is made, and was there", sb.Name)
		}
		if !isHeld(sb) || sb.Annotations[v1alpha1.AnnotationClaimTimestamp] == "" {
			w.Errorf("%s is not the claim's", sb.Name)
		}
	}
	changed := map[string]bool{}
	for _, sb := range all {
		if changed[sb.Name] {
			w.Errorf("%s changes twice", sb.Name)
		}
		changed[sb.Name], after[sb.Name] = true, sb
	}
	w.checkStatus(s, p, after)
}

// checkStatus checks that the claim's status is what its sandboxes will be.
func (w *world) checkStatus(s *State, p *Plan, after map[string]*v1alpha1.Sandbox) {
	w.Helper()
	replicas, status := claims.Replicas(s.Claim), &p.Claim.Status
	n := int(status.ClaimedReplicas)
	if n < len(status.Sandboxes) || !w.rewritten && (n > len(status.Sandboxes) || n > replicas) {
		w.Errorf("claimed %d of %d, listed %d", n, replicas, len(status.Sandboxes))
	}
	if claims.AllOrNothing(s.Claim) && !w.rewritten && n > 0 && n < replicas {
		w.Errorf("shows %d of %d", n, replicas)
	}
	listed := map[string]bool{}
	for _, entry := range status.Sandboxes {
		sb := after[entry.Name]
		if listed[entry.Name] || w.gone[entry.Name] || sb == nil && !w.counted[entry.Name] || sb != nil && (!isHeld(sb) || IsStarting(sb)) {
			w.Errorf("lists %s", entry.Name)
		}
		listed[entry.Name] = true
	}
	for _, sb := range after {
		state := v1alpha1.StateOf(sb, s.Now)
		if isLive(sb) && !IsStarting(sb) && !listed[sb.Name] && state == v1alpha1.StateRunning && sb.Labels[v1alpha1.LabelReservedFailedSandbox] == "" {
			w.Errorf("does not list %s", sb.Name)
		}
		if IsStarting(sb) != metav1.IsControlledBy(sb, s.Claim) && isHeld(sb) && s.Claim.Spec.ReclaimPolicy != v1alpha1.ReclaimDelete {
			w.Errorf("%s is starting: %t, and is owned by %v", sb.Name, IsStarting(sb), sb.OwnerReferences)
		}
	}
}
