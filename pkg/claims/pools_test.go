// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// setList is Sets by looking at each.
type setList []*v1alpha1.SandboxSet

func (l setList) Set(namespace, name string) *v1alpha1.SandboxSet {
	for _, set := range l {
		if set.Namespace == namespace && set.Name == name {
			return set
		}
	}
	return nil
}

func (l setList) Using(namespace, template string) []*v1alpha1.SandboxSet {
	var using []*v1alpha1.SandboxSet
	for _, set := range l {
		if set.Namespace == namespace && v1alpha1.SandboxTemplateOf(set) == template {
			using = append(using, set)
		}
	}
	slices.SortFunc(using, ComparePreference)
	return using
}

var setOf, patched, elsewhere = builders.StoredSet, builders.Patched, builders.Elsewhere

func podTemplate(set *v1alpha1.SandboxSet) {
	set.Spec.TemplateRef.Kind = v1alpha1.TemplateKindPodTemplate
}

// chosen is an Eligible in short.
type chosen struct {
	Pools    []string // in the order in which they are preferred
	Set      string
	Template string
	Of       string
	Found    bool
	Problem  string
}

func TestEligiblePools(t *testing.T) {
	sets := []*v1alpha1.SandboxSet{
		setOf("alone", ""),
		setOf("z", "py"), setOf("b", "py"), setOf("a", "py", patched), setOf("c", "py", patched),
		setOf("cheap", "go", patched),
		setOf("rust", ""), setOf("rust-spot", "rust", patched), setOf("rust-other", "rust"),
		setOf("java", "jdk"), setOf("java-too", "java"),
		setOf("k8s", "py", podTemplate), setOf("ruby", "ruby"),
		setOf("d", "py", elsewhere), setOf("lisp", "", elsewhere),
	}
	named := func(name, pool string) v1alpha1.SandboxClaimSpec {
		return v1alpha1.SandboxClaimSpec{TemplateName: name, WarmPool: pool}
	}
	ref := func(name, pool string) v1alpha1.SandboxClaimSpec {
		return v1alpha1.SandboxClaimSpec{SandboxTemplateRef: &v1alpha1.SandboxClaimTemplateRef{Name: name}, WarmPool: pool}
	}
	only := func(pool, template, warmPool string) v1alpha1.SandboxClaimSpec {
		spec := v1alpha1.SandboxClaimSpec{WarmPoolRef: &v1alpha1.SandboxClaimWarmPoolRef{Name: pool}, WarmPool: warmPool}
		if template != "" {
			spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: template}
		}
		return spec
	}
	withEnv := func(spec v1alpha1.SandboxClaimSpec) v1alpha1.SandboxClaimSpec {
		spec.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: "b"}}
		return spec
	}
	tests := map[string]struct {
		spec v1alpha1.SandboxClaimSpec
		want chosen
	}{
		"one pool alone":             {only("b", "", ""), chosen{Pools: []string{"b"}, Set: "b", Of: "SandboxSet b", Found: true}},
		"one pool with its template": {only("b", "py", ""), chosen{Pools: []string{"b"}, Set: "b", Of: "SandboxSet b", Found: true}},
		"one pool with a patch":      {only("cheap", "", ""), chosen{Pools: []string{"cheap"}, Set: "cheap", Of: "SandboxSet cheap", Found: true}},
		"one pool, no template is asked by its name": {only("java", "", ""),
			chosen{Pools: []string{"java"}, Set: "java", Of: "SandboxSet java", Found: true}},
		"one pool, no warm ones of it": {only("b", "py", "none"), chosen{Set: "b", Of: "SandboxSet b", Found: true}},
		"one pool of another template": {only("b", "go", ""), chosen{Of: "SandboxSet b", Problem: "SandboxSet b has no sandboxes of go"}},
		"one pool that is unknown":     {only("lisp", "", ""), chosen{Of: "SandboxSet lisp", Problem: "SandboxSet lisp not found in namespace ns"}},
		"one pool, and env":            {withEnv(only("b", "py", "default")), chosen{Set: "b", Of: "SandboxSet b", Found: true}},
		"a pool's name, and env":       {withEnv(ref("py", "c")), chosen{Set: "c", Of: "SandboxSet c", Found: true}},
		"any pool, and env":            {withEnv(ref("py", "default")), chosen{Set: "b", Of: "SandboxTemplate py", Found: true}},
		"one pool of the name of a template": {only("py", "", ""),
			chosen{Of: "SandboxSet py", Problem: "SandboxSet py not found in namespace ns"}},
		"a set": {named("alone", "default"), chosen{Pools: []string{"alone"}, Set: "alone", Of: "SandboxSet alone", Found: true}},
		"a set with a patch, by its name": {named("cheap", ""),
			chosen{Pools: []string{"cheap"}, Set: "cheap", Of: "SandboxSet cheap", Found: true}},
		"a set before the sets of a template of its name": {named("java", ""),
			chosen{Pools: []string{"java"}, Set: "java", Of: "SandboxSet java", Found: true}},
		"a template by templateName": {named("py", ""),
			chosen{Pools: []string{"b", "z", "a", "c"}, Set: "b", Of: "SandboxTemplate py", Found: true}},
		"a template by reference": {ref("py", ""),
			chosen{Pools: []string{"b", "z", "a", "c"}, Set: "b", Of: "SandboxTemplate py", Found: true}},
		"a template whose sets all have a patch": {ref("go", ""),
			chosen{Pools: []string{"cheap"}, Template: "go", Of: "SandboxTemplate go", Found: true}},
		"a set is a template of its own name": {ref("rust", ""),
			chosen{Pools: []string{"rust", "rust-other", "rust-spot"}, Set: "rust", Of: "SandboxTemplate rust", Found: true}},
		"a set that refers to a template is not": {ref("java", ""),
			chosen{Pools: []string{"java-too"}, Set: "java-too", Of: "SandboxTemplate java", Found: true}},
		"a set that refers to a template of its own name": {ref("ruby", ""),
			chosen{Pools: []string{"ruby"}, Set: "ruby", Of: "SandboxTemplate ruby", Found: true}},
		"a set of a PodTemplate, by its own name": {named("k8s", ""),
			chosen{Pools: []string{"k8s"}, Set: "k8s", Of: "SandboxSet k8s", Found: true}},
		"an unknown template, by templateName": {named("lisp", ""), chosen{Template: "lisp", Of: "SandboxSet lisp"}},
		"an unknown template, by reference":    {ref("lisp", ""), chosen{Template: "lisp", Of: "SandboxTemplate lisp"}},

		"no warm ones of a set":      {named("alone", "none"), chosen{Set: "alone", Of: "SandboxSet alone", Found: true}},
		"no warm ones of a template": {ref("py", "none"), chosen{Set: "b", Of: "SandboxTemplate py", Found: true}},
		"no warm ones, all sets with a patch": {ref("go", "none"),
			chosen{Template: "go", Of: "SandboxTemplate go", Found: true}},
		"no warm ones of what is unknown": {ref("lisp", "none"), chosen{Template: "lisp", Of: "SandboxTemplate lisp"}},

		"one pool of a template": {ref("py", "c"), chosen{Pools: []string{"c"}, Set: "c", Of: "SandboxSet c", Found: true}},
		"the pool itself":        {named("alone", "alone"), chosen{Pools: []string{"alone"}, Set: "alone", Of: "SandboxSet alone", Found: true}},
		"one pool of the template of a set's name": {named("rust", "rust-spot"),
			chosen{Pools: []string{"rust-spot"}, Set: "rust-spot", Of: "SandboxSet rust-spot", Found: true}},
		"a pool that is unknown":                {ref("py", "lisp"), chosen{Of: "SandboxSet lisp", Problem: "SandboxSet lisp not found in namespace ns"}},
		"a pool of another namespace":           {ref("py", "d"), chosen{Of: "SandboxSet d", Problem: "SandboxSet d not found in namespace ns"}},
		"a pool of something else":              {ref("py", "cheap"), chosen{Of: "SandboxSet cheap", Problem: "SandboxSet cheap has no sandboxes of py"}},
		"a pool of the cluster's own templates": {ref("py", "k8s"), chosen{Of: "SandboxSet k8s", Problem: "SandboxSet k8s has no sandboxes of py"}},
	}
	known := setList(sets)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: tc.spec}
			e := EligiblePools(claim, known)
			got := chosen{Template: e.MakeFromTemplate, Of: "SandboxSet " + e.Name, Found: e.Found}
			if e.OfTemplate {
				got.Of = "SandboxTemplate " + e.Name
			}
			for _, set := range e.Pools {
				got.Pools = append(got.Pools, set.Name)
			}
			if e.MakeFrom != nil {
				got.Set = e.MakeFrom.Name
			}
			if e.Problem != nil {
				got.Problem = e.Problem.Message
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if e.CanMake() != (tc.want.Problem == "") {
				t.Errorf("can make: %t", e.CanMake())
			}
			// Asked of one set, the rule says the same.
			asked, _ := v1alpha1.AskedOf(claim)
			for _, set := range sets {
				if set.Namespace != "ns" {
					continue
				}
				serves := Serves(set, claim, known.Set("ns", asked) != nil)
				if serves != slices.Contains(e.Pools, set) {
					t.Errorf("SandboxSet %s serves: %t, pools are %v", set.Name, serves, got.Pools)
				}
				if serves && !MayServe(set, claim) {
					t.Errorf("SandboxSet %s serves, but could not", set.Name)
				}
			}
		})
	}
}

func TestWithoutSets(t *testing.T) {
	named := v1alpha1.SandboxClaimSpec{TemplateName: "x"}
	ref := v1alpha1.SandboxClaimSpec{SandboxTemplateRef: &v1alpha1.SandboxClaimTemplateRef{Name: "x"}}
	warm := func(spec v1alpha1.SandboxClaimSpec) v1alpha1.SandboxClaimSpec {
		spec.CreateOnNoStock = new(false)
		return spec
	}
	tests := map[string]struct {
		spec  v1alpha1.SandboxClaimSpec
		found bool
		want  *Problem
	}{
		"there, by reference":    {spec: ref, found: true},
		"there, by templateName": {spec: named, found: true},
		"not there, by reference": {spec: ref, want: &Problem{
			Field: "sandboxTemplateRef.name", Name: "x", Reason: "SandboxTemplateNotFound", Message: "SandboxTemplate x not found in namespace ns", Missing: true,
		}},
		"not there, by templateName": {spec: named, want: &Problem{
			Field: "templateName", Name: "x", Reason: "SandboxSetNotFound", Message: "SandboxSet x not found in namespace ns", Missing: true,
		}},
		"there, but warm ones are wanted": {spec: warm(ref), found: true, want: &Problem{
			Field: "sandboxTemplateRef.name", Name: "x", Reason: "SandboxSetNotFound", Message: "No SandboxSet in namespace ns refers to SandboxTemplate x",
		}},
		"there, but warm ones are wanted, by templateName": {spec: warm(named), found: true, want: &Problem{
			Field: "templateName", Name: "x", Reason: "SandboxSetNotFound", Message: "SandboxSet x not found in namespace ns", Missing: true,
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: tc.spec}
			e := EligiblePools(claim, setList(nil))
			e.WithoutSets(claim, tc.found)
			if diff := cmp.Diff(tc.want, e.Problem); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
			if e.CanMake() != (tc.want == nil) {
				t.Errorf("can make: %t", e.CanMake())
			}
		})
	}
}
