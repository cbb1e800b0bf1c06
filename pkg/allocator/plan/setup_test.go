// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

// noInit and noMount are why setups fail.
var (
	noInit = &claims.SetupError{
		Condition: v1alpha1.SandboxConditionRuntimeInitialized, Reason: v1alpha1.ReasonRuntimeInitFailed, Message: "no init; at all",
	}
	noMount = &claims.SetupError{
		Condition: v1alpha1.SandboxConditionVolumesMounted, Reason: v1alpha1.ReasonMountFailed, Message: "no driver",
	}
)

func hasRuntime(sb *v1alpha1.Sandbox) {
	sb.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
}

func withMounts(c *v1alpha1.SandboxClaim) {
	c.Spec.DynamicVolumesMount = []v1alpha1.CSIMountConfig{{PvName: "data", MountPath: "/data"}}
}

func skips(c *v1alpha1.SandboxClaim) { c.Spec.SkipInitRuntime = true }

// hasPoolToken is a sandbox whose runtime has got a token in its pool.
func hasPoolToken(sb *v1alpha1.Sandbox) {
	sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] = "1/pod.0"
}

func markedBy(mark string) held {
	return func(sb *v1alpha1.Sandbox) { sb.Annotations[v1alpha1.AnnotationMounting] = mark }
}

// noted is a sandbox that says that it has to be set up, whatever its template says.
func noted(sb *v1alpha1.Sandbox) {
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionRuntimeInitialized, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPending,
		LastTransitionTime: metav1.NewTime(birth),
	})
}

// TestSetupProgress: what becomes of a sandbox that is starting, and ready, by what is
// known of its setup.
func TestSetupProgress(t *testing.T) {
	succeeded, failed := &SetupResult{}, &SetupResult{Failed: noInit}
	tests := map[string]struct {
		claim   []change
		held    held
		result  *SetupResult
		servers []string
		// What the plan does with the sandbox, and if its setup is to begin.
		counts, fails, marks, begins bool
	}{
		"it has no runtime":               {held: isReady, counts: true},
		"it is not set up":                {held: hasRuntime, begins: true},
		"it is set up":                    {held: hasRuntime, result: succeeded, counts: true},
		"it failed":                       {held: hasRuntime, result: failed, fails: true},
		"it is not ready":                 {held: all(hasRuntime, isPending)},
		"it is not ready any more":        {held: all(hasRuntime, isPending), result: succeeded},
		"it is being resized":             {held: all(hasRuntime, isResizing)},
		"its claim skips that":            {claim: []change{skips}, held: hasRuntime, counts: true},
		"its claim skips that now":        {claim: []change{skips}, held: all(hasRuntime, noted), begins: true},
		"its claim skips that, a token":   {claim: []change{skips}, held: all(hasRuntime, hasPoolToken), counts: true},
		"its claim skips that, changed":   {claim: []change{skips}, held: all(hasRuntime, hasPoolToken, isResized), begins: true},
		"its claim skips that, no token":  {claim: []change{skips}, held: all(hasRuntime, isResized), counts: true},
		"somebody took its runtime away":  {held: noted, begins: true},
		"it is too late":                  {held: all(hasRuntime, noted, atTime(31*time.Second)), fails: true},
		"it is too late, but done":        {held: all(hasRuntime, noted, atTime(31*time.Second)), result: succeeded, counts: true},
		"mounts have no mark":             {claim: []change{withMounts}, held: hasRuntime, marks: true},
		"mounts have this mark":           {claim: []change{withMounts}, held: all(hasRuntime, markedBy("me/1")), begins: true},
		"mounts are done":                 {claim: []change{withMounts}, held: all(hasRuntime, markedBy("me/1")), result: succeeded, counts: true},
		"mounts are of a server":          {claim: []change{withMounts}, held: all(hasRuntime, markedBy("it/1")), servers: []string{"it", "me"}},
		"mounts are of one that is gone":  {claim: []change{withMounts}, held: all(hasRuntime, markedBy("it/1")), servers: []string{"me"}, fails: true},
		"mounts are of who knows":         {claim: []change{withMounts}, held: all(hasRuntime, markedBy("it/1"))},
		"mounts are of this one, before":  {claim: []change{withMounts}, held: all(hasRuntime, markedBy("me/0")), servers: []string{"me"}, fails: true},
		"mounts wait for the pod":         {claim: []change{withMounts}, held: all(hasRuntime, isPending)},
		"a mark, and the claim has none":  {held: all(hasRuntime, markedBy("it/1")), servers: []string{"me"}, fails: true},
		"all or nothing, and it is alone": {claim: []change{atOnce}, held: hasRuntime, result: succeeded},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(slices.Concat([]change{of(2)}, tc.claim)...)
			s.holds(t, "a", tc.held)
			s.Setups = Setups{Mounting: "me/1", Servers: tc.servers, Results: map[types.UID]SetupResult{}}
			if tc.result != nil {
				s.Setups.Results["a"] = *tc.result
			}
			p := s.next(t, Offer{}, "", "")
			type outcome struct{ Counts, Fails, Marks, Begins bool }
			got := outcome{namesOf(p.Counted) == "a", namesOf(p.Released) == "a", namesOf(p.Marked) == "a", namesOf(s.ToSetUp()) == "a"}
			if want := (outcome{tc.counts, tc.fails, tc.marks, tc.begins}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if failed := p.Claim.Status.FailedReplicas; (failed == 1) != tc.fails {
				t.Errorf("%d failed", failed)
			}
			if len(p.Marked) == 1 && p.Marked[0].Annotations[v1alpha1.AnnotationMounting] != "me/1" {
				t.Errorf("is marked %v", p.Marked[0].Annotations)
			}
		})
	}
}

// atTime is a sandbox that became its claim's so long before the plan.
func atTime(ago time.Duration) held {
	return func(sb *v1alpha1.Sandbox) {
		sb.Annotations[v1alpha1.AnnotationClaimTimestamp] = birth.Add(passed - ago).Format(time.RFC3339)
	}
}

// TestSetupConditions: what a sandbox says of its setup, from its binding to its end.
func TestSetupConditions(t *testing.T) {
	const initialized, mounted = v1alpha1.SandboxConditionRuntimeInitialized, v1alpha1.SandboxConditionVolumesMounted
	tests := map[string]struct {
		claim  []change
		held   held
		result *SetupResult
		want   string
	}{
		"bound":                  {nil, nil, nil, "RuntimeInitialized False/Pending"},
		"bound, with mounts":     {[]change{withMounts}, nil, nil, "RuntimeInitialized False/Pending, VolumesMounted False/Pending"},
		"it counts":              {nil, hasRuntime, &SetupResult{}, "RuntimeInitialized True/Succeeded"},
		"it counts, with mounts": {[]change{withMounts}, all(hasRuntime, markedBy("me/1")), &SetupResult{}, "RuntimeInitialized True/Succeeded, VolumesMounted True/Succeeded"},
		"it failed":              {nil, hasRuntime, &SetupResult{Failed: noInit}, "RuntimeInitialized False/Failed no init, at all"},
		"its mounts failed":      {[]change{withMounts}, hasRuntime, &SetupResult{Failed: noMount}, "RuntimeInitialized True/Succeeded, VolumesMounted False/Failed no driver"},
		"it was too late":        {nil, all(hasRuntime, atTime(31*time.Second)), nil, "RuntimeInitialized False/Failed its agent-runtime was not set up in time"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(slices.Concat([]change{of(1)}, tc.claim)...)
			s.Setups = Setups{Mounting: "me/1", Servers: []string{"me"}, Results: map[types.UID]SetupResult{}}
			var o Offer
			if tc.held != nil {
				s.holds(t, "a", tc.held)
			} else {
				sb := stocked("a")
				hasRuntime(sb)
				noted(sb) // of a claim before
				o.Candidates = []Candidate{{Sandbox: sb, Template: sb.Spec.Template, Lock: "lock"}}
			}
			if tc.result != nil {
				s.Setups.Results["a"] = *tc.result
			}
			all, _ := s.next(t, o, "", "").Sandboxes()
			var got []string
			for _, kind := range []string{initialized, mounted} {
				if c := meta.FindStatusCondition(all[0].Status.Conditions, kind); c != nil {
					got = append(got, strings.TrimSpace(kind+" "+string(c.Status)+"/"+c.Reason+" "+c.Message))
				}
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if mark := all[0].Annotations[v1alpha1.AnnotationMounting]; (mark != "") != (name == "bound, with mounts") {
				t.Errorf("is marked %q", mark)
			}
		})
	}
}

// TestSealedOnce: what is kept of the setup is worked out once for all sandboxes of a
// claim, and not at all where there is none.
func TestSealedOnce(t *testing.T) {
	s := stateOf(of(4))
	var o Offer
	for _, name := range []string{"a", "b", "c", "private"} {
		sb := stocked(name)
		switch name {
		case "a", "b":
			hasRuntime(sb)
		case "private": // its ports have a token all the same
			sb.Annotations = map[string]string{v1alpha1.AnnotationE2BPrivate: "true"}
		}
		o.Candidates = append(o.Candidates, Candidate{Sandbox: sb, Template: sb.Spec.Template, Lock: "lock"})
	}
	marks := marksOf(t, s.Claim)
	asked := 0
	marks.Seal = func(*v1alpha1.SandboxClaim) (string, string, error) { asked++; return "sealed", "7", nil }
	p, err := Assess(s).Next(o, marks)
	if err != nil || asked != 1 {
		t.Errorf("sealed %d times, %v", asked, err)
	}
	kept := map[string]string{}
	for _, sb := range p.Bound {
		kept[sb.Name] = sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest] + "/" + sb.Annotations[v1alpha1.AnnotationRuntimeKeyVersion]
	}
	if want := map[string]string{"a": "sealed/7", "b": "sealed/7", "c": "/", "private": "/7"}; !maps.Equal(kept, want) {
		t.Errorf("kept %v", kept)
	}
	if p.Claim.Status.ClaimedReplicas != 2 || !slices.Equal(marks.WithoutRuntime(), []string{"SandboxSet pool"}) {
		t.Errorf("%d count, without runtime are %v", p.Claim.Status.ClaimedReplicas, marks.WithoutRuntime())
	}
}

// TestChangedInPlaceWithoutASetup: a claim that skips the setup of runtimes gives one the token of
// its pool again where the sandbox is changed in place, because that restarts it, and nothing else.
func TestChangedInPlaceWithoutASetup(t *testing.T) {
	for name, goal := range map[string]inplace.Goal{"as it is": {}, "changed": {Image: true}} {
		s := stateOf(of(1), inPlace, skips, withEnv)
		sb := stocked("a")
		hasRuntime(sb)
		sb.Annotations = map[string]string{}
		hasPoolToken(sb)
		marks := marksOf(t, s.Claim)
		marks.Seal = func(*v1alpha1.SandboxClaim) (string, string, error) { return "sealed", "7", nil }
		p, err := Assess(s).Next(Offer{Candidates: []Candidate{{Sandbox: sb, Template: templateFor(s.Claim), InPlace: goal, Lock: "lock"}}}, marks)
		if err != nil || len(p.Bound) != 1 {
			t.Fatalf("%s: bound %v, %v", name, p.Bound, err)
		}
		bound := p.Bound[0]
		if claims.SetupPending(&bound.Status) != goal.Any() {
			t.Errorf("%s: it says %+v", name, bound.Status.Conditions)
		}
		if bound.Annotations[v1alpha1.AnnotationInitRuntimeRequest] != "" || bound.Annotations[v1alpha1.AnnotationRuntimeKeyVersion] != "" {
			t.Errorf("%s: it keeps %v", name, bound.Annotations)
		}
	}
}

// TestRuntimeOf: a runtime that was restarted is another one, also where the pod was not seen unready.
func TestRuntimeOf(t *testing.T) {
	of := func(restarts *int32) Runtime {
		sb := stocked("a")
		sb.Status.PodInfo.RestartCount = restarts
		return RuntimeOf(sb)
	}
	unknown, none, one := of(nil), of(new(int32(0))), of(new(int32(1)))
	for name, test := range map[string]struct {
		before, after Runtime
		same          bool
	}{
		"restarted":        {none, one, false},
		"not restarted":    {one, of(new(int32(1))), true},
		"not known before": {unknown, one, true},
		"not known after":  {one, unknown, true},
		"never known":      {unknown, unknown, true},
	} {
		if got := test.after.IsSame(test.before); got != test.same {
			t.Errorf("%s: the same is %v", name, got)
		}
	}
}
