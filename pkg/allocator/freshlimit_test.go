// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

func maxFresh(n int32) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) { set.Spec.MaxFreshSandboxes = &n }
}

// TestMaxFresh: a claim has no more made for it than that, and waits for the rest.
func TestMaxFresh(t *testing.T) {
	type (
		claimChange = func(*v1alpha1.SandboxClaim)
		setChange   = func(*v1alpha1.SandboxSet)
	)
	atOnce := func(c *v1alpha1.SandboxClaim) { c.Spec.Allocation = v1alpha1.AllocationAllOrNothing }
	ofTemplate := func(n int32) func(*desk) {
		return func(d *desk) { d.shelf.templates["py"].Spec.MaxFreshSandboxes = &n }
	}
	tests := map[string]struct {
		set      setChange
		claim    claimChange
		desk     func(*desk)
		made     int
		needs    int
		says     string
		replicas int32
	}{
		"no limit in the way": {replicas: 4, made: 3},
		"of the set": {
			set: maxFresh(2), replicas: 4, made: 2, needs: 1,
			says: "; no fresh sandboxes can be made: one claim may hold 2 at a time (maxFreshSandboxes); what it lacks waits for the pool",
		},
		"none":                 {set: maxFresh(0), replicas: 4, needs: 3, says: "one claim may hold 0 at a time (maxFreshSandboxes)"},
		"just enough":          {set: maxFresh(3), replicas: 4, made: 3},
		"of the template":      {desk: ofTemplate(1), replicas: 4, made: 1, needs: 2, says: "one claim may hold 1 at a time (maxFreshSandboxes)"},
		"of the set, not it":   {set: maxFresh(3), desk: ofTemplate(1), replicas: 4, made: 3},
		"of the server":        {desk: func(d *desk) { d.supplier.templates.MaxFresh = 1 }, replicas: 4, made: 1, needs: 2, says: "one claim may hold 1 at a time"},
		"more than the server": {set: maxFresh(3), desk: func(d *desk) { d.supplier.templates.MaxFresh = 1 }, replicas: 4, made: 3},
		"of bytes":             {desk: func(d *desk) { d.supplier.templates.MaxFreshBytes = 1400 }, replicas: 9, made: 3, needs: 5, says: "one claim may hold 3 at a time (1400 bytes in all, and one has "},
		"of bytes of the claim": {
			claim: func(c *v1alpha1.SandboxClaim) { c.Spec.Annotations = map[string]string{"a": strings.Repeat("x", 300)} },
			desk:  func(d *desk) { d.supplier.templates.MaxFreshBytes = 1400 }, replicas: 9, made: 1, needs: 7, says: "one claim may hold 1 at a time",
		},
		// A part of them would be made for nothing.
		"all or nothing": {set: maxFresh(2), claim: atOnce, replicas: 4, needs: 4, says: "one claim may hold 2 at a time"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for when, isNew := range map[string]bool{"a new claim": true, "one that continues": false} {
				set := setOf("a", "py")
				if tc.set != nil {
					tc.set(set)
				}
				d := newDesk(t, set)
				d.shelf.templates["py-"+pods], d.shelf.templates["py"] = templateOfPod("py-"+pods), templateOfPod("py")
				d.stocks("one", set, pods)
				if tc.desk != nil {
					tc.desk(d)
				}
				next := d.attemptOf(isNew, func(c *v1alpha1.SandboxClaim) {
					warm(tc.replicas)(c)
					orFresh(c)
					if tc.claim != nil {
						tc.claim(c)
					}
				})
				p := d.planned(next)
				if len(p.Made) != tc.made || len(next.finder.reservation.made) != tc.made || // which are charged to a quota
					p.Wants.Need != tc.needs || p.Wants.AtOnce != (name == "all or nothing") {
					t.Errorf("%s: makes %d, wants %+v", when, len(p.Made), p.Wants)
				}
				if message := p.Claim.Status.Message; !strings.Contains(message, tc.says) || tc.says == "" && strings.Contains(message, "no fresh") {
					t.Errorf("%s: says %q", when, message)
				}
			}
		})
	}
}

// TestMaxFreshCountsWhatIsHeld: what was made for the claim before, also what is kept
// for debugging, and not what came from a pool.
func TestMaxFreshCountsWhatIsHeld(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.Sandbox)
		made   int
	}{
		"it starts":                 {func(*v1alpha1.Sandbox) {}, 1},
		"it counts":                 {func(sb *v1alpha1.Sandbox) { delete(sb.Annotations, v1alpha1.AnnotationStarting); sb.Status = running() }, 1},
		"it failed and is kept":     {func(sb *v1alpha1.Sandbox) { sb.Labels[v1alpha1.LabelReservedFailedSandbox] = "true" }, 1},
		"it came from a pool":       {func(sb *v1alpha1.Sandbox) { sb.Annotations[v1alpha1.AnnotationPoolUID] = "set-uid" }, 2},
		"it was let go as it fails": {func(sb *v1alpha1.Sandbox) { sb.Status.Phase = v1alpha1.SandboxFailed }, 0}, // makes others later
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, setOf("a", "py", maxFresh(2)))
			d.shelf.templates["py"] = templateOfPod("py")
			next := d.nextAttempt(func(c *v1alpha1.SandboxClaim) { warm(9)(c); orFresh(c) })
			held := startingFor(t, next.state.Claim, "held", d.clock.Now())
			tc.change(held)
			next.state.Held = []*v1alpha1.Sandbox{held}
			if p := d.planned(next); len(p.Made) != tc.made {
				t.Errorf("makes %d, want %d: %s", len(p.Made), tc.made, p.Claim.Status.Message)
			}
		})
	}
}

// TestMaxFreshOfAClaimThatRatherFails: it fails before anything is made.
func TestMaxFreshOfAClaimThatRatherFails(t *testing.T) {
	for name, replicas := range map[string]int32{"one transaction": 4, "several": 500} {
		t.Run(name, func(t *testing.T) {
			set := setOf("a", "py", maxFresh(replicas-2))
			d := newDesk(t, set)
			d.shelf.templates["py-"+pods], d.shelf.templates["py"] = templateOfPod("py-"+pods), templateOfPod("py")
			d.stocks("one", set, pods)
			first := d.newAttempt(func(c *v1alpha1.SandboxClaim) {
				warm(replicas)(c)
				orFresh(c)
				c.Spec.OnShortage = v1alpha1.ShortageFail
			})
			_, err := first.plan(t.Context())
			if shortage := (*ShortageError)(nil); !errors.As(err, &shortage) || len(first.finder.reservation.made) != 0 {
				t.Errorf("makes %d, %v", len(first.finder.reservation.made), err)
			}
		})
	}
}

// TestMoreFreshOnesThanThereCanBe: no pool serves the claim, so it would wait for nothing.
func TestMoreFreshOnesThanThereCanBe(t *testing.T) {
	noPool := func(c *v1alpha1.SandboxClaim) {
		warm(3)(c)
		orFresh(c)
		c.Spec.WarmPool = v1alpha1.WarmPoolNone
	}
	tests := map[string]struct {
		cached, now *int32
		refused     bool
	}{
		"enough":                  {new(int32(3)), new(int32(3)), false},
		"too few":                 {new(int32(2)), new(int32(2)), true},
		"enough since a moment":   {new(int32(2)), new(int32(3)), false},
		"not said since a moment": {new(int32(2)), nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			before, now := templateOfPod("py"), templateOfPod("py")
			before.Spec.MaxFreshSandboxes, now.Spec.MaxFreshSandboxes = tc.cached, tc.now
			d.shelf.templates["py"], d.now = before, map[string]*v1alpha1.SandboxTemplate{"py": now}
			_, previewErr := d.Preview(t.Context(), claimOf(noPool))
			checkErr := d.Check(t.Context(), claimOf(noPool))
			_, createErr := d.newAttempt(noPool).plan(t.Context())
			for what, err := range map[string]error{"preview": previewErr, "check": checkErr, "create": createErr} {
				refused := (*plan.RefusedError)(nil)
				if errors.As(err, &refused) != tc.refused || refused == nil && err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if refused != nil && (len(refused.Errors) != 1 || refused.Errors[0].Field != "spec.replicas") {
					t.Errorf("%s: %v", what, refused.Errors)
				}
			}
		})
	}
	t.Run("a claim that is stored", func(t *testing.T) {
		d := newDesk(t)
		d.shelf.templates["py"] = templateOfPod("py")
		d.shelf.templates["py"].Spec.MaxFreshSandboxes = new(int32(2))
		if p := d.planned(d.nextAttempt(noPool)); len(p.Made) != 2 || p.Ends() || !strings.Contains(p.Claim.Status.Message, "may hold 2 at a time") {
			t.Errorf("makes %d, %+v", len(p.Made), p.Claim.Status)
		}
	})
}

// TestChecksWhatCanBeMade: a claim that can have too few sandboxes made is refused before
// anything is charged for it, where it would have to wait and must not.
func TestChecksWhatCanBeMade(t *testing.T) {
	for name, tc := range map[string]struct {
		most    int32
		fails   bool
		refused bool
	}{
		"enough":                {most: 3},
		"too few, with room":    {most: 3, fails: true},
		"too few":               {most: 2, refused: true},
		"too few, rather fails": {most: 2, fails: true, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, setOf("a", "py", maxFresh(tc.most)))
			d.shelf.templates["py"] = templateOfPod("py")
			d.Allocator.options.MaxWaiting = 1
			queue.NewWaiter(d.stock.Queue, queue.Place{Namespace: "ns", UID: "other"}, func() {}).Wait(queue.Wants{Need: 1})
			claim := claimOf(func(c *v1alpha1.SandboxClaim) {
				warm(3)(c)
				orFresh(c)
				if tc.fails {
					c.Spec.OnShortage = v1alpha1.ShortageFail
				}
			})
			err := d.Check(t.Context(), claim)
			shortage, tooMany := (*ShortageError)(nil), (*TooManyWaitingError)(nil)
			if errors.As(err, &shortage) != (tc.refused && tc.fails) || errors.As(err, &tooMany) != (tc.refused && !tc.fails) || (err != nil) != tc.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestNoneAreMadeInNoName: the status says so, also later, and admission is asked once.
func TestNoneAreMadeInNoName(t *testing.T) {
	d := newDesk(t, setOf("a", "py"))
	d.shelf.templates["py"] = templateOfPod("py")
	asked := 0
	d.supplier.admit = func(context.Context, *v1alpha1.SandboxClaim, []*v1alpha1.Sandbox, int) error {
		asked++
		return ErrIdentityUnknown
	}
	next := d.nextAttempt(func(c *v1alpha1.SandboxClaim) { warm(2)(c); orFresh(c) })
	for range 3 {
		p := d.planned(next)
		if len(p.Made) != 0 || p.Wants.Need != 2 || asked != 1 || !strings.Contains(p.Claim.Status.Message, ErrIdentityUnknown.Error()) ||
			!claims.HasCreateProblem(p.Claim) {
			t.Errorf("makes %d, wants %+v, asked %d times: %s", len(p.Made), p.Wants, asked, p.Claim.Status.Message)
		}
	}
}

// TestPreviewGivesNothingBack: what a dry run only looked at is not given back, for another
// claim may have taken it meanwhile.
func TestPreviewGivesNothingBack(t *testing.T) {
	set := setOf("a", "py")
	d := newDesk(t, set)
	d.shelf.templates["a-"+pods] = templateOfPod("a-" + pods)
	d.stocks("one", set, pods)
	d.shelf.looked = func() { d.stock.Queue.TakeFree(poolNamed("a"), 1, false) }
	_, err := d.Preview(t.Context(), claimOf(func(c *v1alpha1.SandboxClaim) { warm(2)(c); c.Spec.Allocation = v1alpha1.AllocationAllOrNothing }))
	if left := d.left("a"); err != nil || left != 0 {
		t.Errorf("%d can be taken, of one that is taken, %v", left, err)
	}
}
