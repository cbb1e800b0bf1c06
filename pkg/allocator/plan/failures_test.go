// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// TestCauses: the first three are reported, and reported again from the claim's own message, by
// any server.
func TestCauses(t *testing.T) {
	s := stateOf(of(9))
	failing := func(names string) string {
		s.Setups.Results = map[types.UID]SetupResult{}
		s.Held = nil
		for name := range strings.SplitSeq(names, "") {
			s.holds(t, name, hasRuntime)
			s.Setups.Results[types.UID(name)] = SetupResult{Failed: noInit}
		}
		s.Claim = s.next(t, Offer{}, "", "").Claim
		return s.Claim.Status.Message
	}
	const begin = "Claiming sandboxes: 0/9 claimed; waits for 9 sandboxes of SandboxSet pool; "
	for _, step := range []struct{ fails, want string }{
		{"b", "1 failed in preparation: b: no init, at all"},
		{"a", "2 failed in preparation: b: no init, at all; a: no init, at all"},
		{"dc", "4 failed in preparation: b: no init, at all; a: no init, at all; d: no init, at all; and 1 more"},
		{"ef", "6 failed in preparation: b: no init, at all; a: no init, at all; d: no init, at all; and 3 more"},
	} {
		if got := failing(step.fails); got != begin+step.want {
			t.Errorf("says %q, want %q", got, begin+step.want)
		}
	}
	s.Held = nil
	if p := s.next(t, Offer{}, "", ""); p.Changes() {
		t.Errorf("changes again, to %q", p.Claim.Status.Message)
	}
	if p := s.next(t, Offer{Broken: errModel}, "", ""); !claims.HasCreateProblem(p.Claim) {
		t.Errorf("says %q", p.Claim.Status.Message)
	} else if again := p.Claim.Status.Failures; len(again) != 3 || again[2] != (v1alpha1.SandboxFailure{Name: "d", Message: "no init, at all"}) {
		t.Errorf("failures are %v", again)
	}
	expire(&s)
	if got := s.next(t, Offer{}, "", "").Claim.Status.Message; got != "Timeout reached after 1m0s, claimed 0/9 sandboxes; 6 failed in preparation: "+
		"b: no init, at all; a: no init, at all; d: no init, at all; and 3 more" {
		t.Errorf("ends with %q", got)
	}
}

// TestLongCauses: what is reported is bounded, also where a client wrote the failures.
func TestLongCauses(t *testing.T) {
	s := stateOf(of(1), func(c *v1alpha1.SandboxClaim) {
		c.Status.FailedReplicas = 5
		c.Status.Failures = slices.Repeat([]v1alpha1.SandboxFailure{{Name: "x", Message: strings.Repeat("é", 5000)}}, 50)
	})
	if got := s.next(t, Offer{}, "", "").Claim.Status.Message; len(got) > 3*claims.MaxFailureMessage+200 {
		t.Errorf("the message has %d bytes", len(got))
	}
}

// TestGatedSandboxesAreWaitedFor: a sandbox whose pod waits behind a scheduling gate has the
// time of its claim, and from the moment when the gates are removed the time of a start.
func TestGatedSandboxesAreWaitedFor(t *testing.T) {
	gated := func(status metav1.ConditionStatus, since time.Duration) held {
		return all(isTooLate, func(sb *v1alpha1.Sandbox) {
			sb.Status.Conditions = append(sb.Status.Conditions, metav1.Condition{
				Type: v1alpha1.SandboxConditionSchedulingGated, Status: status, LastTransitionTime: metav1.NewTime(birth.Add(passed - since)),
			})
		})
	}
	for name, tc := range map[string]struct {
		held    held
		expired bool
		lets    string
		until   time.Duration
	}{
		"no gate":              {held: isTooLate, lets: "a", until: time.Minute},
		"behind a gate":        {held: gated(metav1.ConditionTrue, time.Hour), until: time.Minute},
		"at the end":           {held: gated(metav1.ConditionTrue, time.Hour), expired: true, lets: "a", until: time.Minute},
		"gates removed":        {held: gated(metav1.ConditionFalse, 5*time.Second), until: passed + 26*time.Second},
		"removed too long ago": {held: gated(metav1.ConditionFalse, 31*time.Second), lets: "a", until: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(of(1))
			s.holds(t, "a", tc.held)
			if tc.expired {
				expire(&s)
			}
			p := s.next(t, Offer{}, "", "")
			if got := namesOf(p.Released); got != tc.lets || !p.Until.Equal(birth.Add(tc.until)) {
				t.Errorf("lets go of %q, continues until %v", got, p.Until)
			}
		})
	}
}

// TestWhyTheyFail: a cause is reported for what fails without a setup, too.
func TestWhyTheyFail(t *testing.T) {
	cannotStart := func(sb *v1alpha1.Sandbox) {
		isTooLate(sb)
		sb.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStartContainerFailed, Message: "no such image",
		}}
	}
	for want, is := range map[string]held{
		"it was not ready in time":                isTooLate,
		"it was not ready in time, no such image": cannotStart,
		"its phase is Failed":                     hasEnded(v1alpha1.SandboxFailed),
		"no init, at all":                         hasRuntime,
	} {
		s := stateOf(of(2))
		s.holds(t, "a", is)
		s.Setups.Results = map[types.UID]SetupResult{"a": {Failed: noInit}}
		if got := s.next(t, Offer{}, "", "").Claim.Status.Failures; len(got) != 1 || got[0].Message != want {
			t.Errorf("lists %v, want %q", got, want)
		}
	}
}

// TestFailuresAreBounded: what failed and what is on its way are together no more than may
// fail.
func TestFailuresAreBounded(t *testing.T) {
	tests := map[string]struct {
		claim  []change
		failed int32
		held   string
		pooled string
		bound  string
		ends   string
		needs  int
	}{
		"none has failed":           {[]change{of(3)}, 0, "", "abc", "abc", v1alpha1.ReasonAllReplicasClaimed, 0},
		"some have":                 {[]change{of(3)}, 8, "", "abc", "ab", "", 0},
		"nearly too many":           {[]change{of(3)}, 8, "xy", "abc", "", "", 0},
		"too many":                  {[]change{of(3)}, 10, "", "abc", "", v1alpha1.ReasonTooManyFailures, 0},
		"too many, and one starts":  {[]change{of(3)}, 10, "x", "abc", "", "", 0},
		"of a large claim":          {[]change{of(5)}, 10, "", "abcde", "abcde", v1alpha1.ReasonAllReplicasClaimed, 0},
		"of a large claim, in part": {[]change{of(5)}, 14, "", "abcde", "a", "", 0},
		"all or nothing":            {[]change{of(3), atOnce}, 7, "", "abc", "abc", v1alpha1.ReasonAllReplicasClaimed, 0},
		"all or nothing, too many":  {[]change{of(3), atOnce}, 8, "", "abc", "", v1alpha1.ReasonTooManyFailures, 0},
		"there are none":            {[]change{of(3)}, 8, "", "", "", "", 2},
		"a client wrote nonsense":   {[]change{of(3)}, -1 << 31, "", "abc", "abc", v1alpha1.ReasonAllReplicasClaimed, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(append(tc.claim, func(c *v1alpha1.SandboxClaim) { c.Status.FailedReplicas = tc.failed })...)
			for name := range strings.SplitSeq(tc.held, "") {
				s.holds(t, name, isPending)
			}
			if most := Assess(s).Needs().Take; most < len(tc.bound) || tc.pooled != "" && most > len(tc.bound) {
				t.Errorf("looks for %d", most)
			}
			p := s.next(t, Offer{}, tc.pooled, "")
			if p.Claim.Status.FailedReplicas != max(0, tc.failed) {
				t.Errorf("%d failed", p.Claim.Status.FailedReplicas)
			}
			if got := namesOf(p.Bound); got != tc.bound || reasonOf(p.Claim) != tc.ends || p.Wants.Need != tc.needs {
				t.Errorf("binds %q, ends %q, wants %+v", got, reasonOf(p.Claim), p.Wants)
			}
		})
	}
}

// reasonOf is why a claim has ended.
func reasonOf(claim *v1alpha1.SandboxClaim) string {
	for _, c := range claim.Status.Conditions {
		if c.Type == v1alpha1.ClaimConditionCompleted {
			return c.Reason
		}
	}
	return ""
}

// TestUselessIsNoFailure: what is released because it is not needed did not fail.
func TestUselessIsNoFailure(t *testing.T) {
	s := stateOf(of(1), lists(1))
	s.holds(t, "a", isPending)
	if p := s.next(t, Offer{}, "", ""); namesOf(p.Released) != "a" || p.Claim.Status.FailedReplicas != 0 {
		t.Errorf("lets go of %s, %d failed", namesOf(p.Released), p.Claim.Status.FailedReplicas)
	}
}

// TestLapses: a claim whose lifecycle is over gets no more, and one that comes too late
// nothing.
func TestLapses(t *testing.T) {
	until := func(at time.Duration) change {
		return func(c *v1alpha1.SandboxClaim) {
			c.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{ShutdownTime: &metav1.Time{Time: birth.Add(at)}}
		}
	}
	for at, want := range map[time.Duration]string{passed - 1: "ClaimExpired 1", passed: "ClaimExpired 1", passed + 1: " 1"} {
		s := stateOf(of(3), lists(0, "a"), until(at))
		s.holds(t, "b", isPending)
		p := s.next(t, Offer{}, "", "")
		if got := fmt.Sprint(reasonOf(p.Claim), " ", p.Claim.Status.ClaimedReplicas); got != want {
			t.Errorf("its lifecycle ends %s after its start: %s", at, got)
		}
		if p.Ends() != (namesOf(p.Released) == "b") || !p.Ends() && !p.Until.Equal(birth.Add(at)) {
			t.Errorf("lets go of %q, continues until %v", namesOf(p.Released), p.Until)
		}
		s.New, s.Held = true, nil
		s.Claim = claimOf(func(c *v1alpha1.SandboxClaim) { of(1)(c); until(at)(c) })
		p = s.next(t, Offer{}, "a", "")
		late, reason := at <= passed, v1alpha1.ReasonAllReplicasClaimed
		if late {
			reason = v1alpha1.ReasonClaimExpired
		}
		if late != (len(p.Bound) == 0) || reasonOf(p.Claim) != reason {
			t.Errorf("a new one binds %q and ends %q", namesOf(p.Bound), reasonOf(p.Claim))
		}
		if needs := Assess(s).Needs(); (needs == Needs{}) != late {
			t.Errorf("a new one needs %+v", needs)
		}
	}
}
