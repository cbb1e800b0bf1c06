// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// prefersAll and prefersNone are what servers agree on of all claims.
func prefersAll(string, string) bool { return true }

func prefersNone(string, string) bool { return false }

func (d *desk) prefers(f func(namespace, name string) bool) { d.reconciler.SetPreference(f) }

// TestWhoseClaim: that of the server that created it, for as long as it may be asked
// for it, and then of the one that all agree on.
func TestWhoseClaim(t *testing.T) {
	const window = 20 * time.Second // of the desk
	tests := map[string]struct {
		created bool
		age     time.Duration
		prefers func(string, string) bool
		want    bool
	}{
		"created here":                            {true, 0, prefersNone, true},
		"created here, a moment before":           {true, window + handOverAfter - 1, prefersNone, true},
		"created here, then":                      {true, window + handOverAfter, prefersNone, false},
		"created here, then, and agreed on":       {true, window + handOverAfter, prefersAll, true},
		"created here, then, this server alone":   {true, window + handOverAfter, nil, true},
		"created elsewhere":                       {false, 0, prefersNone, false},
		"created elsewhere, long ago":             {false, time.Hour, prefersNone, false},
		"created elsewhere, agreed on":            {false, time.Hour, prefersAll, true},
		"created elsewhere, this server is alone": {false, 0, nil, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.prefers(tc.prefers)
			u := d.finisher.unfinished.newUnfinished(claimNamed("u"), newReservation())
			if tc.created {
				u = d.finisher.unfinished.open(t.Context(), claimNamed("u"), d.clock.Now(), newReservation())
			} else {
				d.finisher.unfinished.put(u, "u")
			}
			d.clock.Step(tc.age)
			if got := d.finisher.ownership.isMine("u", u); got != tc.want {
				t.Errorf("is this server's: %t", got)
			}
		})
	}
}

// TestServersShareClaims: each is of exactly one, and a change of
// members lets all be looked at again.
func TestServersShareClaims(t *testing.T) {
	members := []string{"one", "two", "three"}
	var servers []*desk
	for range members {
		servers = append(servers, newDesk(t))
	}
	before := map[types.UID]int{}
	for _, n := range []int{3, 2} {
		shares := make([]int, n)
		for i, d := range servers[:n] {
			d.Feeds.ClaimChanged(claimAt("u", 5))
			d.woken()
			d.MembersChanged(members[i], members[:n])
			if got := d.woken(); len(got) != 1 {
				t.Errorf("due: %v after a change", got)
			}
		}
		for i := range 100 {
			uid := types.UID(fmt.Sprint("claim-", i))
			owners := 0
			for s, d := range servers[:n] {
				if d.finisher.ownership.isMine(uid, &unfinishedClaim{}) {
					owners++
					shares[s]++
					if was, ok := before[uid]; ok && was < n && was != s {
						t.Errorf("%s goes from %s to %s, which are both there", uid, members[was], members[s])
					}
					before[uid] = s
				}
			}
			if owners != 1 {
				t.Errorf("%s is of %d servers", uid, owners)
			}
		}
		if slices.Min(shares) < 10 {
			t.Errorf("shares are %v", shares)
		}
	}
}

// TestKeepsThePlacesOfOthers: a claim that another server works on takes nothing here,
// and is not overtaken either, until it is handed over.
func TestKeepsThePlacesOfOthers(t *testing.T) {
	set := setOf("a", "py")
	d := newDesk(t, set)
	next := d.holding(set)
	d.stocks("two", set, pods)
	d.prefers(prefersNone)
	u := d.finisher.unfinished.of("claim-uid")
	again, err := d.finisher.advance(t.Context(), "claim-uid", u)
	if want := 25 * time.Second; err != nil || again != want {
		t.Errorf("looks again after %s, %v, want %s", again, err, want)
	}
	if len(next.finder.reservation.taken) != 0 || d.left("a") != 2 || d.stock.Queue.Free(poolNamed("a")) != 0 || d.read["held"] != 0 {
		t.Errorf("holds %d of another's, left %d, free %d", len(next.finder.reservation.taken), d.left("a"), d.stock.Queue.Free(poolNamed("a")))
	}
	var written []*slip
	d.begin = func() Txn {
		return &slip{commit: func(s *slip) error { s.at(20); written = append(written, s); return nil }}
	}
	d.clock.Step(again)
	d.prefers(prefersAll)
	if again, err = d.finisher.advance(t.Context(), "claim-uid", u); err != nil || again != 0 || len(written) != 1 || len(written[0].sandboxes) != 2 {
		t.Errorf("after it was handed over: again %s, %v, written %+v", again, err, written)
	}

	d.prefers(prefersNone)
	d.Feeds.ClaimChanged(claimAt("makes", 5, func(c *v1alpha1.SandboxClaim) {
		warm(1)(c)
		orFresh(c)
		c.CreationTimestamp.Time = d.clock.Now()
	}))
	d.stocks("three", set, pods)
	if _, err := d.finisher.advance(t.Context(), "makes", d.finisher.unfinished.of("makes")); err != nil || d.stock.Queue.Free(poolNamed("a")) != 1 {
		t.Errorf("one that has sandboxes made keeps those of a pool, %v", err)
	}

	// But at its limit it has none made any more, and only its status says so.
	limited := claimAt("limited", 6, func(c *v1alpha1.SandboxClaim) { warm(1)(c); orFresh(c) })
	limited.CreationTimestamp.Time = d.clock.Now()
	limited.Status.Waiting = &v1alpha1.ClaimWaiting{CreateProblem: "one claim may hold 0 at a time"}
	d.Feeds.ClaimChanged(limited)
	if _, err := d.finisher.advance(t.Context(), "limited", d.finisher.unfinished.of("limited")); err != nil || d.stock.Queue.Free(poolNamed("a")) != 0 {
		t.Errorf("one that waits for the pool is overtaken, %v", err)
	}
}

// TestKeepsItsPlaceWhileItWrites: a claim of more than one transaction takes is not
// overtaken while the first is on its way.
func TestKeepsItsPlaceWhileItWrites(t *testing.T) {
	set := setOf("a", "py")
	d := newDesk(t, set)
	d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
	next := d.nextAttempt(warm(5))
	next.finder.reservation.room = 2
	for _, name := range []string{"one", "two", "three"} {
		d.stocks(name, set, pods)
	}
	if p := d.planned(next); len(p.Bound) != 2 || p.Wants.Need != 3 {
		t.Errorf("binds %d and waits for %d", len(p.Bound), p.Wants.Need)
	}
	if free, left := d.stock.Queue.Free(poolNamed("a")), d.left("a"); free != 0 || left != 1 {
		t.Errorf("while it writes, of %d are %d free", left, free)
	}
	if got := d.stock.Queue.Demands()[poolNamed("a")[0].Pool]; got != (queue.Demand{Claims: 1, Sandboxes: 3}) {
		t.Errorf("while it writes, the demand is %+v", got)
	}
}

// TestTurnReadsOnce: what is complete is not read again.
func TestTurnReadsOnce(t *testing.T) {
	set := setOf("a", "py")
	d := newDesk(t, set)
	d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
	claim := d.stored(warm(3))
	claim.UID, claim.Name = "u", "u"
	d.Feeds.ClaimChanged(claim)
	u, revision := d.finisher.unfinished.of("u"), 20
	d.begin = func() Txn {
		return &slip{commit: func(s *slip) error { revision++; s.at(revision); return nil }}
	}
	for i, name := range []string{"one", "two", "three"} {
		d.stocks(name, set, pods)
		again, err := d.finisher.advance(t.Context(), "u", u)
		seen := u.snapshot()
		if err != nil || d.read["held"] != 1 || len(seen.held) != i+1 || poolindex.ParseVersion(seen.claim.ResourceVersion) != uint64(revision) || !seen.complete {
			t.Errorf("step %d: read %d times, holds %d, %v", i, d.read["held"], len(seen.held), err)
		}
		if last := i == 2; last != (again == 0) || last != (d.finisher.unfinished.of("u") == nil) {
			t.Errorf("step %d: again after %s", i, again)
		}
	}
	select {
	case <-u.done:
	default:
		t.Error("is not done")
	}
	if len(d.stock.Queue.Demands()) != 0 {
		t.Error("still in line")
	}
}

// TestErrorsOfATurn: nothing is lost, and nothing is done again at once.
func TestErrorsOfATurn(t *testing.T) {
	moved := func(index int) error { return &etcdtxn.ConflictError{Modified: []etcdtxn.Modified{{Index: index}}} }
	tests := map[string]struct {
		err error // of the first commit; the next fails like the store
		// commits, and what is known and held then.
		commits  int
		complete bool
		taken    int
	}{
		"the claim has moved":       {moved(0), 1, false, 1},
		"what it holds has moved":   {moved(1), 1, false, 1},
		"what it binds has moved":   {moved(2), 2, false, 0},
		"etcd does not say":         {etcdtxn.ErrUnknownOutcome, 1, false, 1},
		"etcd takes less":           {etcdtxn.ErrTooLarge, 2, false, 1},
		"the store is out of order": {errDown, 1, false, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d, claim := newShortDesk(t)
			made := startingFor(t, claim, "made", d.clock.Now())
			made.Status = running()
			d.shelf.held = []*v1alpha1.Sandbox{made}
			commits := 0
			d.begin = func() Txn {
				return &slip{commit: func(*slip) error {
					if commits++; commits > 1 {
						return errDown
					}
					return tc.err
				}}
			}
			u := d.finisher.unfinished.of(claim.UID)
			d.reconciler.Next(t.Context())
			if complete := u.snapshot().complete; commits != tc.commits || complete != tc.complete {
				t.Errorf("%d commits, complete %t", commits, complete)
			}
			if n := d.finisher.unfinished.due.NumRequeues(claim.UID); n != 1 || d.finisher.unfinished.of(claim.UID) != u {
				t.Errorf("tried again %d times", n)
			}
			if len(u.work.reservation.taken) != tc.taken || d.left("a") != 0 {
				t.Errorf("holds %d, left %d: what was taken is lost or free", len(u.work.reservation.taken), d.left("a"))
			}
		})
	}
	t.Run("what it holds cannot be read", func(t *testing.T) {
		d := newDesk(t, setOf("a", "py"))
		d.Feeds.ClaimChanged(d.stored(warm(1)))
		d.unreadable = "held"
		d.reconciler.Next(t.Context())
		if u := d.finisher.unfinished.of("claim-uid"); u.snapshot().complete || d.finisher.unfinished.due.NumRequeues("claim-uid") != 1 {
			t.Error("not tried again")
		}
	})
}

// TestConfirm: before a newcomer fails for want of what is kept for claims of other
// servers, it is made sure that those still wait.
func TestConfirm(t *testing.T) {
	waits := func() *v1alpha1.SandboxClaim { return claimAt("u", 5) }
	tests := map[string]struct {
		stored  *v1alpha1.SandboxClaim
		prefers func(string, string) bool
		fails   bool
		free    int
		reads   int
		deleted bool
	}{
		"it waits":               {stored: waits(), reads: 1},
		"it waits for less":      {stored: claimAt("u", 6), reads: 1},
		"it is served":           {stored: claimAt("u", 6, completed), free: 1, reads: 1},
		"it is gone":             {free: 1, reads: 1, deleted: true},
		"it was made again":      {stored: claimAt("u", 9, func(c *v1alpha1.SandboxClaim) { c.UID = "another" }), free: 1, reads: 1, deleted: true},
		"it is this server's":    {stored: claimAt("u", 6, completed), prefers: prefersAll},
		"it cannot be found out": {stored: waits(), fails: true, reads: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			set := setOf("pool", "")
			d := newDesk(t, set)
			d.Feeds.ClaimChanged(waits())
			d.clock.Step(d.finisher.ownership.syncWindow + handOverAfter) // until then it is the work of who created it
			u := d.finisher.unfinished.of("u")
			u.waiter.Wait(queue.Wants{Need: 1, Sources: poolNamed("pool")})
			if d.prefers(prefersNone); tc.prefers != nil {
				d.prefers(tc.prefers)
			}
			if d.shelf.claims["u"] = tc.stored; tc.fails {
				d.unreadable = "u"
			}
			d.stocks("one", set, pods)
			d.woken()
			err := d.finisher.confirm(t.Context(), poolNamed("pool"))
			if errors.Is(err, errDown) != tc.fails || d.read["claim u"] != tc.reads {
				t.Errorf("read %d times, %v", d.read["claim u"], err)
			}
			if free := d.stock.Queue.Free(poolNamed("pool")); free != tc.free || u.snapshot().deleted != tc.deleted {
				t.Errorf("%d are free, it is gone %t", free, u.snapshot().deleted)
			}
			if woken := d.woken(); len(woken) != tc.free {
				t.Errorf("due: %v", woken)
			}
		})
	}
	t.Run("before a newcomer fails", func(t *testing.T) {
		set := setOf("pool", "")
		for _, served := range []bool{true, false} {
			d := newDesk(t, set)
			d.shelf.templates["pool-"+pods] = templateOfPod("pool-" + pods)
			d.prefers(prefersNone)
			d.Feeds.ClaimChanged(waits())
			d.finisher.unfinished.of("u").waiter.Wait(queue.Wants{Need: 1, Sources: poolNamed("pool")})
			d.stocks("one", set, pods)
			if d.shelf.claims["u"] = waits(); served {
				d.shelf.claims["u"] = claimAt("u", 6, completed)
			}
			claim := claimOf(func(c *v1alpha1.SandboxClaim) {
				c.Spec.OnShortage, c.Spec.CreateOnNoStock = v1alpha1.ShortageFail, new(false)
			})
			checkErr := d.Check(t.Context(), claim)
			p, err := (&attempt{finder: finder{supplier: d.supplier, reservation: newReservation()}, state: plan.State{Claim: claim, New: true, Start: d.clock.Now()}}).plan(t.Context())
			var shortage *ShortageError
			if errors.As(err, &shortage) == served || errors.As(checkErr, &shortage) == served || served && len(p.Bound) != 1 {
				t.Errorf("served %t: check: %v, create: %v", served, checkErr, err)
			}
		}
	})
}

// TestDeletedClaims: what was only being made for one is released, by one server.
func TestDeletedClaims(t *testing.T) {
	tests := map[string]struct {
		prefers  func(string, string) bool
		err      error
		released []string
		known    bool
	}{
		"this server's":   {prefersAll, nil, []string{"starts"}, false},
		"another's":       {prefersNone, nil, nil, false},
		"it did not work": {prefersAll, errDown, []string{"starts"}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			set := setOf("a", "py")
			d := newDesk(t, set)
			next := d.holding(set)
			claim := next.state.Claim
			d.prefers(tc.prefers)
			leaving := startingFor(t, claim, "leaves", d.clock.Now())
			leaving.DeletionTimestamp = &claim.CreationTimestamp
			d.shelf.held = []*v1alpha1.Sandbox{startingFor(t, claim, "starts", d.clock.Now()), heldAt(claim.UID, "counts", 6), leaving}
			var released []string
			d.begin = func() Txn {
				return &slip{commit: func(s *slip) error {
					for _, sb := range s.sandboxes {
						released = append(released, sb.Name)
						if sb.Spec.ShutdownTime == nil || sb.Annotations[v1alpha1.AnnotationOwner] != "" {
							t.Errorf("%s becomes %+v", sb.Name, sb)
						}
					}
					return tc.err
				}}
			}
			d.Feeds.ClaimDeleted(claim)
			d.clock.Step(time.Minute) // until then it is the work of who created it
			u := d.finisher.unfinished.of(claim.UID)
			if _, err := d.finisher.advance(t.Context(), claim.UID, u); !errors.Is(err, tc.err) || !slices.Equal(released, tc.released) {
				t.Errorf("released %v, %v", released, err)
			}
			if known := d.finisher.unfinished.of(claim.UID) != nil; known != tc.known || d.left("a") != 1 || len(d.stock.Queue.Demands()) != 0 {
				t.Errorf("known %t, left %d, demands %v", known, d.left("a"), d.stock.Queue.Demands())
			}
			if phase := u.latest().Status.Phase; (phase == v1alpha1.SandboxClaimPhaseCompleted) == tc.known {
				t.Errorf("a caller who waits is told %s", phase)
			}
		})
	}
}

// claimNamed is a claim whose UID and name are the same.
func claimNamed(uid types.UID) *v1alpha1.SandboxClaim {
	return &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid}}
}
