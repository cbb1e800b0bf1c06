// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
)

// claimAt is a claim of a UID that waits, as it was stored at a resourceVersion.
func claimAt(uid types.UID, revision int, changes ...func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	claim := claimOf(nil)
	claim.UID, claim.Name, claim.ResourceVersion = uid, string(uid), strconv.Itoa(revision)
	claim.Status.Phase = v1alpha1.SandboxClaimPhaseClaiming
	for _, change := range changes {
		change(claim)
	}
	return claim
}

func completed(c *v1alpha1.SandboxClaim) {
	c.Status.Phase, c.Status.ObservedGeneration = v1alpha1.SandboxClaimPhaseCompleted, c.Generation
}

// heldAt is a sandbox that names a claim as its owner, as it was stored at a
// resourceVersion.
func heldAt(owner types.UID, name string, revision int) *v1alpha1.Sandbox {
	return &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(revision),
		Labels:      map[string]string{v1alpha1.LabelClaimName: string(owner)},
		Annotations: map[string]string{v1alpha1.AnnotationOwner: string(owner), v1alpha1.AnnotationLock: "lock"},
	}}
}

// releasedAt is one that its claim has released.
func releasedAt(name string, revision int) *v1alpha1.Sandbox { return heldAt("", name, revision) }

// TestWhatIsKnownOfAClaim: own writes and what the store was read for leave nothing to
// be read; what others write does.
func TestWhatIsKnownOfAClaim(t *testing.T) {
	tests := map[string]struct {
		happens  func(u *unfinishedClaim)
		at       string
		held     []string // and at which resourceVersion, and if it is gone
		complete bool
	}{
		"the watch reports it": {func(u *unfinishedClaim) { u.setClaim(claimAt("u", 5)) }, "5", nil, false},
		"this server wrote it": {func(u *unfinishedClaim) {
			u.setWritten(u.snapshot(), claimAt("u", 5), []*v1alpha1.Sandbox{heldAt("u", "b", 5), heldAt("u", "a", 5)})
		}, "5", []string{"a@5", "b@5"}, true},
		"the watch reports that later": {func(u *unfinishedClaim) {
			u.setWritten(u.snapshot(), claimAt("u", 5), []*v1alpha1.Sandbox{heldAt("u", "a", 5)})
			u.setClaim(claimAt("u", 5))
			u.setSandbox(heldAt("u", "a", 5))
		}, "5", []string{"a@5"}, true},
		"the watch reports it before the answer": {func(u *unfinishedClaim) {
			u.setClaim(claimAt("u", 5))
			u.setSandbox(heldAt("u", "a", 5))
			u.setWritten(u.snapshot(), claimAt("u", 5), []*v1alpha1.Sandbox{heldAt("u", "a", 5)})
		}, "5", []string{"a@5"}, true},
		"another writes it then": {func(u *unfinishedClaim) {
			u.setWritten(u.snapshot(), claimAt("u", 5), nil)
			u.setClaim(claimAt("u", 6))
		}, "6", nil, false},
		"another has written it before the answer": {func(u *unfinishedClaim) {
			u.setClaim(claimAt("u", 6))
			u.setWritten(u.snapshot(), claimAt("u", 5), []*v1alpha1.Sandbox{heldAt("u", "a", 5)})
		}, "6", []string{"a@5"}, false},
		"old events": {func(u *unfinishedClaim) {
			u.setWritten(u.snapshot(), claimAt("u", 5), nil)
			u.setClaim(claimAt("u", 4))
		}, "5", nil, true},
		"it is read": {func(u *unfinishedClaim) {
			u.setClaim(claimAt("u", 5))
			u.setHeld(u.snapshot(), []*v1alpha1.Sandbox{heldAt("u", "a", 3)})
		}, "5", []string{"a@3"}, true},
		"it changes while it is read": {func(u *unfinishedClaim) {
			u.setClaim(claimAt("u", 5))
			of := u.snapshot()
			u.setClaim(claimAt("u", 6))
			u.setHeld(of, nil)
		}, "6", nil, false},
		"a list is newer than the watch": {func(u *unfinishedClaim) {
			u.setWritten(u.snapshot(), claimAt("u", 5), []*v1alpha1.Sandbox{heldAt("u", "a", 5), heldAt("u", "b", 5)})
			u.setHeld(u.snapshot(), []*v1alpha1.Sandbox{heldAt("u", "a", 8)})
			u.setSandbox(heldAt("u", "a", 7))
		}, "5", []string{"a@8"}, true},
		"the watch is newer than a list": {func(u *unfinishedClaim) {
			u.setWritten(u.snapshot(), claimAt("u", 5), []*v1alpha1.Sandbox{heldAt("u", "a", 5), heldAt("u", "b", 5)})
			u.setSandbox(heldAt("u", "a", 8))
			u.setSandboxDeleted(heldAt("u", "b", 8))
			u.setHeld(u.snapshot(), []*v1alpha1.Sandbox{heldAt("u", "a", 5), heldAt("u", "b", 5)})
		}, "5", []string{"a@8", "b@8 gone"}, true},
		"one is gone, and made again": {func(u *unfinishedClaim) {
			u.setWritten(u.snapshot(), claimAt("u", 5), []*v1alpha1.Sandbox{heldAt("u", "a", 5)})
			u.setSandboxDeleted(heldAt("u", "a", 7))
			again := heldAt("u", "a", 8)
			again.UID = "another"
			u.setSandbox(again)
		}, "5", []string{"a@8"}, true},
		"a list of the watch comes while it is read": {func(u *unfinishedClaim) {
			u.setClaim(claimAt("u", 5))
			of := u.snapshot()
			u.markIncomplete()
			u.setHeld(of, nil)
		}, "5", nil, false},
		"or while it is written": {func(u *unfinishedClaim) {
			of := u.snapshot()
			u.markIncomplete()
			u.setWritten(of, claimAt("u", 5), nil)
		}, "5", nil, false},
		"one is let go": {func(u *unfinishedClaim) {
			u.setWritten(u.snapshot(), claimAt("u", 5), []*v1alpha1.Sandbox{heldAt("u", "a", 5), heldAt("u", "b", 5)})
			u.setWritten(u.snapshot(), claimAt("u", 7), []*v1alpha1.Sandbox{releasedAt("a", 7)})
		}, "7", []string{"b@5"}, true},
		"events may have been lost": {func(u *unfinishedClaim) {
			u.setWritten(u.snapshot(), claimAt("u", 5), []*v1alpha1.Sandbox{heldAt("u", "a", 5)})
			u.markIncomplete()
		}, "5", []string{"a@5"}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			u := newDesk(t).finisher.unfinished.newUnfinished(claimNamed("u"), newReservation())
			tc.happens(u)
			seen := u.snapshot()
			var held []string
			for _, sb := range seen.held {
				is := sb.Name + "@" + sb.ResourceVersion
				if sb.DeletionTimestamp != nil {
					is += " gone"
				}
				held = append(held, is)
			}
			if seen.claim.ResourceVersion != tc.at || !slices.Equal(held, tc.held) || seen.complete != tc.complete {
				t.Errorf("at %s, holds %v, complete %t", seen.claim.ResourceVersion, held, seen.complete)
			}
		})
	}
}

// TestClaimsListed: what is not in the list is gone, but for claims that are newer, or
// are being created.
func TestClaimsListed(t *testing.T) {
	d := newDesk(t)
	known := d.finisher.unfinished
	for _, claim := range []*v1alpha1.SandboxClaim{claimAt("gone", 5), claimAt("there", 5), claimAt("newer", 12)} {
		d.Feeds.ClaimChanged(claim)
	}
	known.open(t.Context(), claimNamed("opened"), d.clock.Now(), newReservation())
	ended := known.open(t.Context(), claimNamed("ended"), d.clock.Now(), newReservation())
	ended.setClaim(claimAt("ended", 5))
	d.woken()
	d.Feeds.ClaimsListed([]*v1alpha1.SandboxClaim{
		claimAt("there", 5), claimAt("another", 9), claimAt("done", 9, completed),
	}, 10)
	got := map[types.UID]bool{}
	for uid, u := range known.namespaces.all() {
		got[uid] = u.snapshot().deleted
	}
	want := map[types.UID]bool{"gone": true, "there": false, "newer": false, "opened": false, "ended": true, "another": false}
	if len(got) != len(want) {
		t.Errorf("knows %v", got)
	}
	for uid, deleted := range want {
		if is, there := got[uid]; !there || is != deleted {
			t.Errorf("%s is known %t, and gone %t", uid, there, is)
		}
	}
	woken := d.woken()
	if slices.Sort(woken); !slices.Equal(woken, []types.UID{"another", "ended", "gone"}) {
		t.Errorf("due: %v", woken)
	}
	if known.toWorkAt("ended") != nil {
		t.Error("works at one that is being created")
	}
	known.begin(ended, "ended")
	if known.toWorkAt("ended") != ended || len(d.woken()) != 1 {
		t.Error("does not begin")
	}
}

// TestPlaceOfAClaim is the same on the server that creates it and on others, which know
// the stored time: the wall clock may be set back between the two.
func TestPlaceOfAClaim(t *testing.T) {
	created := claimNamed("u")
	created.CreationTimestamp = metav1.NewTime(time.Now())
	stored := created.DeepCopy()
	stored.CreationTimestamp = created.CreationTimestamp.Rfc3339Copy()
	here, there := newDesk(t).finisher.unfinished, newDesk(t).finisher.unfinished
	opened := here.open(t.Context(), created, time.Now().Add(2*time.Second), newReservation()).waiter.Place
	there.adopt(stored, false)
	adopted := there.of("u").waiter.Place
	if opened.Since.String() != opened.Since.Round(0).String() || !opened.Since.Equal(adopted.Since) {
		t.Errorf("where it is created its place is of %s, elsewhere of %s", opened.Since, adopted.Since)
	}
}

// TestEventsOfAClaim: they make it due, and old ones do not.
func TestEventsOfAClaim(t *testing.T) {
	d := newDesk(t)
	feeds := d.Feeds
	expect := func(what string, want ...types.UID) {
		t.Helper()
		if got := d.woken(); !slices.Equal(got, want) {
			t.Errorf("%s: due %v, want %v", what, got, want)
		}
	}
	feeds.ClaimChanged(claimAt("done", 5, completed))
	expect("one that is at its end")
	feeds.ClaimChanged(claimAt("u", 5))
	expect("one that waits", "u")
	feeds.ClaimChanged(claimAt("u", 5))
	expect("the same again")
	feeds.ClaimChanged(claimAt("u", 6, completed))
	expect("its end", "u")
	feeds.SandboxChanged(heldAt("u", "a", 7))
	expect("a sandbox of it", "u")
	feeds.SandboxChanged(heldAt("u", "a", 7))
	feeds.SandboxChanged(heldAt("another", "b", 8))
	feeds.SandboxChanged(heldAt("", "c", 8))
	expect("the same again, and sandboxes of others")
	feeds.SandboxDeleted(heldAt("u", "a", 9))
	expect("a sandbox that is gone", "u")
	if seen := d.finisher.unfinished.of("u").snapshot(); len(seen.held) != 1 || seen.held[0].DeletionTimestamp == nil {
		t.Errorf("holds %+v", seen.held)
	}
	d.finisher.unfinished.of("u").setWritten(d.finisher.unfinished.of("u").snapshot(), claimAt("u", 10), nil)
	feeds.SandboxesListed(nil, 11)
	expect("a new picture", "u")
	if d.finisher.unfinished.of("u").snapshot().complete {
		t.Error("nothing is read after a new picture")
	}
	feeds.ClaimDeleted(claimAt("another", 12))
	feeds.ClaimDeleted(claimAt("u", 12))
	expect("it is gone", "u")
	if !d.finisher.unfinished.of("u").snapshot().deleted {
		t.Error("it is not taken for gone")
	}
}

// TestManySandboxesAreLookedAtLater: an attempt looks at all that a claim holds.
func TestManySandboxesAreLookedAtLater(t *testing.T) {
	d := newDesk(t)
	d.Feeds.ClaimChanged(claimAt("u", 5))
	d.woken()
	for i := range 9 {
		d.Feeds.SandboxChanged(heldAt("u", strconv.Itoa(i), 6))
	}
	if len(d.woken()) != 1 {
		t.Error("a few are not looked at at once")
	}
	d.Feeds.SandboxChanged(heldAt("u", "another", 6))
	if len(d.woken()) != 0 {
		t.Error("many are looked at at once")
	}
	d.stepUntil(10*perHeld, func() bool { return len(d.woken()) == 1 })
}

// TestSpacedWrites: progress and notes are written once in a while, and what the user
// waits for at once.
func TestSpacedWrites(t *testing.T) {
	set := setOf("a", "py")
	tests := map[string]struct {
		change  func(d *desk, s *plan.State)
		offer   bool
		byCount time.Duration // held back if the claim was written just now
		byNotes time.Duration // held back if it was written without progress just now
	}{
		"one more counts": {func(_ *desk, s *plan.State) { s.Held[0].Status = running() }, false, plan.ProgressInterval, plan.ProgressInterval},
		"nothing serves it": {func(d *desk, s *plan.State) {
			d.Feeds.SetDeleted(setOf("a", "py", atVersion(12)))
			s.Claim.Spec.Replicas = new(int32(2))
		}, false, 0, plan.ProgressInterval},
		"one is bound":        {func(*desk, *plan.State) {}, true, 0, 0},
		"the user changed it": {func(_ *desk, s *plan.State) { s.Claim.Generation++ }, false, 0, 0},
		"its time is up":      {func(d *desk, _ *plan.State) { d.clock.Step(time.Hour) }, false, 0, 0},
		"one has failed":      {func(_ *desk, s *plan.State) { s.Held[0].Status.Phase = v1alpha1.SandboxFailed }, false, 0, 0},
		"the rest of it counts": {func(_ *desk, s *plan.State) {
			s.Held[0].Status, s.Claim.Spec.Replicas = running(), new(int32(1))
		}, false, 0, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, set)
			d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
			if tc.offer {
				d.stocks("one", set, pods)
			}
			next := d.nextAttempt(warm(3))
			s := &next.state
			s.Held = []*v1alpha1.Sandbox{startingFor(t, s.Claim, "made", d.clock.Now()), startingFor(t, s.Claim, "too", d.clock.Now())}
			tc.change(d, s)
			p := d.planned(next)
			if !p.Changes() {
				t.Fatal("changes nothing")
			}
			now := d.clock.Now()
			counted, noted := newWork(newReservation()), newWork(newReservation())
			counted.wroteAt = now
			noted.noteWrite(&plan.Plan{Claim: s.Claim}, now)
			if got := counted.holdBack(p, now); got != tc.byCount {
				t.Errorf("held back for %s after a write", got)
			}
			if got := noted.holdBack(p, now); got != tc.byNotes {
				t.Errorf("held back for %s after a note", got)
			}
			if got := newWork(newReservation()).holdBack(p, now); got != 0 {
				t.Errorf("held back for %s though nothing was written", got)
			}
			if later := now.Add(plan.ProgressInterval); counted.holdBack(p, later)+noted.holdBack(p, later) != 0 {
				t.Error("held back for too long")
			}
		})
	}
}

// TestNotesBecomeRarer until something happens.
func TestNotesBecomeRarer(t *testing.T) {
	w, now := newWork(newReservation()), birth
	note := &plan.Plan{Claim: claimAt("u", 5)}
	binds := &plan.Plan{Claim: claimAt("u", 5), Bound: []*v1alpha1.Sandbox{{}}}
	var pauses []time.Duration
	for _, p := range []*plan.Plan{note, note, note, note, note, note, binds, note} {
		w.noteWrite(p, now)
		pauses = append(pauses, max(0, w.notes.Until.Sub(now)))
		now = now.Add(time.Minute)
	}
	want := []time.Duration{500, 1000, 2000, 4000, 5000, 5000, 0, 500}
	for i := range want {
		want[i] *= time.Millisecond
	}
	if !slices.Equal(pauses, want) {
		t.Errorf("notes are apart by %v, want %v", pauses, want)
	}
}

// TestWhatMayHelp a claim that waits: a set that may serve it, or did, and anything if
// it is stuck.
func TestWhatMayHelp(t *testing.T) {
	u := newDesk(t).finisher.unfinished.newUnfinished(claimNamed("u"), newReservation())
	if u.canBeHelpedBy(setOf("pool", "")) {
		t.Error("helps one of which nothing is known")
	}
	u.setClaim(claimAt("u", 5))
	tests := map[string]struct {
		sets    []*v1alpha1.SandboxSet
		want    bool
		ifStuck bool
	}{
		"the set it names":               {[]*v1alpha1.SandboxSet{nil, setOf("pool", "")}, true, true},
		"a set of the template it names": {[]*v1alpha1.SandboxSet{setOf("a", "pool")}, true, true},
		"one that was":                   {[]*v1alpha1.SandboxSet{setOf("a", "pool"), setOf("a", "other")}, true, true},
		"another set":                    {[]*v1alpha1.SandboxSet{setOf("a", "other")}, false, true},
		"a template":                     {nil, false, true},
	}
	for name, tc := range tests {
		for stuck, want := range map[bool]bool{false: tc.want, true: tc.ifStuck} {
			u.outlook.stuck = stuck
			if got := u.canBeHelpedBy(tc.sets...); got != want {
				t.Errorf("%s, stuck %t: helps %t", name, stuck, got)
			}
		}
	}
}
