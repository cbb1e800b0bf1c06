// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// setOf is a set that refers to a template, or has one of its own if that is "".
func setOf(name, template string, changes ...func(*v1alpha1.SandboxSet)) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "5"},
		Spec:       v1alpha1.SandboxSetSpec{Replicas: new(int32(2))},
	}
	if template == "" {
		set.Spec.Template = &runtime.RawExtension{Raw: []byte(`{}`)}
	} else {
		set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: template}
	}
	for _, change := range changes {
		change(set)
	}
	return set
}

func patched(set *v1alpha1.SandboxSet) { set.Spec.Patch = &runtime.RawExtension{Raw: []byte(`{}`)} }

func elsewhere(set *v1alpha1.SandboxSet) { set.Namespace = "other" }

func podTemplate(set *v1alpha1.SandboxSet) {
	set.Spec.TemplateRef.Kind = v1alpha1.TemplateKindPodTemplate
}

func atVersion(v int) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) { set.ResourceVersion = strconv.Itoa(v) }
}

// chosen is a supply in short.
type chosen struct {
	Pools    []string // in the order in which they are preferred
	Set      string
	Template string
	Of       string
	Found    bool
	Problem  string
}

func TestChoose(t *testing.T) {
	sets := []*v1alpha1.SandboxSet{
		setOf("alone", ""),
		setOf("z", "py"), setOf("b", "py"), setOf("a", "py", patched), setOf("c", "py", patched),
		setOf("cheap", "go", patched),
		setOf("rust", ""), setOf("rust-spot", "rust", patched), setOf("rust-other", "rust"),
		setOf("java", "jdk"), setOf("java-too", "java"),
		setOf("k8s", "py", podTemplate),
		setOf("d", "py", elsewhere), setOf("lisp", "", elsewhere),
	}
	named := func(name, pool string) v1alpha1.SandboxClaimSpec {
		return v1alpha1.SandboxClaimSpec{TemplateName: name, WarmPool: pool}
	}
	ref := func(name, pool string) v1alpha1.SandboxClaimSpec {
		return v1alpha1.SandboxClaimSpec{SandboxTemplateRef: &v1alpha1.SandboxClaimTemplateRef{Name: name}, WarmPool: pool}
	}
	tests := map[string]struct {
		spec v1alpha1.SandboxClaimSpec
		want chosen
	}{
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
		"a template of which nobody knows, by templateName": {named("lisp", ""),
			chosen{Pools: []string{"lisp"}, Template: "lisp", Of: "SandboxSet lisp"}},
		"a template of which nobody knows, by reference": {ref("lisp", ""), chosen{Template: "lisp", Of: "SandboxTemplate lisp"}},

		"no warm ones of a set":      {named("alone", "none"), chosen{Set: "alone", Of: "SandboxSet alone", Found: true}},
		"no warm ones of a template": {ref("py", "none"), chosen{Set: "b", Of: "SandboxTemplate py", Found: true}},
		"no warm ones, all sets with a patch": {ref("go", "none"),
			chosen{Template: "go", Of: "SandboxTemplate go", Found: true}},
		"no warm ones of what nobody knows": {ref("lisp", "none"), chosen{Template: "lisp", Of: "SandboxTemplate lisp"}},

		"one pool of a template": {ref("py", "c"), chosen{Pools: []string{"c"}, Set: "c", Of: "SandboxSet c", Found: true}},
		"the pool itself":        {named("alone", "alone"), chosen{Pools: []string{"alone"}, Set: "alone", Of: "SandboxSet alone", Found: true}},
		"one pool of the template of a set's name": {named("rust", "rust-spot"),
			chosen{Pools: []string{"rust-spot"}, Set: "rust-spot", Of: "SandboxSet rust-spot", Found: true}},
		"a pool that nobody knows":              {ref("py", "lisp"), chosen{Of: "SandboxSet lisp", Problem: "SandboxSet lisp not found"}},
		"a pool of another namespace":           {ref("py", "d"), chosen{Of: "SandboxSet d", Problem: "SandboxSet d not found"}},
		"a pool of something else":              {ref("py", "cheap"), chosen{Of: "SandboxSet cheap", Problem: "SandboxSet cheap has no sandboxes of py"}},
		"a pool of the cluster's own templates": {ref("py", "k8s"), chosen{Of: "SandboxSet k8s", Problem: "SandboxSet k8s has no sandboxes of py"}},
	}
	var c catalog
	c.replace(sets, 9)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := choose(&v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: tc.spec}, &c)
			got := chosen{Template: s.template, Of: "SandboxSet " + s.name, Found: s.found}
			if s.ofTemplate {
				got.Of = "SandboxTemplate " + s.name
			}
			for _, from := range s.sources {
				got.Pools = append(got.Pools, from.pool.Name)
				if from.pool.Namespace != "ns" || s.found && from.holds != 2 {
					t.Errorf("source %+v", from)
				}
			}
			if s.set != nil {
				got.Set = s.set.Name
			}
			if s.problem != nil {
				got.Problem = s.problem.message
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s.canMake() != (tc.want.Problem == "") {
				t.Errorf("can make: %t", s.canMake())
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
		want  *problem
	}{
		"there, by reference":    {spec: ref, found: true},
		"there, by templateName": {spec: named, found: true},
		"not there, by reference": {spec: ref, want: &problem{
			field: "sandboxTemplateRef.name", name: "x", reason: "SandboxTemplateNotFound", message: "SandboxTemplate x not found", missing: true,
		}},
		"not there, by templateName": {spec: named, want: &problem{
			field: "templateName", name: "x", reason: "SandboxSetNotFound", message: "SandboxSet x not found", missing: true,
		}},
		"there, but warm ones are wanted": {spec: warm(ref), found: true, want: &problem{
			field: "sandboxTemplateRef.name", name: "x", reason: "SandboxSetNotFound", message: "No SandboxSet refers to SandboxTemplate x",
		}},
		"there, but warm ones are wanted, by templateName": {spec: warm(named), found: true, want: &problem{
			field: "templateName", name: "x", reason: "SandboxSetNotFound", message: "SandboxSet x not found", missing: true,
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := &v1alpha1.SandboxClaim{Spec: tc.spec}
			s := choose(claim, &catalog{})
			s.withoutSets(claim, tc.found)
			if diff := cmp.Diff(tc.want, s.problem, cmp.AllowUnexported(problem{})); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
			if s.canMake() != (tc.want == nil) {
				t.Errorf("can make: %t", s.canMake())
			}
		})
	}
}

func TestByStock(t *testing.T) {
	stock := map[string]int{"a": 1, "b": 3, "c": 9, "d": 9, "e": 3}
	var got []string
	for _, s := range byStock(from("a", "b", "e", "/", "c", "d"), func(p poolindex.Pool) int { return stock[p.Name] }) {
		got = append(got, s.pool.Name)
	}
	if want := []string{"b", "e", "a", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func setNames(sets []*v1alpha1.SandboxSet) []string {
	var all []string
	for _, set := range sets {
		all = append(all, set.Name+"@"+set.ResourceVersion)
	}
	return all
}

func TestCatalog(t *testing.T) {
	var c catalog
	expect := func(what string, want ...string) {
		t.Helper()
		if got := setNames(c.using("ns", "py")); !slices.Equal(got, want) {
			t.Errorf("%s: using py are %v, want %v", what, got, want)
		}
	}
	if c.synced() {
		t.Error("synced before it has heard of anything")
	}
	c.listed("ns", []*v1alpha1.SandboxSet{setOf("early", "py", atVersion(2))}, 2)
	expect("a list before the watch", "early@2")
	c.replace([]*v1alpha1.SandboxSet{setOf("b", "py", atVersion(3)), setOf("a", "py", patched, atVersion(4))}, 9)
	expect("listed", "b@3", "a@4")
	if !c.synced() || c.set("ns", "early") != nil || c.set("ns", "a") == nil {
		t.Error("the list is not the whole picture")
	}

	before := c.using("ns", "py")
	if old := c.change(setOf("a", "py", atVersion(10))); old == nil || old.ResourceVersion != "4" {
		t.Errorf("before the change it was %v", old)
	}
	expect("without its patch any more", "a@10", "b@3")
	if got := setNames(before); !slices.Equal(got, []string{"b@3", "a@4"}) {
		t.Errorf("what somebody reads was changed to %v", got)
	}
	c.change(setOf("b", "go", atVersion(11)))
	expect("one of another template", "a@10")
	if got := setNames(c.using("ns", "go")); !slices.Equal(got, []string{"b@11"}) {
		t.Errorf("using go are %v", got)
	}

	c.listed("ns", []*v1alpha1.SandboxSet{setOf("a", "py", atVersion(10)), setOf("c", "py", atVersion(12))}, 12)
	expect("a list ahead of the watch", "a@10", "c@12")
	if c.set("ns", "b") != nil || len(c.using("ns", "go")) != 0 {
		t.Error("a set that is not in the list is still there")
	}
	c.change(setOf("c", "py", atVersion(12)))
	c.change(setOf("x", "py", elsewhere, atVersion(13)))
	c.delete(setOf("c", "py", atVersion(14)))
	expect("deleted", "a@10")
	c.listed("ns", []*v1alpha1.SandboxSet{setOf("c", "py", atVersion(12))}, 13)
	expect("a list behind the watch", "a@10")

	// The watch is behind a list.
	c.listed("ns", []*v1alpha1.SandboxSet{setOf("a", "py", atVersion(20))}, 20)
	c.change(setOf("a", "py", atVersion(15)))
	expect("an old change", "a@20")
	other := setOf("a", "py", atVersion(16))
	other.UID = "before"
	c.delete(other)
	expect("the end of one of the same name", "a@20")

	if gone := c.replace(nil, 30); len(gone) != 2 {
		t.Errorf("gone are %v, want both that were left", gone)
	}
	expect("an empty list")
	if len(c.users) != 0 || len(c.replicas()) != 0 {
		t.Errorf("something is left: %v", c.users)
	}
}
