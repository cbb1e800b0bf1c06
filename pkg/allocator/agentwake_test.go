// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// ofWarmPool makes a claim one of agent-sandbox of a pool.
func ofWarmPool(name string) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) {
		c.Annotations = map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}
		c.Spec.TemplateName, c.Spec.WarmPoolRef = "", &v1alpha1.SandboxClaimWarmPoolRef{Name: name}
		c.Spec.CreateOnNoStock = new(true)
	}
}

// ofTemplate makes a claim one of agent-sandbox that takes no pool.
func ofTemplate(name string) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) {
		ofWarmPool("")(c)
		c.Spec.WarmPoolRef, c.Spec.SandboxTemplateRef = nil, &v1alpha1.SandboxClaimTemplateRef{Name: name}
		c.Spec.WarmPool = v1alpha1.WarmPoolNone
	}
}

func asksEnv(c *v1alpha1.SandboxClaim) {
	c.Spec.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: "b"}}
}

// asksLabel brings the pod a label that the template of withLabel has with another value.
func asksLabel(c *v1alpha1.SandboxClaim) {
	c.Spec.AdditionalPodMetadata = &v1alpha1.PodMetadata{Labels: map[string]string{"sandbox.users.io/team": "a"}}
}

func withLabel(template *v1alpha1.SandboxTemplate) {
	template.Spec.Template.Raw = []byte(`{"metadata":{"labels":{"sandbox.users.io/team":"b"}},"spec":{"containers":[{"name":"main"}]}}`)
}

func letsEnv(template *v1alpha1.SandboxTemplate) {
	template.Spec.EnvVarsInjectionPolicy = v1alpha1.InjectionAllowed
}

// TestAgentClaimsAreWoken: a claim of agent-sandbox that cannot be served as things are takes
// its next attempt when what it waits for is there, and continues then. What it waits for costs it
// no reads of the store in the meantime.
func TestAgentClaimsAreWoken(t *testing.T) {
	py := func(changes ...func(*v1alpha1.SandboxTemplate)) *v1alpha1.SandboxTemplate {
		template := templateOfPod("py")
		for _, change := range changes {
			change(template)
		}
		return template
	}
	tests := map[string]struct {
		claim    []func(*v1alpha1.SandboxClaim)
		set      *v1alpha1.SandboxSet
		template *v1alpha1.SandboxTemplate
		reason   string
		comes    func(d *desk)
	}{
		"the pool": {claim: []func(*v1alpha1.SandboxClaim){ofWarmPool("a")}, template: py(), reason: "WarmPoolNotFound",
			comes: func(d *desk) { d.comesSet(setOf("a", "py", atVersion(10))) }},
		"the template of the pool": {claim: []func(*v1alpha1.SandboxClaim){ofWarmPool("a")}, set: setOf("a", "py"), reason: "TemplateNotFound",
			comes: func(d *desk) { d.comes(py()) }},
		"another template for the pool": {claim: []func(*v1alpha1.SandboxClaim){ofWarmPool("a")}, set: setOf("a", "go"), template: py(), reason: "TemplateNotFound",
			comes: func(d *desk) { d.comesSet(setOf("a", "py", atVersion(10))) }},
		"the template": {claim: []func(*v1alpha1.SandboxClaim){ofTemplate("py")}, reason: "TemplateNotFound",
			comes: func(d *desk) { d.comes(py()) }},
		"a template that lets env in": {claim: []func(*v1alpha1.SandboxClaim){ofWarmPool("a"), asksEnv}, set: setOf("a", "py"), template: py(),
			reason: "EnvVarsInjectionRejected", comes: func(d *desk) { d.comes(py(letsEnv)) }},
		"a pool whose template lets env in": {claim: []func(*v1alpha1.SandboxClaim){ofWarmPool("a"), asksEnv}, set: setOf("a", "", atVersion(5)), template: py(letsEnv),
			reason: "EnvVarsInjectionRejected", comes: func(d *desk) { d.comesSet(setOf("a", "py", atVersion(10))) }},
		"a template that says nothing of a label": {claim: []func(*v1alpha1.SandboxClaim){ofWarmPool("a"), asksLabel}, set: setOf("a", "py"), template: py(withLabel),
			reason: "ReconcilerError", comes: func(d *desk) { d.comes(py()) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			if tc.set != nil {
				d.comesSet(tc.set)
			}
			if tc.template != nil {
				d.comes(tc.template)
			}
			next := d.nextAttempt(func(c *v1alpha1.SandboxClaim) {
				for _, change := range tc.claim {
					change(c)
				}
			})
			u := d.finisher.unfinished.of(next.state.Claim.UID)
			for range 3 {
				d.countedReads = 0
				p := d.planned(next)
				u.recordPlan(&next.state, p)
				if ready := meta.FindStatusCondition(p.Claim.Status.Conditions, v1alpha1.ClaimConditionReady); ready == nil || ready.Reason != tc.reason {
					t.Fatalf("Ready is %+v", ready)
				}
				if len(p.Bound)+len(p.Made) > 0 || !u.outlook.hopeless {
					t.Fatal("it is served, or expects to be")
				}
				if d.countedReads > 0 {
					t.Errorf("an attempt reads the store %d times", d.countedReads)
				}
			}
			d.woken()
			tc.comes(d)
			if len(d.woken()) == 0 {
				t.Error("it is not woken")
			}
			if p := d.planned(next); len(p.Made) != 1 || p.Made[0].Name != p.Claim.Name {
				t.Errorf("made are %d sandboxes: %+v", len(p.Made), p.Claim.Status)
			}
		})
	}
}

// comesSet makes a set known to all, and comes a template.
func (d *desk) comesSet(set *v1alpha1.SandboxSet) {
	d.sets = []*v1alpha1.SandboxSet{set}
	d.Feeds.SetChanged(set)
}

func (d *desk) comes(template *v1alpha1.SandboxTemplate) {
	d.shelf.templates[template.Name] = template
	d.Feeds.TemplateChanged(template)
}

// TestColdNameWakes: the end of a sandbox wakes the claim that is to have one of its name, and
// no other.
func TestColdNameWakes(t *testing.T) {
	d := newDesk(t, setOf("a", "py"))
	d.comes(templateOfPod("py"))
	other := &v1alpha1.Sandbox{}
	other.Namespace, other.Name, other.ResourceVersion = "ns", "mine", "8"
	d.sandboxes["mine"] = other
	next := d.nextAttempt(ofWarmPool("a"))
	u := d.finisher.unfinished.of(next.state.Claim.UID)
	p := d.planned(next)
	u.recordPlan(&next.state, p)
	if len(p.Made) > 0 || !u.outlook.hopeless {
		t.Fatalf("made are %d", len(p.Made))
	}
	d.woken()
	stranger := other.DeepCopy()
	stranger.Name = "yours"
	d.Feeds.SandboxDeleted(stranger)
	if got := d.woken(); len(got) > 0 {
		t.Errorf("another's end wakes %v", got)
	}
	delete(d.sandboxes, "mine")
	d.Feeds.SandboxDeleted(other)
	if got := d.woken(); len(got) != 1 {
		t.Errorf("woken are %v", got)
	}
	if p := d.planned(next); len(p.Made) != 1 {
		t.Errorf("made are %d", len(p.Made))
	}
	u.setClaim(ended(u.latest()))
	d.finisher.unfinished.forget(u, next.state.Claim.UID)
	if n := len(d.finisher.unfinished.byName); n > 0 {
		t.Errorf("%d names are left behind", n)
	}
}
