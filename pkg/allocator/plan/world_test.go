// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

var errModel = errors.New("no template")

// world is a claim, what there is for it, and a caller of the planner that finds it as
// the allocator does. What happens is drawn from data.
type world struct {
	testing.TB
	data []byte

	now       time.Time
	claim     *v1alpha1.SandboxClaim
	stored    bool
	start     time.Time
	sandboxes map[string]*v1alpha1.Sandbox
	eligible  claims.Eligible
	// broken: sandboxes cannot be made. disallowed: they must not be.
	broken, disallowed bool
	// bad: the claim, which is one of agent-sandbox, asks for metadata that it cannot have.
	bad   bool
	names int

	// What the caller remembers: sandboxes that were made and not written, how many fit
	// into a transaction, why the claim gets no more, and until when none are made.
	made    []*v1alpha1.Sandbox
	room    int
	refused *RefusedError
	pause   time.Time
	// results are how the setups ended that this caller began, and mark is what it marks
	// mounts with. mounted are sandboxes that were mounted into.
	results map[types.UID]SetupResult
	mark    string
	marks   int
	mounted map[string]bool
	// fit is how many sandboxes do fit.
	fit int

	// What is checked: sandboxes that counted, those that never may, and if a client
	// rewrote the status.
	counted, gone map[string]bool
	rewritten     bool
}

// draw returns a number below n.
func (w *world) draw(n int) int {
	if len(w.data) == 0 {
		return 0
	}
	b := w.data[0]
	w.data = w.data[1:]
	return int(b) % n
}

func (w *world) chance(oneIn int) bool { return w.draw(oneIn) == oneIn-1 }

func newWorld(t testing.TB, data []byte) *world {
	w := &world{
		TB: t, data: data, now: birth.Add(300 * time.Millisecond), sandboxes: map[string]*v1alpha1.Sandbox{}, eligible: served(),
		counted: map[string]bool{}, gone: map[string]bool{}, mark: "me/0", mounted: map[string]bool{},
	}
	replicas := int32(1 + w.draw(6))
	w.claim = claimOf(func(c *v1alpha1.SandboxClaim) {
		c.Spec.Replicas = &replicas
		if w.chance(2) {
			c.Spec.Allocation = v1alpha1.AllocationAllOrNothing
		}
		c.Spec.CreateOnNoStock = new(w.chance(2))
		if w.chance(3) {
			c.Spec.OnShortage = v1alpha1.ShortageFail
		}
		if w.chance(3) {
			c.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
		}
		c.Spec.ReserveFailedSandbox = w.chance(3)
		c.Spec.SkipInitRuntime = w.chance(3)
		if w.chance(3) {
			withMounts(c)
		}
		if w.chance(4) {
			c.Spec.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: "b"}}
		}
		if w.chance(2) {
			inPlace(c)
		}
		c.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Duration(20+w.draw(60)) * time.Second}
		c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: time.Duration(5+w.draw(40)) * time.Second}
	})
	w.room, w.fit, w.start = 1+w.draw(8), 127, w.now
	if claims.AllOrNothing(w.claim) {
		w.room = max(w.room, int(replicas)) // which validation sees to
	}
	if w.chance(4) {
		w.fit = 1 + w.draw(6)
	}
	for range w.draw(8) {
		w.stock()
	}
	return w
}

func (w *world) stock() {
	w.names++
	sb := stocked(fmt.Sprintf("s%03d", (w.names*37)%1000)) // in no order
	if w.names%2 == 0 {
		hasRuntime(sb)
	}
	w.sandboxes[sb.Name] = sb
}

// isHeld reports whether a sandbox names the claim as its owner.
func isHeld(sb *v1alpha1.Sandbox) bool {
	return sb.Annotations[v1alpha1.AnnotationOwner] == "claim-uid"
}

// those returns the sandboxes that are like that, in the order of their names.
func (w *world) those(are func(*v1alpha1.Sandbox) bool) []*v1alpha1.Sandbox {
	all := slices.SortedFunc(maps.Values(w.sandboxes), func(a, b *v1alpha1.Sandbox) int { return cmp.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(all, func(sb *v1alpha1.Sandbox) bool { return !are(sb) })
}

// change changes one of the sandboxes that are like that, if there is one.
func (w *world) change(are func(*v1alpha1.Sandbox) bool, how func(*v1alpha1.Sandbox)) {
	if some := w.those(are); len(some) > 0 {
		sb := some[w.draw(len(some))].DeepCopy()
		how(sb)
		w.sandboxes[sb.Name] = sb
	}
}

func isLive(sb *v1alpha1.Sandbox) bool { return isHeld(sb) && sb.DeletionTimestamp == nil }

func startsStill(sb *v1alpha1.Sandbox) bool { return isLive(sb) && IsStarting(sb) }

// happens lets something happen.
func (w *world) happens() {
	switch w.draw(22) {
	case 0, 1, 2:
		w.stock()
	case 3, 4:
		w.change(startsStill, w.becomesReady)
	case 5:
		for range w.those(startsStill) {
			w.change(startsStill, w.becomesReady)
		}
	case 6:
		w.change(startsStill, func(sb *v1alpha1.Sandbox) {
			sb.Status.Phase = []v1alpha1.SandboxPhase{v1alpha1.SandboxFailed, v1alpha1.SandboxSucceeded, v1alpha1.SandboxTerminating}[w.draw(3)]
		})
	case 7: // a user deletes one, or it is gone
		w.change(isHeld, func(sb *v1alpha1.Sandbox) { sb.DeletionTimestamp = &metav1.Time{Time: w.now} })
		for _, sb := range w.those(func(sb *v1alpha1.Sandbox) bool { return sb.DeletionTimestamp != nil }) {
			if w.chance(2) {
				delete(w.sandboxes, sb.Name)
			}
		}
	case 8: // a user keeps one for debugging
		w.change(isLive, func(sb *v1alpha1.Sandbox) {
			w.gone[sb.Name] = w.gone[sb.Name] || IsStarting(sb)
			sb.Labels[v1alpha1.LabelReservedFailedSandbox] = "true"
		})
	case 9:
		w.change(isLive, func(sb *v1alpha1.Sandbox) {
			setReady(sb, []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}[w.draw(2)])
		})
	case 10:
		w.rewrite()
	case 11:
		w.broken = !w.broken
	case 12:
		w.disallowed = !w.disallowed
	case 13:
		if w.eligible.Problem == nil {
			w.eligible = claims.Eligible{Problem: &claims.Problem{Reason: v1alpha1.ReasonSandboxSetNotFound, Message: "SandboxSet pool not found"}}
		} else {
			w.eligible = served()
		}
	case 14:
		w.fit = 1 + w.draw(8)
	case 15, 16, 17:
		w.setsUp()
	case 18: // another server, or this one after a restart, continues
		w.marks++
		w.mark, w.results = fmt.Sprintf("me/%d", w.marks), nil
	default:
		w.now = w.now.Add(time.Duration(w.draw(10_000)) * time.Duration(1+w.draw(20)) * time.Millisecond)
	}
}

// becomesReady lets a sandbox become ready.
func (w *world) becomesReady(sb *v1alpha1.Sandbox) {
	becomeReady(sb)
	if meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate) != nil {
		setResized(sb, []string{"", "no room"}[w.draw(2)])
	}
	if inplace.GoalOf(sb).Image && w.chance(2) {
		lacksImage(sb)
	}
}

// setsUp lets some of the calls end that can have begun.
func (w *world) setsUp() {
	s := w.state()
	for _, sb := range s.ToSetUp() {
		if claims.Mounts(w.claim) {
			if sb.Annotations[v1alpha1.AnnotationMounting] != w.mark {
				w.Errorf("%s is mounted into without a mark", sb.Name)
			}
			if w.mounted[sb.Name] {
				w.Errorf("%s is mounted into twice", sb.Name)
			}
			w.mounted[sb.Name] = true
		}
		if w.results == nil {
			w.results = map[types.UID]SetupResult{}
		}
		w.results[sb.UID] = SetupResult{}
		if w.chance(3) {
			w.results[sb.UID] = SetupResult{Failed: noInit}
		}
	}
}

// rewrite lets a client write the claim's status.
func (w *world) rewrite() {
	if !w.stored {
		return
	}
	w.rewritten = true
	next := w.claim.DeepCopy()
	status := &next.Status
	switch w.draw(6) {
	case 0:
		*status = v1alpha1.SandboxClaimStatus{}
	case 1:
		status.Sandboxes = status.Sandboxes[:w.draw(1+len(status.Sandboxes))]
	case 2:
		status.ClaimedReplicas = int32(w.draw(8))
	case 3:
		status.Phase, status.CompletionTime = v1alpha1.SandboxClaimPhaseClaiming, nil
	case 4:
		status.Conditions, status.Message = nil, "mine"
	case 5:
		status.ClaimStartTime = &metav1.Time{Time: w.now.Truncate(time.Second)}
	}
	w.claim = next
}

// state is what is known now.
func (w *world) state() State {
	s := State{
		Claim: w.claim, New: !w.stored, Start: w.start, Held: w.those(isHeld), Eligible: w.eligible,
		Refused: w.refused, Room: w.room, Making: Making{Allowed: !w.now.Before(w.pause)}, Now: w.now,
		Setups: Setups{Results: w.results, Mounting: w.mark, Servers: []string{"me"}},
	}
	if w.bad {
		s.Refused = badMetadata
	}
	if w.stored && claims.Continuous(w.claim) && w.claim.Status.ObservedGeneration != w.claim.Generation && len(s.Held) > 0 {
		s.Metadata.Report = w.brought()
	}
	if w.disallowed && NeedsModel(&s) {
		s.Refused = &RefusedError{Reason: v1alpha1.ReasonEnvVarsInjectionRejected, Message: "not allowed"}
	}
	return s
}

// candidateFor is a sandbox of the stock as it is to be bound, always the same of a sandbox.
func candidateFor(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) *Candidate {
	c := &Candidate{Sandbox: sb, Template: templateFor(claim), Lock: "lock"}
	switch sb.Name[2] {
	case '0', '1':
		c.Resize = true
	case '2', '3':
		c.ResizeFailed = errors.New("no goal")
	case '4', '5', '6':
		c.InPlace.Image = claim.Spec.InplaceUpdate != nil
	}
	return c
}

// find is what is found for a claim; ok is false where it is rather not stored.
func (w *world) find(a *Assessment, marks *Marks) (o Offer, ok bool) {
	needs := a.Needs()
	if needs.Explain && w.broken {
		return Offer{Broken: errModel}, true
	}
	if needs.Take == 0 {
		return Offer{}, true
	}
	var stock []*v1alpha1.Sandbox
	if len(a.State.Eligible.Pools) > 0 {
		stock = w.those(func(sb *v1alpha1.Sandbox) bool { return claims.Available(sb, w.now) })
	}
	if a.IsTrial() && len(stock) > 0 {
		a.SkipTrial(candidateFor(a.State.Claim, stock[0]))
		needs = a.Needs()
	}
	if needs.Make && w.broken {
		o.Broken = errModel
		if a.State.FailsOnShortage() {
			needs.Take = a.Missing()
		}
	}
	makes := needs.Make && !w.broken
	if claims.Continuous(a.State.Claim) {
		return w.findOfAgent(a, marks, stock, o, makes), true
	}
	if claims.AllOrNothing(a.State.Claim) && !makes && len(stock) < needs.Take {
		stock = nil
	}
	for _, sb := range stock[:min(len(stock), needs.Take)] {
		o.Candidates = append(o.Candidates, *candidateFor(a.State.Claim, sb))
	}
	if !makes && a.State.FailsOnShortage() && len(o.Candidates) < needs.Take {
		return Offer{}, false
	}
	for makes && len(o.Candidates)+len(w.made) < needs.Take {
		w.names++
		name := fmt.Sprintf("f%03d", (w.names*37)%1000)
		model := stocked("model")
		model.Spec.Template = templateFor(a.State.Claim)
		if w.names%2 == 0 {
			hasRuntime(model)
		}
		sb, err := marks.NewSandbox(model, nil, name, types.UID(name), "lock", w.now)
		if err != nil {
			w.Fatal(err)
		}
		w.made = append(w.made, sb)
	}
	o.Made = slices.Clone(w.made)
	return o, true
}

// tooLarge reports whether a plan does not fit, and what the caller makes of that.
func (w *world) tooLarge(p *Plan) bool {
	switch all, _ := p.Sandboxes(); {
	case len(all) <= w.fit:
		return false
	case p.CanSplit():
		w.room = w.fit
	default:
		w.refused = &RefusedError{Reason: v1alpha1.ReasonTooLarge, Message: "too large"}
	}
	return true
}

// write makes the plan the state.
func (w *world) write(p *Plan) {
	all, _ := p.Sandboxes()
	for _, sb := range all {
		w.sandboxes[sb.Name] = sb
	}
	w.made = w.made[min(len(w.made), len(p.Made)):]
	for _, sb := range p.Released {
		w.gone[sb.Name] = true
	}
	if len(p.Released) > 0 {
		w.pause = w.now.Add(3 * time.Second)
	}
	for _, entry := range p.Claim.Status.Sandboxes {
		w.counted[entry.Name] = true
	}
	w.claim, w.stored = p.Claim, true
}
