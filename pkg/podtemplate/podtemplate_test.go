// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

const plain = `{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"busybox"}]}}`

func setOf(template string, change ...func(*v1alpha1.SandboxSet)) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "py", UID: "u"}}
	if template != "" {
		set.Spec.Template = &runtime.RawExtension{Raw: []byte(template)}
	}
	for _, f := range change {
		f(set)
	}
	return set
}

// revisionOf is the revision of a set with an inline template.
func revisionOf(set *v1alpha1.SandboxSet) (string, error) {
	return podtemplate.SetRevision(set, podtemplate.Inline(set.Spec.Template))
}

func TestRevision(t *testing.T) {
	base, err := revisionOf(setOf(plain))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		set  *v1alpha1.SandboxSet
		same bool
	}{
		"same": {setOf(plain), true},
		"order of keys and white space": {setOf(
			`{ "spec": {"containers":[{"image":"busybox", "name":"c"}]}, "metadata":{"labels":{"app":"x"}} }`), true},
		"scaled":        {setOf(plain, func(s *v1alpha1.SandboxSet) { s.Spec.Replicas = new(int32(9)) }), true},
		"another set":   {setOf(plain, func(s *v1alpha1.SandboxSet) { s.Name = "other" }), false},
		"empty lists":   {setOf(plain, func(s *v1alpha1.SandboxSet) { s.Spec.Runtimes = []v1alpha1.RuntimeConfig{} }), true},
		"image":         {setOf(strings.Replace(plain, "busybox", "busybox:2", 1)), false},
		"unknown field": {setOf(strings.Replace(plain, `"image"`, `"future":1,"image"`, 1)), false},
		"runtimes": {setOf(plain, func(s *v1alpha1.SandboxSet) {
			s.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
		}), false},
		"persistentContents": {setOf(plain, func(s *v1alpha1.SandboxSet) { s.Spec.PersistentContents = []string{"ip"} }), false},
		"pauseStrategy": {setOf(plain, func(s *v1alpha1.SandboxSet) {
			s.Spec.PauseStrategy = &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyStop}
		}), false},
		"volumeClaimTemplates": {setOf(plain, func(s *v1alpha1.SandboxSet) {
			s.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(`{"metadata":{"name":"v"}}`)}}
		}), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := revisionOf(test.set)
			if err != nil {
				t.Fatal(err)
			}
			if (got == base) != test.same {
				t.Errorf("revision %q, base %q, want same: %v", got, base, test.same)
			}
		})
	}
}

// Large numbers that float64 cannot tell apart are different templates.
func TestRevisionKeepsNumbersExact(t *testing.T) {
	a, errA := revisionOf(setOf(`{"spec":{"n":9007199254740993}}`))
	b, errB := revisionOf(setOf(`{"spec":{"n":9007199254740992}}`))
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if a == b {
		t.Errorf("both %q", a)
	}
}

// The revision is stored on sandboxes: a new release must compute the same, or
// every pool would be replaced by the upgrade.
func TestRevisionIsStable(t *testing.T) {
	got, err := revisionOf(setOf(plain))
	if err != nil {
		t.Fatal(err)
	}
	if want := "exlic37ay27aakg2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNewSandbox(t *testing.T) {
	template := `{"metadata":{
	  "labels":{"app":"x","agents.kruise.io/sandbox-claimed":"true","agents.kruise.io/claim-name":"me","sandlot.io/x":"y"},
	  "annotations":{"note":"n","agents.kruise.io/lock":"l","agents.kruise.io/cleanup-enabled":"true","agents.kruise.io/cleanup-retain-on-failure":"1h"}},
	  "spec":{"containers":[{"name":"c","image":"i"}]}}`
	set := setOf(template, func(s *v1alpha1.SandboxSet) {
		s.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
		s.Spec.PersistentContents = []string{"ip"}
		s.Spec.PauseStrategy = &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyStop}
		s.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(`{}`)}}
	})
	spec := v1alpha1.SandboxSpec{
		PauseStrategy:      set.Spec.PauseStrategy,
		PersistentContents: set.Spec.PersistentContents,
		Runtimes:           set.Spec.Runtimes,
		EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
			Template:             set.Spec.Template,
			VolumeClaimTemplates: set.Spec.VolumeClaimTemplates,
		},
	}
	pooled := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", GenerateName: "py-",
			Labels: map[string]string{
				"app":                         "x",
				v1alpha1.LabelSandboxPool:     "py",
				v1alpha1.LabelSandboxTemplate: "py",
				v1alpha1.LabelSandboxClaimed:  "false",
				v1alpha1.LabelTemplateHash:    "rev",
				v1alpha1.AgentLabelPool:       v1alpha1.NameHash("py"),
				v1alpha1.AgentLabelTemplate:   v1alpha1.NameHash("py"),
				v1alpha1.AgentLabelCreatedBy:  "controller",
			},
			Annotations: map[string]string{
				"note":                            "n",
				v1alpha1.AnnotationCleanupEnabled: "true",
				v1alpha1.AnnotationCleanupRetainOnFailure: "1h",
				v1alpha1.AgentAnnotationTemplate:          "py",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "agents.kruise.io/v1alpha1", Kind: "SandboxSet", Name: "py", UID: types.UID("u"),
				Controller: new(true), BlockOwnerDeletion: new(false),
			}},
		},
		Spec: spec,
	}
	got, err := podtemplate.NewSandbox(set, "rev", podtemplate.Inline(set.Spec.Template))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pooled, got); diff != "" {
		t.Errorf("pooled sandbox (-want +got):\n%s", diff)
	}

	claimed := pooled.DeepCopy()
	claimed.OwnerReferences = nil
	for _, label := range []string{v1alpha1.LabelTemplateHash, v1alpha1.AgentLabelPool, v1alpha1.AgentLabelCreatedBy} {
		delete(claimed.Labels, label)
	}
	claimed.Annotations[v1alpha1.AnnotationSandboxPriority] = "100"
	if got, err = podtemplate.NewSandboxForClaim(set, podtemplate.Inline(set.Spec.Template)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(claimed, got); diff != "" {
		t.Errorf("sandbox for a claim (-want +got):\n%s", diff)
	}
}

func TestNewSandboxSharesNothingWithTheSet(t *testing.T) {
	set := setOf(plain)
	before := set.DeepCopy()
	sandbox, err := podtemplate.NewSandbox(set, "rev", podtemplate.Inline(set.Spec.Template))
	if err != nil {
		t.Fatal(err)
	}
	clear(sandbox.Spec.Template.Raw)
	if diff := cmp.Diff(before, set); diff != "" {
		t.Errorf("the set changed (-before +after):\n%s", diff)
	}
}

func TestNewSandboxRefusals(t *testing.T) {
	if _, err := podtemplate.NewSandbox(setOf(""), "r", podtemplate.Inline(nil)); !errors.Is(err, podtemplate.ErrNoTemplate) {
		t.Errorf("no template: %v", err)
	}
	if _, err := podtemplate.NewSandboxForClaim(setOf(""), podtemplate.Inline(&runtime.RawExtension{Raw: []byte(`{"metadata":{"labels":{"a":1}}}`)})); err == nil {
		t.Error("a label that is a number was accepted")
	}
}

func TestNamePrefix(t *testing.T) {
	for name, want := range map[string]string{
		"py":                           "py-",
		strings.Repeat("a", 50):        strings.Repeat("a", 50) + "-",
		strings.Repeat("a", 51):        strings.Repeat("a", 50) + "-",
		strings.Repeat("a", 63):        strings.Repeat("a", 50) + "-",
		strings.Repeat("a", 49) + "-b": strings.Repeat("a", 49) + "-",
		strings.Repeat("a", 49) + ".b": strings.Repeat("a", 49) + "-",
	} {
		set := setOf(plain)
		set.Name = name
		sandbox, err := podtemplate.NewSandbox(set, "r", podtemplate.Inline(set.Spec.Template))
		if err != nil {
			t.Fatal(err)
		}
		if sandbox.GenerateName != want {
			t.Errorf("set %q: prefix %q, want %q", name, sandbox.GenerateName, want)
		}
		full := podtemplate.NewName(sandbox.GenerateName)
		if errs := validation.IsDNS1123Label(full); len(errs) > 0 {
			t.Errorf("set %q: the name %q is no label: %v", name, full, errs)
		}
		random, found := strings.CutPrefix(full, want)
		if !found || strings.Contains(random, "-") {
			t.Errorf("set %q: the name %q is not the prefix and letters without a dash", name, full)
		}
	}
}

// TestNamesDoNotComeBack makes so many names that with 35 random bits or fewer some
// would be alike for all but certain. Of the 60 bits that there are, it would fail once
// in two million runs.
func TestNamesDoNotComeBack(t *testing.T) {
	const n = 1_000_000
	seen := make(map[string]struct{}, n)
	for range n {
		seen[podtemplate.NewName("py-")] = struct{}{}
	}
	if len(seen) != n {
		t.Errorf("%d of %d names came again", n-len(seen), n)
	}
}

func TestSandboxRevision(t *testing.T) {
	set := setOf(plain)
	sandbox, err := podtemplate.NewSandbox(set, "r", podtemplate.Inline(set.Spec.Template))
	if err != nil {
		t.Fatal(err)
	}
	before, err := podtemplate.SandboxRevision(sandbox)
	if err != nil || before == "" {
		t.Fatal(before, err)
	}
	sandbox.Spec.Template.Raw = []byte(strings.Replace(plain, "busybox", "other", 1))
	after, err := podtemplate.SandboxRevision(sandbox)
	if err != nil || after == before {
		t.Errorf("revision did not follow the template: %q, %v", after, err)
	}
}
