// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

func withCPU(cpu string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"` + cpu + `"}}}]}}`)}
}

func TestRaisesAreRemembered(t *testing.T) {
	s := newSizes()
	raise := func(have, want string) raised { return s.raise(withCPU(have), withCPU(want)) }
	first := raise("2", "4")
	if !first.changed || string(first.template.Raw) != string(withCPU("4").Raw) {
		t.Errorf("raised to %s", first.template.Raw)
	}
	if again := raise("2", "4"); again.template != first.template || !again.changed {
		t.Error("worked out a second time")
	}
	for range 2 {
		if same := raise("4", "4"); same.changed || same.failed != nil || string(same.template.Raw) != string(withCPU("4").Raw) {
			t.Errorf("one that is as large as it is to be: %+v", same)
		}
	}
	if larger := raise("2", "8"); string(larger.template.Raw) != string(withCPU("8").Raw) {
		t.Errorf("another goal: %s", larger.template.Raw)
	}
	for range 2 {
		if bad := raise("2", "much"); bad.failed == nil || bad.changed || string(bad.template.Raw) != string(withCPU("2").Raw) {
			t.Errorf("a goal that is none: %+v", bad)
		}
	}
}

// smaller is a patch that makes sandboxes smaller.
func smaller(set *v1alpha1.SandboxSet) { set.Spec.Patch = withCPU("2") }

// atRevision is a set whose controller has made sandboxes of that revision from it.
func atRevision(revision string) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) {
		set.Generation, set.Status.ObservedGeneration, set.Status.UpdateRevision = 3, 3, revision
	}
}

func behind(set *v1alpha1.SandboxSet) { set.Generation++ }

// candidateOf is a candidate of a pool's revision abc.
func candidateOf(name string) poolindex.Candidate {
	return poolindex.Candidate{Pool: poolNamed(name)[0].Pool, Revision: pods}
}

func TestWhoIsRaised(t *testing.T) {
	d := newDesk(t,
		setOf("plain", "py"), setOf("spot", "py", smaller), setOf("labelled", "py", patched), setOf("other", "go", smaller), setOf("inline", ""),
		setOf("rolled", "py", atRevision(pods)), setOf("rolling", "py", atRevision("def")),
		setOf("edited", "py", atRevision(pods), behind), setOf("unmarked", "py", patched, atRevision("def")),
	)
	byRef := v1alpha1.SandboxClaimSpec{SandboxTemplateRef: &v1alpha1.SandboxClaimTemplateRef{Name: "py"}}
	byRefOne := *byRef.DeepCopy()
	byRefOne.WarmPool = "spot"
	tests := []struct {
		claim v1alpha1.SandboxClaimSpec
		pool  string
		want  bool
	}{
		{byRef, "spot", true},
		{byRefOne, "spot", true},
		{byRef, "plain", false},
		{byRef, "other", false},
		{byRef, "inline", false},
		{byRef, "labelled", false}, // the patch is not about size
		{byRef, "rolled", false},
		{byRef, "rolling", true}, // an older one may have had a patch
		{byRef, "edited", true},  // of which the controller has not heard
		{byRef, "unmarked", true},
		{byRef, "gone", false},
		{v1alpha1.SandboxClaimSpec{TemplateName: "py"}, "spot", true},
		{v1alpha1.SandboxClaimSpec{TemplateName: "spot"}, "spot", false},
	}
	for _, tc := range tests {
		claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: tc.claim}
		c := candidates{templates: d.planner.templates, stock: d.stock, claim: claim}
		for range 2 {
			if got := c.smallerSet(candidateOf(tc.pool)) != nil; got != tc.want {
				t.Errorf("%+v from %s: %v", tc.claim, tc.pool, got)
			}
		}
	}
	c := candidates{templates: d.planner.templates, stock: d.stock, claim: claimOf(func(c *v1alpha1.SandboxClaim) { c.Spec = byRef })}
	remade := candidateOf("spot")
	if remade.Pool.UID = "before"; c.smallerSet(remade) != nil {
		t.Error("takes a set for one that had its name before")
	}
	d.Feeds().SetChanged(setOf("spot", "py", patched, behind, atVersion(12)))
	if c.smallerSet(candidateOf("spot")) != nil {
		t.Error("remembers a patch that was edited")
	}
}

// TestCandidatesAreRaised: or not, for a reason that is told, or the claim tries again.
func TestCandidatesAreRaised(t *testing.T) {
	large := func() *v1alpha1.SandboxTemplate {
		template := templateOfPod("py")
		template.Spec.Template = withCPU("4")
		return template
	}
	noGood := func(set *v1alpha1.SandboxSet) {
		set.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.SetConditionTemplateResolved, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidTemplate,
			Message: "no good", ObservedGeneration: set.Generation,
		}}
	}
	inCluster := large()
	inCluster.Spec.Template, inCluster.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Kind: v1alpha1.TemplateKindPodTemplate, Name: "cluster"}
	twoCores := revisionOf(withCPU("2"))
	tests := map[string]struct {
		set      *v1alpha1.SandboxSet
		template *v1alpha1.SandboxTemplate
		// unreadable is a template that the store does not tell of.
		unreadable string
		// resize, or else what is told.
		resize bool
		told   string
		err    error
	}{
		"smaller by a patch":      {set: setOf("a", "py", smaller), template: large(), resize: true},
		"smaller by an old one":   {set: setOf("a", "py", atRevision("def")), template: large(), resize: true},
		"what it is to be":        {set: setOf("a", "py", atRevision(twoCores)), template: large()},
		"not about size":          {set: setOf("a", "py", patched)},
		"the template is gone":    {set: setOf("a", "py", smaller), told: "SandboxTemplate py: not found"},
		"the template is no good": {set: setOf("a", "py", smaller, noGood), template: large(), told: "no good"},
		"the cluster is away":     {set: setOf("a", "py", smaller), template: inCluster, told: "the cluster has not answered"},
		"the store is away":       {set: setOf("a", "py", smaller), unreadable: "py", err: errDown},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, tc.set)
			d.podTemplate, d.unreadable = errDown, tc.unreadable
			d.reconciler.ctx = t.Context()
			t.Cleanup(d.reconciler.running.Wait)
			holder := templateOfPod(podtemplate.RevisionName(tc.set, twoCores))
			holder.Spec.Template = withCPU("2")
			d.shelf.templates[holder.Name] = holder
			d.shelf.templates["py"] = tc.template
			d.stocks("one", tc.set, twoCores)
			p, err := d.newAttempt(warm(1)).plan(t.Context())
			if tc.err != nil {
				if !errors.Is(err, tc.err) || d.left("a") != 1 {
					t.Errorf("error %v, left %d", err, d.left("a"))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sb := p.Bound[0]
			if inplace.InProgress(sb) != tc.resize || plan.IsStarting(sb) != tc.resize || strings.Contains(string(sb.Spec.Template.Raw), `"cpu":"4"`) != tc.resize {
				t.Errorf("bound as %s, %+v", sb.Spec.Template.Raw, sb.Status.Conditions)
			}
			if update := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate); !tc.resize &&
				(update != nil) != (tc.told != "") || tc.told != "" && !strings.Contains(update.Message, tc.told) {
				t.Errorf("says %+v, want %q", update, tc.told)
			}
		})
	}
}

// TestLikeCandidatesAreRaisedOnce: sandboxes with templates of their own have the same
// one, unless a user changed it, and then they keep that.
func TestLikeCandidatesAreRaisedOnce(t *testing.T) {
	set := setOf("a", "py", smaller)
	d := newDesk(t, set)
	d.shelf.templates["py"] = templateOfPod("py")
	d.shelf.templates["py"].Spec.Template = withCPU("4")
	for _, name := range []string{"one", "own", "two"} {
		d.stocks(name, set, pods)
		d.sandboxes[name].Spec.TemplateRef, d.sandboxes[name].Spec.Template = nil, withCPU("2")
	}
	own := d.sandboxes["own"].Spec.Template
	own.Raw = []byte(strings.Replace(string(own.Raw), `"main"`, `"main","image":"mine"`, 1))
	p := d.planned(d.nextAttempt(warm(3)))
	if len(p.Bound) != 3 || d.read["py"] != 1 {
		t.Errorf("bound %d, read the template %d times", len(p.Bound), d.read["py"])
	}
	for _, sb := range p.Bound {
		got := string(sb.Spec.Template.Raw)
		if !inplace.InProgress(sb) || !strings.Contains(got, `"cpu":"4"`) || strings.Contains(got, "mine") != (sb.Name == "own") {
			t.Errorf("%s is bound as %s", sb.Name, got)
		}
	}
}

// What it costs a claim to find that nothing is to be resized.
func BenchmarkNothingToRaise(b *testing.B) {
	a := New(Options{Store: &shelf{}})
	a.Feeds().SetListed([]*v1alpha1.SandboxSet{setOf("plain", "py", atRevision(pods)), setOf("labelled", "py", patched, atRevision(pods))}, 9)
	c := candidates{templates: a.planner.templates, stock: a.stock, claim: claimOf(warm(1))}
	for _, pool := range []string{"plain", "labelled"} {
		b.Run(pool, func(b *testing.B) {
			from := candidateOf(pool)
			b.ReportAllocs()
			for b.Loop() {
				if c.smallerSet(from) != nil {
					b.Fatal("may be smaller")
				}
			}
		})
	}
}

// What it costs a claim to find what becomes of one more candidate with a template of its own.
func BenchmarkRaiseAnother(b *testing.B) {
	store := &shelf{templates: map[string]*v1alpha1.SandboxTemplate{"py": templateOfPod("py")}}
	store.templates["py"].Spec.Template = withCPU("4")
	a := New(Options{Store: store})
	a.Feeds().SetListed([]*v1alpha1.SandboxSet{setOf("spot", "py", smaller)}, 9)
	c := candidates{templates: a.planner.templates, stock: a.stock, claim: claimOf(warm(100))}
	have := withCPU("2")
	have.Raw = []byte(strings.Replace(string(have.Raw), `"main"`, `"main","x":"`+strings.Repeat("x", 4000)+`"`, 1))
	var own [100]*runtime.RawExtension
	for i := range own {
		own[i] = have.DeepCopy()
	}
	from := candidateOf("spot")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(own) == 0 {
			c.sized = nil // the next attempt
		}
		size, err := c.size(b.Context(), from)
		if err != nil {
			b.Fatal(err)
		}
		ready := plan.Candidate{Template: own[i%len(own)]}
		if err := size.apply(&ready, c.templates.sizes, c.claim); err != nil || !ready.Resize {
			b.Fatal(ready, err)
		}
	}
}

// What it costs a claim to look up what becomes of a template that it has met before.
func BenchmarkRaiseRemembered(b *testing.B) {
	s := newSizes()
	have, want := withCPU("2"), withCPU("4")
	for _, t := range []*runtime.RawExtension{have, want} {
		t.Raw = []byte(strings.Replace(string(t.Raw), `"main"`, `"main","x":"`+strings.Repeat("x", 4000)+`"`, 1))
	}
	b.ReportAllocs()
	for b.Loop() {
		s.raise(have, want)
	}
}
