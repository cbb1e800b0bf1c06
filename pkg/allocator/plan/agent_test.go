// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// fromAgents makes a claim one of agent-sandbox.
func fromAgents(c *v1alpha1.SandboxClaim) {
	c.Annotations = map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}
	c.Spec.TemplateName, c.Spec.WarmPoolRef = "", &v1alpha1.SandboxClaimWarmPoolRef{Name: "pool"}
	c.Spec.Replicas, c.Spec.CreateOnNoStock = new(int32(1)), new(true)
	c.Spec.Allocation, c.Spec.OnShortage, c.Spec.ReclaimPolicy = v1alpha1.AllocationBestEffort, v1alpha1.ShortageWait, v1alpha1.ReclaimDelete
}

// agentReady is the condition Ready of a claim of agent-sandbox after a plan, in short.
func agentReady(p *Plan) string {
	c := meta.FindStatusCondition(p.Claim.Status.Conditions, v1alpha1.ClaimConditionReady)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// TestNextOfAgentSandbox: what a claim of agent-sandbox says of what it has, or why it has
// nothing, and that it continues whatever it is.
func TestNextOfAgentSandbox(t *testing.T) {
	problem := func(p claims.Problem) func(*State) {
		return func(s *State) { s.Eligible = claims.Eligible{Problem: &p} }
	}
	refused := func(reason, message string) func(*State) {
		return func(s *State) { s.Refused = &RefusedError{Reason: reason, Message: message} }
	}
	tests := map[string]struct {
		state        func(*State)
		holds        func(t *testing.T, s *State)
		offer        Offer
		pooled, made string
		want         string // Ready
		sandbox      string // the annotation of the claim
		completed    bool
	}{
		"warm": {pooled: "a", want: "True DependenciesReady: Pod is Ready", sandbox: "a", completed: true},
		"cold": {made: "m", want: "False DependenciesNotReady: Pod does not exist", sandbox: "m"},
		"cold, and started": {holds: func(t *testing.T, s *State) { s.holds(t, "m") },
			want: "True DependenciesReady: Pod is Ready", sandbox: "m", completed: true},
		"starting for longer than others may": {holds: func(t *testing.T, s *State) { s.holds(t, "m", isTooLate) },
			want: "False DependenciesNotReady: Pod does not exist", sandbox: "m"},
		"no pool": {state: problem(claims.Problem{Missing: true, Name: "pool", Reason: v1alpha1.ReasonSandboxSetNotFound}),
			want: `False WarmPoolNotFound: SandboxWarmPool "pool" not found`},
		"no template": {state: problem(claims.Problem{Missing: true, Name: "base", Reason: v1alpha1.ReasonTemplateNotFound}),
			want: `False TemplateNotFound: SandboxTemplate "base" not found`},
		"a pool of another template": {state: problem(claims.Problem{Name: "pool", Reason: v1alpha1.ReasonWarmPoolMismatch, Message: "it is of another"}),
			want: "False ReconcilerError: Error seen: it is of another"},
		"a pool without its template": {
			state: func(s *State) { s.Eligible.MakeFrom.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: "base"} },
			offer: Offer{Broken: fmt.Errorf("x: %w", podtemplate.ErrTemplateNotFound)},
			want:  `False TemplateNotFound: SandboxTemplate "base" not found`},
		"a template that cannot be used": {offer: Offer{Broken: errors.New("a cycle")}, want: "False ReconcilerError: Error seen: a cycle"},
		"no env": {state: refused(v1alpha1.ReasonEnvVarsInjectionRejected, "environment variable injection rejected: A"),
			want: "False EnvVarsInjectionRejected: environment variable injection rejected: A"},
		"no volumes": {state: refused(v1alpha1.ReasonVolumeClaimTemplatesRejected, "not allowed"), want: "False VolumeClaimTemplatesError: not allowed"},
		"no metadata": {state: refused(v1alpha1.ReasonInvalidMetadata, "invalid additionalPodMetadata: team"),
			want: "False InvalidMetadata: invalid additionalPodMetadata: team"},
		"metadata of the template's": {
			state: func(s *State) {
				s.Refused = &RefusedError{Reason: v1alpha1.ReasonInvalidMetadata, Message: "the template says so", Conflict: true}
			},
			want: "False ReconcilerError: Error seen: the template says so"},
		"its name is another's": {state: func(s *State) { s.Making.Name = NameTaken },
			want: "False ReconcilerError: Error seen: a Sandbox named mine exists that is not this claim's; delete it, or create the claim under another name"},
		"admission": {state: func(s *State) { s.Making.Denied = errors.New("no room") }, want: "False ReconcilerError: Error seen: no room"},
		"its name is that of one that leaves": {state: func(s *State) { s.Making.Name = NameLeaving },
			want: "False SandboxMissing: Sandbox does not exist; it is made when the one named mine, which is being deleted, is gone"},
		"none yet": {want: "False SandboxMissing: Sandbox does not exist"},
	}
	for name, tc := range tests {
		for _, age := range []time.Duration{passed, 1000 * time.Hour} { // no time ends its wait
			t.Run(fmt.Sprint(name, " after ", age), func(t *testing.T) {
				s := stateOf(fromAgents)
				s.Now = birth.Add(age)
				if tc.state != nil {
					tc.state(&s)
				}
				if tc.holds != nil {
					tc.holds(t, &s)
				}
				p := s.next(t, tc.offer, tc.pooled, tc.made)
				if got := agentReady(p); got != tc.want {
					t.Errorf("Ready is %s, want %s", got, tc.want)
				}
				if got := p.Claim.Annotations[v1alpha1.AgentAnnotationSandboxName]; got != tc.sandbox {
					t.Errorf("it names %q, want %q", got, tc.sandbox)
				}
				if p.Ends() != tc.completed || len(p.Released) > 0 {
					t.Errorf("completed is %v, want %v; %s is let go", p.Ends(), tc.completed, namesOf(p.Released))
				}
				// The next plan finds nothing new to say.
				s.Claim, s.Held = p.Claim, append(s.Held, p.Bound...)
				s.Held = append(s.Held, p.Made...)
				if tc.holds != nil || tc.completed {
					return
				}
				if again := s.next(t, tc.offer, "", ""); again.Changes() {
					t.Errorf("it is written again: %s, then %s", agentReady(p), agentReady(again))
				}
			})
		}
	}
}

// TestNewAgentClaim: the create of a claim is answered with the whole of it.
func TestNewAgentClaim(t *testing.T) {
	s := stateOf(fromAgents)
	isNew(&s)
	p := s.next(t, Offer{}, "a", "")
	if got := agentReady(p); got != "True DependenciesReady: Pod is Ready" {
		t.Error(got)
	}
	if c := meta.FindStatusCondition(p.Claim.Status.Conditions, v1alpha1.ClaimConditionReady); c.LastTransitionTime.IsZero() || c.ObservedGeneration != 1 {
		t.Errorf("Ready is %+v", c)
	}
	if !p.Ends() || len(p.Claim.Status.Sandboxes) != 1 {
		t.Errorf("it is not bound: %+v", p.Claim.Status)
	}
}

// TestMarksOfAgentSandbox: what is on a sandbox that a claim of either API binds, has made,
// and releases.
func TestMarksOfAgentSandbox(t *testing.T) {
	member := stocked("a")
	member.Labels[v1alpha1.AgentLabelPool] = v1alpha1.NameHash("pool")
	for name, tc := range map[string]struct {
		change change
		agent  bool
	}{
		"of our own API":   {func(*v1alpha1.SandboxClaim) {}, false},
		"of agent-sandbox": {fromAgents, true},
	} {
		t.Run(name, func(t *testing.T) {
			claim := claimOf(tc.change)
			marks := marksOf(t, claim)
			warm, _, err := bindWith(marks, &Candidate{Sandbox: member, Template: member.Spec.Template, Lock: "lock"}, birth)
			if err != nil {
				t.Fatal(err)
			}
			setCounted(warm, claim, true)
			cold, err := marks.NewSandbox(member, nil, claim.Name, "uid", "lock", birth)
			if err != nil {
				t.Fatal(err)
			}
			for launch, sb := range map[string]*v1alpha1.Sandbox{v1alpha1.AgentLaunchWarm: warm, v1alpha1.AgentLaunchCold: cold} {
				if _, pooled := sb.Labels[v1alpha1.AgentLabelPool]; pooled {
					t.Errorf("%s: still in the pool", launch)
				}
				want := map[string]string{}
				if tc.agent {
					want = map[string]string{
						v1alpha1.AgentLabelClaimUID: "claim-uid", v1alpha1.AgentLabelLaunchType: launch,
						v1alpha1.AgentAnnotationPodName: sb.Name, v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup,
					}
				}
				for _, key := range []string{v1alpha1.AgentLabelClaimUID, v1alpha1.AgentLabelLaunchType} {
					if sb.Labels[key] != want[key] {
						t.Errorf("%s: label %s is %q", launch, key, sb.Labels[key])
					}
				}
				for _, key := range []string{v1alpha1.AgentAnnotationPodName, v1alpha1.AnnotationAPI} {
					if sb.Annotations[key] != want[key] {
						t.Errorf("%s: annotation %s is %q", launch, key, sb.Annotations[key])
					}
				}
				if owner := metav1.GetControllerOf(sb); tc.agent && (owner == nil || owner.UID != claim.UID ||
					owner.APIVersion != v1alpha1.ExtensionsGroup+"/v1beta1" || owner.Kind != "SandboxClaim") {
					t.Errorf("%s: the controller is %+v", launch, owner)
				}
				if left := Release(sb, birth); left.Labels[v1alpha1.AgentLabelClaimUID] != "" || len(left.OwnerReferences) > 0 {
					t.Errorf("%s: let go, and still the claim's: %v %v", launch, left.Labels, left.OwnerReferences)
				}
			}
			if member.Labels[v1alpha1.AgentLabelPool] == "" {
				t.Error("the member in the cache is changed")
			}
		})
	}
}

// TestClaimDefaults: a claim of agent-sandbox without a lifecycle gets the lifecycle of the pool
// together with its sandbox, whether that was in the pool or is made for it, and never later.
func TestClaimDefaults(t *testing.T) {
	defaults := &v1alpha1.SandboxClaimDefaults{Lifecycle: &v1alpha1.SandboxClaimLifecycle{
		ShutdownPolicy: v1alpha1.ShutdownDelete, TTLSecondsAfterFinished: new(int32(10)),
	}}
	own := &v1alpha1.SandboxClaimLifecycle{ShutdownPolicy: v1alpha1.ShutdownRetain}
	says := func(c *v1alpha1.SandboxClaim) { c.Spec.Lifecycle = own }
	for name, tc := range map[string]struct {
		changes      []change
		defaults     *v1alpha1.SandboxClaimDefaults
		pooled, made string
		holds        bool
		want         *v1alpha1.SandboxClaimLifecycle
	}{
		"warm":                {changes: []change{fromAgents}, defaults: defaults, pooled: "a", want: defaults.Lifecycle},
		"cold":                {changes: []change{fromAgents}, defaults: defaults, made: "m", want: defaults.Lifecycle},
		"its own":             {changes: []change{fromAgents, says}, defaults: defaults, pooled: "a", want: own},
		"none":                {changes: []change{fromAgents}, pooled: "a"},
		"empty":               {changes: []change{fromAgents}, defaults: &v1alpha1.SandboxClaimDefaults{}, pooled: "a"},
		"without a sandbox":   {changes: []change{fromAgents}, defaults: defaults},
		"it has its sandbox":  {changes: []change{fromAgents}, defaults: defaults, holds: true},
		"of agents.kruise.io": {changes: []change{of(1)}, defaults: defaults, pooled: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.changes...)
			s.Eligible.MakeFrom.Spec.ClaimDefaults = tc.defaults
			if tc.holds {
				s.holds(t, "m")
			}
			p := s.next(t, Offer{}, tc.pooled, tc.made)
			if diff := cmp.Diff(tc.want, p.Claim.Spec.Lifecycle); diff != "" {
				t.Errorf("lifecycle (-want +got):\n%s", diff)
			}
			if got := p.Claim.Spec.Lifecycle; got != nil && got == defaults.Lifecycle {
				t.Error("the claim shares the lifecycle of the pool")
			}
		})
	}
}

// TestPoolIsNoted: a claim that only names a template says in the end which pool has served
// it, and is the same claim for that.
func TestPoolIsNoted(t *testing.T) {
	s := stateOf(fromAgents, func(c *v1alpha1.SandboxClaim) {
		c.Spec.WarmPoolRef, c.Spec.SandboxTemplateRef = nil, &v1alpha1.SandboxClaimTemplateRef{Name: "base"}
	})
	p := s.next(t, Offer{}, "a", "")
	if ref := p.Claim.Spec.WarmPoolRef; ref == nil || ref.Name != p.Bound[0].Labels[v1alpha1.LabelSandboxPool] {
		t.Errorf("the pool is %v", ref)
	}
	if p.Claim.Generation != s.Claim.Generation || s.Claim.Spec.WarmPoolRef != nil {
		t.Errorf("generation %d after %d; the claim before has %v", p.Claim.Generation, s.Claim.Generation, s.Claim.Spec.WarmPoolRef)
	}
}

// TestSafeToEvictPasses: it is the one key of a platform that a claim of agent-sandbox
// brings its pod, and others bring none.
func TestSafeToEvictPasses(t *testing.T) {
	brings := func(c *v1alpha1.SandboxClaim) {
		c.Spec.AdditionalPodMetadata = &v1alpha1.PodMetadata{Annotations: map[string]string{
			v1alpha1.AnnotationSafeToEvict: "false", "sidecar.istio.io/inject": "false",
		}}
	}
	for name, tc := range map[string]struct {
		change change
		passes bool
	}{
		"of agent-sandbox": {func(c *v1alpha1.SandboxClaim) { fromAgents(c); brings(c) }, true},
		"of our own API":   {brings, false},
	} {
		t.Run(name, func(t *testing.T) {
			template, err := marksOf(t, claimOf(tc.change)).template([]byte(`{"spec":{}}`), nil, "")
			if err != nil {
				t.Fatal(err)
			}
			pod, err := v1alpha1.PodTemplate(&runtime.RawExtension{Raw: template.raw})
			if err != nil {
				t.Fatal(err)
			}
			if _, passes := pod.Annotations[v1alpha1.AnnotationSafeToEvict]; passes != tc.passes || pod.Annotations["sidecar.istio.io/inject"] != "" {
				t.Errorf("the pod has %v", pod.Annotations)
			}
		})
	}
}
