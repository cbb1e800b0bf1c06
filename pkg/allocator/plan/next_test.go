// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// isNew makes the claim of a state one that is not stored yet.
func isNew(s *State) {
	s.New, s.Now, s.Start = true, birth, birth
	s.Claim.Status = v1alpha1.SandboxClaimStatus{}
}

// next makes a plan from an offer of sandboxes of pools and of fresh ones, of these names.
func (s *State) next(t *testing.T, o Offer, pooled, made string) *Plan {
	t.Helper()
	marks := marksOf(t, s.Claim)
	for _, name := range pooled {
		sb := stocked(string(name))
		o.Candidates = append(o.Candidates, Candidate{Sandbox: sb, Template: sb.Spec.Template, Lock: "lock of " + sb.Name})
	}
	for _, name := range made {
		sb, err := marks.NewSandbox(stocked("model"), nil, string(name), types.UID(string(name)), "lock of "+string(name), s.Now)
		if err != nil {
			t.Fatal(err)
		}
		o.Made = append(o.Made, sb)
	}
	p, err := Assess(*s).Next(o, marks)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// planned is a plan in short. A sandbox that is starting after it has a star.
type planned struct {
	Released, Counted, Bound, Made string
	Listed                         string
	Message                        string
	// Ended is the reason of the claim's end.
	Ended string
	// Wants is empty if the claim waits for nothing.
	Wants Wants
	// Until is how long nothing changes by itself.
	Until           time.Duration
	Broken, Problem string
}

func inShort(s *State, p *Plan) planned {
	stars := func(all []*v1alpha1.Sandbox) (names string) {
		for _, sb := range all {
			names += sb.Name
			if IsStarting(sb) {
				names += "*"
			}
		}
		return names
	}
	short := planned{
		Released: stars(p.Released), Counted: stars(p.Counted), Bound: stars(p.Bound), Made: stars(p.Made),
		Message: p.Claim.Status.Message, Wants: p.Wants, Until: p.Until.Sub(s.Now),
	}
	for _, entry := range p.Claim.Status.Sandboxes {
		short.Listed += entry.Name
	}
	if c := meta.FindStatusCondition(p.Claim.Status.Conditions, v1alpha1.ClaimConditionCompleted); c != nil {
		short.Ended = c.Reason
	}
	if p.Ends() {
		short.Until = 0
	}
	if p.Wants.Need == 0 {
		short.Wants = Wants{}
	}
	if p.Broken != nil {
		short.Broken = p.Broken.Error()
	}
	if p.Problem != nil {
		short.Problem = p.Problem.Reason
	}
	return short
}

func TestNext(t *testing.T) {
	noTemplate := Offer{Broken: errors.New("no template")}
	noSet := func(s *State) {
		s.Eligible = claims.Eligible{Problem: &claims.Problem{Reason: v1alpha1.ReasonSandboxSetNotFound, Message: "no set"}}
	}
	refused := func(s *State) {
		s.Refused = &RefusedError{Reason: v1alpha1.ReasonEnvVarsInjectionRejected, Message: "not allowed"}
	}
	both := func(first, second func(*State)) func(*State) { return func(s *State) { first(s); second(s) } }
	room := func(n int) func(*State) { return func(s *State) { s.Room = n } }
	const (
		soon   = 40 * time.Second                        // the claim's time
		sooner = 30*time.Second - boundFor + time.Second // that of a sandbox which is pending
	)
	tests := map[string]struct {
		claim []change
		held  map[string]held
		state func(*State)
		offer Offer
		// pooled and made are offered.
		pooled, made string
		want         planned
	}{
		"a new claim gets all": {
			claim: []change{of(2)}, state: isNew, pooled: "ab",
			want: planned{Bound: "ab", Listed: "ab", Message: "Successfully claimed 2/2 sandboxes", Ended: "AllReplicasClaimed"},
		},
		"a new claim gets a part": {
			claim: []change{of(3)}, state: isNew, pooled: "a",
			want: planned{Bound: "a", Listed: "a", Message: "Claiming sandboxes: 1/3 claimed; waits for 2 sandboxes of SandboxSet pool", Wants: Wants{Need: 2}, Until: time.Minute},
		},
		"a new claim gets nothing": {
			claim: []change{of(2), atOnce}, state: isNew, pooled: "a",
			want: planned{Message: "Claiming sandboxes: 0/2 claimed; waits for 2 sandboxes of SandboxSet pool", Wants: Wants{Need: 2, AtOnce: true}, Until: time.Minute},
		},
		"a new claim that would rather fail": {
			claim: []change{of(2), orFails, atOnce}, state: isNew, pooled: "ab",
			want: planned{Bound: "ab", Listed: "ab", Message: "Successfully claimed 2/2 sandboxes", Ended: "AllReplicasClaimed"},
		},
		"a new claim has some made": {
			claim: []change{of(3), orMade}, state: isNew, pooled: "a", made: "xy",
			want: planned{Bound: "a", Made: "x*y*", Listed: "a", Message: "Claiming sandboxes: 1/3 claimed", Until: time.Minute},
		},
		"all or nothing shows none before all are ready": {
			claim: []change{of(3), orMade, atOnce}, state: isNew, pooled: "a", made: "xy",
			want: planned{Bound: "a*", Made: "x*y*", Message: "Claiming sandboxes: 0/3 claimed", Until: time.Minute},
		},
		"more was found than is needed": {
			claim: []change{of(2), orMade}, pooled: "ab", made: "xy",
			want: planned{Bound: "ab", Listed: "ab", Message: "Successfully claimed 2/2 sandboxes", Ended: "AllReplicasClaimed"},
		},
		"more was found than there is room for": {
			claim: []change{of(5), orMade}, state: room(3), pooled: "ab", made: "xyz",
			want: planned{Bound: "ab", Made: "x*", Listed: "ab", Message: "Claiming sandboxes: 2/5 claimed", Wants: Wants{Need: 2}, Until: soon},
		},
		"all or nothing is never cut: it is for the transaction to be too large": {
			claim: []change{of(3), atOnce}, state: room(2), pooled: "abc",
			want: planned{Bound: "abc", Listed: "abc", Message: "Successfully claimed 3/3 sandboxes", Ended: "AllReplicasClaimed"},
		},
		"nor when it is counted": {
			claim: []change{of(2), atOnce}, held: map[string]held{"a": isReady, "b": isReady}, state: room(1),
			want: planned{Counted: "ab", Listed: "ab", Message: "Successfully claimed 2/2 sandboxes", Ended: "AllReplicasClaimed"},
		},
		"all or nothing is counted with what comes last": {
			claim: []change{of(3), atOnce}, held: map[string]held{"a": isReady, "b": isReady}, pooled: "c",
			want: planned{Counted: "ab", Bound: "c", Listed: "abc", Message: "Successfully claimed 3/3 sandboxes", Ended: "AllReplicasClaimed"},
		},
		"or waits with it": {
			claim: []change{of(3), atOnce}, held: map[string]held{"a": isReady, "b": isPending}, pooled: "c",
			want: planned{Bound: "c*", Message: "Claiming sandboxes: 0/3 claimed", Until: sooner},
		},
		"it is too much for its pools, whatever is on its way": {
			claim: []change{of(3), atOnce}, held: map[string]held{"a": isPending},
			want: planned{Message: "Claiming sandboxes: 0/3 claimed; waits for 2 sandboxes of SandboxSet pool", Wants: Wants{Need: 2, AtOnce: true, Yields: true}, Until: sooner},
		},
		"it lets go before it begins again": {
			claim: []change{of(2), atOnce}, held: map[string]held{"a": isReady, "b": isTooLate},
			want: planned{
				Released: "b", Message: "Claiming sandboxes: 0/2 claimed; waits for 1 sandbox of SandboxSet pool; 1 failed in preparation: b: it was not ready in time",
				Wants: Wants{Need: 1, AtOnce: true}, Until: soon,
			},
		},
		"or counts": {
			claim: []change{of(1), atOnce}, held: map[string]held{"a": isReady, "b": isTooLate},
			want: planned{Released: "b", Message: "Claiming sandboxes: 0/1 claimed; 1 failed in preparation: b: it was not ready in time", Until: soon},
		},
		"what a client counted is not waited for": {
			claim: []change{of(3), atOnce, lists(1)}, held: map[string]held{"a": isReady}, pooled: "b",
			want: planned{Counted: "a", Bound: "b", Listed: "ab", Message: "Successfully claimed 3/3 sandboxes", Ended: "AllReplicasClaimed"},
		},
		"a claim with all it asked for lets the others go": {
			claim: []change{of(1), lists(1)}, held: map[string]held{"a": isReady, "b": isPending},
			want: planned{Released: "ab", Message: "Successfully claimed 1/1 sandboxes", Ended: "AllReplicasClaimed"},
		},
		"and ends when it has": {
			claim: []change{of(1), lists(1)}, held: map[string]held{"a": isReady, "b": isPending}, state: room(1),
			want: planned{Released: "a", Message: "Claiming sandboxes: 1/1 claimed", Until: soon},
		},
		"waits no longer than for the first": {
			claim: []change{of(2)}, held: map[string]held{"a": isPending, "b": isNearlyTooLate},
			want: planned{Message: "Claiming sandboxes: 0/2 claimed", Until: time.Second},
		},

		"nothing serves it": {
			claim: []change{of(2), lists(0, "a")}, state: noSet,
			want: planned{Listed: "a", Message: "no set", Wants: Wants{Need: 1, Yields: true}, Until: soon, Problem: "SandboxSetNotFound"},
		},
		"nothing could serve it": {
			claim: []change{of(2), lists(0, "a")}, state: both(noSet, expire),
			want: planned{Listed: "a", Message: "no set", Ended: "SandboxSetNotFound", Problem: "SandboxSetNotFound"},
		},
		"it has what it needs of what is gone": {
			claim: []change{of(1)}, held: map[string]held{"a": isPending}, state: noSet,
			want: planned{Message: "no set", Until: sooner},
		},
		"none can be made": {
			claim: []change{of(2), orMade}, offer: noTemplate, pooled: "a",
			want: planned{
				Bound: "a", Listed: "a", Message: "Claiming sandboxes: 1/2 claimed; waits for 1 sandbox of SandboxSet pool; no fresh sandboxes can be made: no template",
				Wants: Wants{Need: 1}, Until: soon, Broken: "no template",
			},
		},
		"none can be made, and none need be": {
			claim: []change{of(1), orMade}, offer: noTemplate, pooled: "a",
			want: planned{Bound: "a", Listed: "a", Message: "Successfully claimed 1/1 sandboxes", Ended: "AllReplicasClaimed"},
		},
		"none can be made for all or nothing": {
			claim: []change{of(2), orMade, atOnce}, offer: noTemplate, pooled: "a",
			want: planned{
				Message: "Claiming sandboxes: 0/2 claimed; waits for 2 sandboxes of SandboxSet pool; no fresh sandboxes can be made: no template",
				Wants:   Wants{Need: 2, AtOnce: true}, Until: soon, Broken: "no template",
			},
		},
		"none could be made in its time": {
			claim: []change{of(2), orMade}, state: expire, offer: noTemplate,
			want: planned{
				Message: "Timeout reached after 1m0s, claimed 0/2 sandboxes; no fresh sandboxes can be made: no template",
				Ended:   "TimeoutReached", Broken: "no template",
			},
		},
		"it was never found out": {
			claim: []change{of(2), orMade}, state: func(s *State) { expire(s); s.Eligible, s.Broken = claims.Eligible{}, errors.New("away") },
			want: planned{
				Message: "Timeout reached after 1m0s, claimed 0/2 sandboxes; no fresh sandboxes can be made: away",
				Ended:   "TimeoutReached", Broken: "away",
			},
		},

		"its time is up": {
			claim: []change{of(3), lists(0, "a")}, held: map[string]held{"b": isReady, "c": isPending}, state: expire,
			want: planned{
				Released: "c", Counted: "b", Listed: "ab", Ended: "TimeoutReached",
				Message: "Timeout reached after 1m0s, claimed 2/3 sandboxes; 1 failed in preparation: c: it was not ready in time",
			},
		},
		"its time is up, and it has all": {
			claim: []change{of(1)}, held: map[string]held{"a": isReady}, state: expire,
			want: planned{Counted: "a", Listed: "a", Message: "Successfully claimed 1/1 sandboxes", Ended: "AllReplicasClaimed"},
		},
		"its time is up, and it has more to let go": {
			claim: []change{of(3)}, held: map[string]held{"a": isPending, "b": isPending}, state: both(expire, room(1)),
			want: planned{Released: "a", Message: "Claiming sandboxes: 0/3 claimed; 1 failed in preparation: a: it was not ready in time"},
		},
		"its time is up before all is there": {
			claim: []change{of(3), atOnce}, held: map[string]held{"a": isReady, "b": isPending}, state: expire,
			want: planned{
				Released: "ba", Message: "Timeout reached after 1m0s, claimed 0/3 sandboxes; 1 failed in preparation: b: it was not ready in time",
				Ended: "TimeoutReached",
			},
		},
		"its time is up just when all is there": {
			claim: []change{of(2), atOnce}, held: map[string]held{"a": isReady, "b": isReady}, state: expire,
			want: planned{Counted: "ab", Listed: "ab", Message: "Successfully claimed 2/2 sandboxes", Ended: "AllReplicasClaimed"},
		},

		"refused": {
			claim: []change{of(3), orMade}, held: map[string]held{"a": isReady}, state: refused,
			want: planned{Counted: "a", Listed: "a", Message: "not allowed", Ended: "EnvVarsInjectionRejected"},
		},
		"refused, with some on their way": {
			claim: []change{of(3), orMade}, held: map[string]held{"a": isReady, "b": isPending}, state: refused,
			want: planned{
				Counted: "a", Listed: "a", Message: "Claiming sandboxes: 1/3 claimed; no fresh sandboxes can be made: not allowed",
				Until: sooner, Broken: "not allowed",
			},
		},
		"refused, all or nothing": {
			claim: []change{of(2), orMade, atOnce}, held: map[string]held{"a": isPending}, state: refused,
			want: planned{Released: "a", Message: "not allowed", Ended: "EnvVarsInjectionRejected"},
		},
		"refused, and nothing is missing": {
			claim: []change{of(1), orMade}, held: map[string]held{"a": isPending}, state: refused,
			want: planned{Message: "Claiming sandboxes: 0/1 claimed", Until: sooner},
		},
		"too large": {
			claim: []change{of(2), atOnce}, held: map[string]held{"a": isReady, "b": isReady},
			state: func(s *State) { s.Refused = &RefusedError{Reason: v1alpha1.ReasonTooLarge, Message: "too large"} },
			want:  planned{Released: "ab", Message: "too large", Ended: "TooLarge"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.claim...)
			for _, name := range slices.Sorted(maps.Keys(tc.held)) {
				s.holds(t, name, tc.held[name])
			}
			if tc.state != nil {
				tc.state(&s)
			}
			p := s.next(t, tc.offer, tc.pooled, tc.made)
			if diff := cmp.Diff(tc.want, inShort(&s, p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if p.Took != s.Now.Sub(birth) || p.ChangesSandboxes() != (len(tc.want.Released+tc.want.Counted+tc.want.Bound+tc.want.Made) > 0) {
				t.Errorf("took %s, binds %t", p.Took, p.ChangesSandboxes())
			}
			for _, sb := range slices.Concat(p.Bound, p.Made) {
				if lock := sb.Annotations[v1alpha1.AnnotationLock]; lock != "lock of "+sb.Name {
					t.Errorf("%s has the lock %q", sb.Name, lock)
				}
			}
		})
	}
}

// TestDatedWhenBound: not when it was taken for a claim that waits for more.
func TestDatedWhenBound(t *testing.T) {
	s := stateOf(of(2), atOnce)
	for _, sb := range s.next(t, Offer{}, "ab", "").Bound {
		if got := boundAt(sb); !got.Equal(s.Now) {
			t.Errorf("%s was bound at %v, it is %v", sb.Name, got, s.Now)
		}
	}
}

// TestMadeAreDatedWhenWritten: and not when they were made, of which the transaction may
// have been lost. Without a date they stay so: admission took it.
func TestMadeAreDatedWhenWritten(t *testing.T) {
	s := stateOf(of(2), orMade)
	o := Offer{Made: s.next(t, Offer{}, "", "ab").Made}
	o.Made[1].Annotations = nil
	s.Now = s.Now.Add(time.Second)
	before := o.Made[0].DeepCopy()
	made := s.next(t, o, "", "").Made
	if got := boundAt(made[0]); !got.Equal(s.Now) || len(made[1].Annotations) > 0 {
		t.Errorf("became the claim's at %v, it is %v; %v", got, s.Now, made[1].Annotations)
	}
	if diff := cmp.Diff(before, o.Made[0]); diff != "" {
		t.Errorf("what is offered changed (-before +after):\n%s", diff)
	}
}

func TestUnreadableTemplates(t *testing.T) {
	s := stateOf(of(1))
	broken := stocked("a")
	broken.Spec.Template.Raw = []byte(`[]`)
	if p, err := Assess(s).Next(Offer{Candidates: []Candidate{{Sandbox: broken, Template: broken.Spec.Template}}}, marksOf(t, s.Claim)); err == nil {
		t.Errorf("planned %+v", p)
	}
}

// TestStartIsHealed: a client that rewrote the status gives the claim no more time.
func TestStartIsHealed(t *testing.T) {
	s := stateOf(of(2))
	s.Claim.Status = v1alpha1.SandboxClaimStatus{}
	p := s.next(t, Offer{}, "", "")
	if start := p.Claim.Status.ClaimStartTime; start == nil || !start.Time.Equal(birth) || p.Claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming {
		t.Errorf("status %+v", p.Claim.Status)
	}
	if !p.Until.Equal(birth.Add(time.Minute)) {
		t.Errorf("continues until %v", p.Until)
	}
}
