// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

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

func TestWhoIsRaised(t *testing.T) {
	s := newStock(
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
		c := Preparer{Templates: newTemplates(), Stock: s, Claim: claim, Now: birth}
		for range 2 {
			if got := c.smallerSet(candidateOf(tc.pool)) != nil; got != tc.want {
				t.Errorf("%+v from %s: %v", tc.claim, tc.pool, got)
			}
		}
	}
	c := Preparer{Templates: newTemplates(), Stock: s, Claim: claimOf(func(c *v1alpha1.SandboxClaim) { c.Spec = byRef }), Now: birth}
	remade := candidateOf("spot")
	if remade.Pool.UID = "before"; c.smallerSet(remade) != nil {
		t.Error("takes a set for one that had its name before")
	}
	s.Sets.Change(setOf("spot", "py", patched, behind, atVersion(12)))
	if c.smallerSet(candidateOf("spot")) != nil {
		t.Error("remembers a patch that was edited")
	}
}

// candidateOf is a candidate of a pool's revision abc.
func candidateOf(name string) poolindex.Candidate {
	return poolindex.Candidate{Pool: poolindex.PoolOf(setOf(name, "")), Revision: pods}
}

// What it costs a claim to find that nothing is to be resized.
func BenchmarkNothingToRaise(b *testing.B) {
	s := newStock(setOf("plain", "py", atRevision(pods)), setOf("labelled", "py", patched, atRevision(pods)))
	c := Preparer{Templates: newTemplates(), Stock: s, Claim: claimOf(warm(1)), Now: birth}
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
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "py", UID: "py", ResourceVersion: "6"}}
	template.Spec.Template = withCPU("4")
	s := newStock(setOf("spot", "py", smaller))
	late := &shelf{templates: map[string]*v1alpha1.SandboxTemplate{"py": template}}
	c := Preparer{Templates: NewTemplates(Options{}, late), Stock: s, Claim: claimOf(warm(100)), Now: birth}
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
		if err := size.apply(&ready, c.Templates.sizes, c.Claim); err != nil || !ready.Resize {
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
