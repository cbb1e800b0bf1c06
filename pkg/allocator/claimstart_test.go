// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestStartWithOtherClocks checks when this server begins to work on a claim with a claimTimeout
// of a minute, and when it ends the claim, if the server that created it is gone and had
// another clock.
func TestStartWithOtherClocks(t *testing.T) {
	const second = time.Second
	for name, tc := range map[string]struct {
		ahead  time.Duration // of its clock
		listed bool
		// works is after what time this server works on it, and ends after what time it ends.
		works, ends time.Duration
	}{
		"the same clock":                 {0, false, 25 * second, 60 * second},
		"two minutes ahead":              {2 * time.Minute, false, 25 * second, 60 * second},
		"a minute behind":                {-61 * second, false, 25 * second, 60 * second},
		"a day behind":                   {-24 * time.Hour, false, 25 * second, 60 * second},
		"listed, just begun":             {0, true, 25 * second, 60 * second},
		"listed, two minutes ahead":      {2 * time.Minute, true, 25 * second, 60 * second},
		"listed, begun ten seconds ago":  {-10 * second, true, 15 * second, 50 * second},
		"listed, begun long ago":         {-time.Hour, true, 0, 0},
		"listed, its time is not yet up": {-50 * second, true, 0, 10 * second},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, setOf("a", "py"))
			d.prefers(prefersAll)
			var last *v1alpha1.SandboxClaim
			written := 10
			d.begin = func() Txn {
				return &slip{commit: func(s *slip) error { written++; s.at(written); last = s.claim; return nil }}
			}
			claim := d.stored(warm(1))
			claim.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Minute}
			begun := metav1.NewTime(d.clock.Now().Add(tc.ahead))
			claim.CreationTimestamp, claim.Status.ClaimStartTime = begun, &begun
			if tc.listed {
				d.Feeds.ClaimsListed([]*v1alpha1.SandboxClaim{claim}, 9)
			} else {
				d.Feeds.ClaimChanged(claim)
			}
			u, at, works := d.finisher.unfinished.of(claim.UID), time.Duration(0), time.Duration(-1)
			for ; at < 10*time.Minute; at += second {
				if works < 0 && d.finisher.ownership.isMine(claim.UID, u) {
					works = at
				}
				if _, err := d.finisher.advance(t.Context(), claim.UID, u); err != nil {
					t.Fatal(err)
				}
				if last != nil && last.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted {
					break
				}
				d.clock.Step(second)
			}
			if works != tc.works || at != tc.ends {
				t.Errorf("works on it after %s and ends it after %s, want %s and %s", works, at, tc.works, tc.ends)
			}
		})
	}
}

// TestStartOfAClaim checks when a claim began, where its status was written anew.
func TestStartOfAClaim(t *testing.T) {
	d := newDesk(t)
	now := d.clock.Now()
	begun := func(at time.Time) func(*v1alpha1.SandboxClaim) {
		return func(c *v1alpha1.SandboxClaim) {
			c.CreationTimestamp.Time = now.Add(-24 * time.Hour) // by another clock
			if c.Status.ClaimStartTime = nil; !at.IsZero() {
				c.Status.ClaimStartTime = &metav1.Time{Time: at}
			}
		}
	}
	for name, tc := range map[string]struct {
		created bool
		then    time.Time // of a status that is written a minute later; zero if it has no start
		want    time.Time
	}{
		"as this server wrote it": {true, now, now.Add(300 * time.Millisecond)},
		"as another wrote it":     {false, now, now.Add(300 * time.Millisecond)},
		"removed by a client":     {false, time.Time{}, now.Add(300 * time.Millisecond)},
		"removed, created here":   {true, time.Time{}, now.Add(300 * time.Millisecond)},
		"an hour ago":             {true, now.Add(-time.Hour), now.Add(-time.Hour)},
		"a moment ago":            {false, now.Add(50 * time.Second), now.Add(50 * time.Second)},
		"in an hour":              {false, now.Add(time.Hour), now.Add(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.clock.SetTime(now.Add(300 * time.Millisecond))
			claim := claimAt("u", 5, begun(now))
			if tc.created {
				d.finisher.unfinished.open(t.Context(), claim, d.clock.Now(), newReservation())
			}
			d.Feeds.ClaimChanged(claim)
			d.clock.SetTime(now.Add(time.Minute))
			d.Feeds.ClaimChanged(claimAt("u", 6, begun(tc.then)))
			if got := d.finisher.unfinished.of("u").startTime(); !got.Equal(tc.want) {
				t.Errorf("began at %s, want %s", got, tc.want)
			}
		})
	}
}

// TestReopenedClaimIsNotNew checks that a claim that another server has reopened is
// not treated as a new claim.
func TestReopenedClaimIsNotNew(t *testing.T) {
	d := newDesk(t, setOf("a", "py"))
	d.prefers(prefersAll)
	claim := d.stored(ofWarmPool("a"))
	claim.CreationTimestamp.Time = d.clock.Now().Add(-time.Hour)
	d.Feeds.ClaimChanged(claim)
	if u := d.finisher.unfinished.of(claim.UID); !d.finisher.ownership.isMine(claim.UID, u) {
		t.Errorf("works on it after %s", d.finisher.ownership.creatorWorksUntil(u).Sub(d.clock.Now()))
	}
}
