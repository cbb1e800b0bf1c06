// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// withEnv is a claim on the template py that adds a variable.
func withEnv(replicas int32) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) {
		warm(replicas)(c)
		orFresh(c)
		c.Spec.WarmPool = v1alpha1.WarmPoolNone
		c.Spec.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: "b"}}
	}
}

func templateWith(policy v1alpha1.InjectionPolicy) *v1alpha1.SandboxTemplate {
	template := templateOfPod("py")
	template.Spec.EnvVarsInjectionPolicy = policy
	return template
}

// TestRefusedByWhatIsStored: and not by what a cache still has.
func TestRefusedByWhatIsStored(t *testing.T) {
	tests := map[string]struct {
		cached, now v1alpha1.InjectionPolicy
		refused     bool
	}{
		"allowed a moment ago":  {v1alpha1.InjectionDisallowed, v1alpha1.InjectionAllowed, false},
		"never allowed":         {v1alpha1.InjectionDisallowed, v1alpha1.InjectionDisallowed, true},
		"allowed, says a cache": {v1alpha1.InjectionAllowed, v1alpha1.InjectionDisallowed, false}, // as if it had come before
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.shelf.templates["py"] = templateWith(tc.cached)
			d.now = map[string]*v1alpha1.SandboxTemplate{"py": templateWith(tc.now)}
			claim := claimOf(withEnv(1))
			_, previewErr := d.Preview(t.Context(), claim)
			_, draftErr := d.job(0, withEnv(1)).draft(t.Context())
			goesOn := d.draft(d.job(5, withEnv(1)))
			r, err := d.newRecipeSurely(t.Context(), claim, &supply{template: "py"})
			if err != nil {
				t.Fatal(err)
			}
			var refused *RefusedError
			if errors.As(previewErr, &refused) != tc.refused || errors.As(draftErr, &refused) != tc.refused || (r.refused != nil) != tc.refused ||
				(goesOn.refused != nil) != tc.refused || (endOf(goesOn.claim) == resultRejected) != tc.refused {
				t.Errorf("preview: %v, create: %v, check: %v, later: %v", previewErr, draftErr, r.refused, goesOn.refused)
			}
		})
	}
}

// TestRefusedBySetsAsTheyAre: and not by what the watch has told of them.
func TestRefusedBySetsAsTheyAre(t *testing.T) {
	bySet := func(c *v1alpha1.SandboxClaim) {
		withEnv(1)(c)
		c.Spec.SandboxTemplateRef, c.Spec.TemplateName = nil, "pool"
	}
	tests := map[string]struct {
		now     []*v1alpha1.SandboxSet
		refused bool
	}{
		"it refers to another now": {[]*v1alpha1.SandboxSet{setOf("pool", "py", atVersion(12))}, false},
		"it does not":              {[]*v1alpha1.SandboxSet{setOf("pool", "strict")}, true},
		"it is gone":               {nil, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, setOf("pool", "strict"))
			d.shelf.templates["py"], d.shelf.templates["strict"] = templateWith(v1alpha1.InjectionAllowed), templateWith("")
			d.sets, d.asOf = tc.now, 12
			drafted, err := d.job(0, bySet).draft(t.Context())
			if refused := (*RefusedError)(nil); errors.As(err, &refused) != tc.refused || !tc.refused && len(drafted.fresh) != 1 {
				t.Errorf("%+v, %v", drafted, err)
			}
		})
	}
}

// TestNobodyCanTellWhetherItIsRefused: a new claim is not stored then; one that is goes
// on.
func TestNobodyCanTellWhetherItIsRefused(t *testing.T) {
	d := newDesk(t)
	d.podTemplate = errDown
	d.shelf.templates["py"] = templateWith("")
	d.shelf.templates["py"].Spec.Template = nil
	d.shelf.templates["py"].Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Kind: v1alpha1.TemplateKindPodTemplate, Name: "cluster"}
	if _, err := d.job(0, withEnv(1)).draft(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("a new claim: %v", err)
	}
	if drafted := d.draft(d.job(5, withEnv(1))); !errors.Is(drafted.broken, errDown) || !unfinished(drafted.claim) {
		t.Errorf("one that goes on: %v, %+v", drafted.broken, drafted.claim.Status)
	}
}

// TestPoliciesOfTheTemplateThatIsAskedFor: also where a set of its name counts as it.
func TestPoliciesOfTheTemplateThatIsAskedFor(t *testing.T) {
	byRef, bySet := claimOf(withEnv(1)), claimOf(func(c *v1alpha1.SandboxClaim) {
		withEnv(1)(c)
		c.Spec.SandboxTemplateRef, c.Spec.TemplateName = nil, "py"
	})
	set := setOf("py", "")
	set.Spec.Template = podOf()
	tests := map[string]struct {
		claim    *v1alpha1.SandboxClaim
		template *v1alpha1.SandboxTemplate
		refused  bool
	}{
		"of the template":          {byRef, templateWith(v1alpha1.InjectionAllowed), false},
		"a template that does not": {byRef, templateWith(""), true},
		"no template":              {byRef, nil, true},
		"the set by its own name":  {bySet, templateWith(v1alpha1.InjectionAllowed), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, set)
			d.shelf.templates["py"] = tc.template
			s, err := d.supply(t.Context(), tc.claim, false)
			if err != nil || s.set == nil {
				t.Fatalf("made from %+v, %v", s, err)
			}
			r, err := d.newRecipe(t.Context(), tc.claim, &s, d.store)
			if err != nil || (r.refused != nil) != tc.refused {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestRefusalLetsStartingOnesBe: a policy that changes takes nothing away from a claim
// but what it would still get; with AllOrNothing that is the end of it.
func TestRefusalLetsStartingOnesBe(t *testing.T) {
	prepare := func(t *testing.T, change func(*v1alpha1.SandboxClaim)) (*desk, *job) {
		d := newDesk(t)
		d.shelf.templates["py"] = templateWith("")
		j := d.job(5, func(c *v1alpha1.SandboxClaim) { withEnv(2)(c); change(c) })
		sb := pooled.DeepCopy()
		if err := j.binding.apply(sb, starting); err != nil {
			t.Fatal(err)
		}
		sb.Status = v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxPending}
		j.fresh[sb.Name] = freshSandbox{sb, d.clock.Now().Add(time.Minute)}
		return d, j
	}
	t.Run("in parts", func(t *testing.T) {
		d, j := prepare(t, func(*v1alpha1.SandboxClaim) {})
		drafted := d.draft(j)
		if status := drafted.claim.Status; len(drafted.drops)+len(drafted.fresh) != 0 || status.Phase != v1alpha1.SandboxClaimPhaseClaiming || !j.stuck.Load() {
			t.Errorf("drops %d, makes %d, %+v", len(drafted.drops), len(drafted.fresh), status)
		}
		j.fresh[pooled.Name].Status = v1alpha1.SandboxStatus{
			Phase: v1alpha1.SandboxRunning, PodInfo: v1alpha1.PodInfo{PodIP: "10.0.0.1"},
			Conditions: []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue}},
		}
		drafted = d.draft(j)
		if status := drafted.claim.Status; len(drafted.counts) != 1 || status.ClaimedReplicas != 1 || endOf(drafted.claim) != resultRejected ||
			status.Message != drafted.refused.Error() {
			t.Errorf("counts %d, %+v", len(drafted.counts), status)
		}
	})
	t.Run("all or nothing", func(t *testing.T) {
		d, j := prepare(t, func(c *v1alpha1.SandboxClaim) { c.Spec.Allocation = v1alpha1.AllocationAllOrNothing })
		drafted := d.draft(j)
		if len(drafted.drops) != 1 || drafted.claim.Status.ClaimedReplicas != 0 || endOf(drafted.claim) != resultRejected {
			t.Errorf("drops %d, %+v", len(drafted.drops), drafted.claim.Status)
		}
	})
}
