// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
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
			checkErr := d.Check(t.Context(), claim)
			_, createErr := d.newAttempt(withEnv(1)).plan(t.Context())
			next := d.nextAttempt(withEnv(1))
			goesOn := d.planned(next)
			var refused *RefusedError
			if errors.As(previewErr, &refused) != tc.refused || errors.As(createErr, &refused) != tc.refused || errors.As(checkErr, &refused) != tc.refused ||
				(next.state.Refused != nil) != tc.refused || (outcomeOf(goesOn.Claim, nil) == metrics.OutcomeRefused) != tc.refused {
				t.Errorf("preview: %v, create: %v, check: %v, later: %v", previewErr, createErr, checkErr, next.state.Refused)
			}
		})
	}
}

// TestRefusedBySetsAsTheyAre: and not by what the watch has shown of them.
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
			p, err := d.newAttempt(bySet).plan(t.Context())
			if refused := (*RefusedError)(nil); errors.As(err, &refused) != tc.refused || !tc.refused && len(p.Made) != 1 {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

// TestUnknownWhetherItIsRefused: a new claim is not stored then; one that is goes
// on.
func TestUnknownWhetherItIsRefused(t *testing.T) {
	d := newDesk(t)
	d.podTemplate = errDown
	d.shelf.templates["py"] = ofCluster()
	if _, err := d.newAttempt(withEnv(1)).plan(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("a new claim: %v", err)
	}
	if p := d.planned(d.nextAttempt(withEnv(1))); !errors.Is(p.Broken, errDown) || p.Ends() {
		t.Errorf("one that continues: %v, %+v", p.Broken, p.Claim.Status)
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
			e, err := d.stock.Eligible(t.Context(), tc.claim, false)
			if err != nil || e.MakeFrom == nil {
				t.Fatalf("made from %+v, %v", e, err)
			}
			model, err := d.supplier.templates.Model(t.Context(), tc.claim, &e, d.shelf)
			if err != nil || (model.Refused != nil) != tc.refused {
				t.Errorf("%+v, %v", model, err)
			}
		})
	}
}

// TestRefusalLetsStartingOnesBe: a policy that changes takes nothing away from a claim
// but what it would still get; with AllOrNothing that is the end of it.
func TestRefusalLetsStartingOnesBe(t *testing.T) {
	prepare := func(t *testing.T, change func(*v1alpha1.SandboxClaim)) (*desk, *attempt) {
		d := newDesk(t)
		d.shelf.templates["py"] = templateWith("")
		next := d.nextAttempt(func(c *v1alpha1.SandboxClaim) { withEnv(2)(c); change(c) })
		next.state.Held = []*v1alpha1.Sandbox{startingFor(t, next.state.Claim, "one", d.clock.Now())}
		return d, next
	}
	t.Run("in parts", func(t *testing.T) {
		d, next := prepare(t, func(*v1alpha1.SandboxClaim) {})
		p := d.planned(next)
		if status := p.Claim.Status; len(p.Released)+len(p.Made) != 0 || status.Phase != v1alpha1.SandboxClaimPhaseClaiming || p.Broken == nil {
			t.Errorf("drops %d, makes %d, %+v", len(p.Released), len(p.Made), status)
		}
		next.state.Held[0].Status = running()
		p = d.planned(next)
		if status := p.Claim.Status; len(p.Counted) != 1 || status.ClaimedReplicas != 1 || outcomeOf(p.Claim, nil) != metrics.OutcomeRefused ||
			status.Message != next.state.Refused.Error() {
			t.Errorf("counts %d, %+v", len(p.Counted), status)
		}
	})
	t.Run("all or nothing", func(t *testing.T) {
		d, next := prepare(t, func(c *v1alpha1.SandboxClaim) { c.Spec.Allocation = v1alpha1.AllocationAllOrNothing })
		if p := d.planned(next); len(p.Released) != 1 || p.Claim.Status.ClaimedReplicas != 0 || outcomeOf(p.Claim, nil) != metrics.OutcomeRefused {
			t.Errorf("drops %d, %+v", len(p.Released), p.Claim.Status)
		}
	})
}

// startingFor is a sandbox that was made for a claim, and is not ready.
func startingFor(t *testing.T, claim *v1alpha1.SandboxClaim, name string, now time.Time) *v1alpha1.Sandbox {
	t.Helper()
	marks, err := plan.NewMarks(claim)
	if err != nil {
		t.Fatal(err)
	}
	model := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	model.Spec.Template = podOf()
	sb, err := marks.NewSandbox(model, nil, name, types.UID(name), "lock", now)
	if err != nil {
		t.Fatal(err)
	}
	sb.ResourceVersion = "6"
	return sb
}
