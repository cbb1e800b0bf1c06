// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// referring is a set with something of everything.
func referring() *v1alpha1.SandboxSet {
	return setOf("", func(s *v1alpha1.SandboxSet) {
		s.Spec.TemplateRef = to("base")
		s.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(`{"metadata":{"name":"v"}}`)}}
		s.Spec.PersistentContents = []string{"ip"}
		s.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
		s.Spec.PauseStrategy = &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyStop}
	})
}

func TestNewSandboxOfAReference(t *testing.T) {
	set := referring()
	got, err := podtemplate.NewSandbox(set, "rev", podtemplate.Inline(rawOf(plain)))
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.SandboxSpec{
		PauseStrategy: set.Spec.PauseStrategy, PersistentContents: set.Spec.PersistentContents, Runtimes: set.Spec.Runtimes,
		EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
			TemplateRef:          &v1alpha1.SandboxTemplateRef{Name: "base-rev"},
			VolumeClaimTemplates: set.Spec.VolumeClaimTemplates,
		},
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	labels := map[string]string{
		"app": "x", v1alpha1.LabelSandboxPool: "py", v1alpha1.LabelSandboxTemplate: "base",
		v1alpha1.LabelSandboxClaimed: "false", v1alpha1.LabelTemplateHash: "rev",
		v1alpha1.AgentLabelPool: v1alpha1.NameHash("py"), v1alpha1.AgentLabelTemplate: v1alpha1.NameHash("base"),
		v1alpha1.AgentLabelCreatedBy: "controller",
	}
	if diff := cmp.Diff(labels, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	claimed, err := podtemplate.NewSandboxForClaim(set, podtemplate.Inline(rawOf(plain)))
	if err != nil {
		t.Fatal(err)
	}
	if claimed.Spec.TemplateRef != nil || string(claimed.Spec.Template.Raw) != plain || claimed.Labels[v1alpha1.LabelSandboxTemplate] != "base" {
		t.Errorf("for a claim: %+v", claimed)
	}
}

func TestNewSandboxFromTemplate(t *testing.T) {
	holder := podtemplate.NewHolder(referring(), "rev", podtemplate.Inline(rawOf(plain)))
	holder.Name = strings.Repeat("a", 64)
	holder.Spec.Service = new(true)
	got, err := podtemplate.NewSandboxFromTemplate(holder, podtemplate.Inline(rawOf(plain)))
	if err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", GenerateName: strings.Repeat("a", 50) + "-",
			Labels: map[string]string{
				"app": "x", v1alpha1.LabelSandboxClaimed: "false",
				v1alpha1.LabelSandboxTemplate: v1alpha1.TemplateLabel(holder.Name),
				v1alpha1.AgentLabelTemplate:   v1alpha1.NameHash(holder.Name),
			},
			Annotations: map[string]string{
				v1alpha1.AnnotationSandboxPriority: "100", v1alpha1.AgentAnnotationTemplate: holder.Name,
			},
		},
		Spec: v1alpha1.SandboxSpec{
			PauseStrategy: holder.Spec.PauseStrategy, PersistentContents: holder.Spec.PersistentContents, Runtimes: holder.Spec.Runtimes,
			Service: holder.Spec.Service,
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
				Template: rawOf(plain), VolumeClaimTemplates: holder.Spec.VolumeClaimTemplates,
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	holder.Name = "base"
	if got, err = podtemplate.NewSandboxFromTemplate(holder, podtemplate.Inline(rawOf(plain))); err != nil {
		t.Fatal(err)
	}
	if got.Labels[v1alpha1.LabelSandboxTemplate] != "base" || got.GenerateName != "base-" {
		t.Errorf("labels %v, prefix %s", got.Labels, got.GenerateName)
	}
}

// From what was materialised come the very sandboxes of then.
func TestAtRevision(t *testing.T) {
	set := referring()
	serving := &podtemplate.Resolved{Template: rawOf(plain), Service: new(true)}
	holder := podtemplate.NewHolder(set, "rev", serving)
	owner := metav1.GetControllerOf(holder)
	if holder.Name != "base-rev" || holder.Namespace != "ns" || owner == nil || owner.UID != "u" || *owner.BlockOwnerDeletion {
		t.Errorf("materialised %+v", holder.ObjectMeta)
	}
	want, err := podtemplate.NewSandbox(set, "rev", serving)
	if err != nil {
		t.Fatal(err)
	}
	if service := want.Spec.Service; service == nil || !*service || service == serving.Service {
		t.Errorf("service %v", service)
	}
	now := set.DeepCopy()
	now.Spec.VolumeClaimTemplates, now.Spec.Runtimes, now.Spec.PersistentContents = nil, nil, []string{"memory"}
	now.Spec.PauseStrategy.Type = v1alpha1.PauseStrategyHibernate
	then, resolved := podtemplate.AtRevision(now, holder)
	got, err := podtemplate.NewSandbox(then, "rev", resolved)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(now.Spec.Runtimes) != 0 {
		t.Error("the set of now has changed")
	}
	// Whether the set has a patch by now, or none any more, does not matter.
	now.Spec.Patch = rawOf(`{}`)
	then, resolved = podtemplate.AtRevision(now, holder)
	if got, err = podtemplate.NewSandbox(then, "rev", resolved); err != nil || got.Spec.TemplateRef.Name != "base-rev" {
		t.Errorf("with a patch since: %v, %v", got, err)
	}
	holder = podtemplate.NewHolder(now, "rev", serving)
	then, resolved = podtemplate.AtRevision(set, holder)
	if got, err = podtemplate.NewSandbox(then, "rev", resolved); err != nil || got.Spec.TemplateRef.Name != "py-rev" {
		t.Errorf("without its patch since: %v, %v", got, err)
	}
}

// Clients of OpenKruise Agents expect the name of a template that a set takes as it is,
// and no SandboxTemplate with the name of such a set.
func TestCurrentRevision(t *testing.T) {
	refers := func(name string) func(*v1alpha1.SandboxSet) {
		return func(s *v1alpha1.SandboxSet) { s.Spec.TemplateRef = to(name) }
	}
	patched := func(s *v1alpha1.SandboxSet) { s.Spec.Patch = rawOf(`{"spec":{}}`) }
	long := strings.Repeat("t", 63)
	tests := map[string]struct {
		set             *v1alpha1.SandboxSet
		current, holder string
	}{
		"inline":        {setOf(plain), "py-rev", "py-rev"},
		"a template":    {setOf("", refers("base")), "base", "base-rev"},
		"a PodTemplate": {setOf("", refers("PodTemplate core")), "core", "core-rev"},
		"patched":       {setOf("", refers("base"), patched), "py-rev", "py-rev"},
		"its namesake":  {setOf("", refers("py")), "py", "py-rev"},
		"a long name":   {setOf("", refers(long)), long, long + "-rev"},
	}
	for name, test := range tests {
		current, holder := podtemplate.CurrentRevision(test.set, "rev"), podtemplate.RevisionName(test.set, "rev")
		if current != test.current || holder != test.holder {
			t.Errorf("%s: current revision %s, held by %s", name, current, holder)
		}
		status := &v1alpha1.SandboxSetStatus{CurrentRevision: current, UpdateRevision: "rev"}
		if got := podtemplate.HolderOf(status); got != holder {
			t.Errorf("%s: the status leads to %s, want %s", name, got, holder)
		}
		sandbox, err := podtemplate.NewSandbox(test.set, "rev", podtemplate.Inline(rawOf(plain)))
		if err != nil {
			t.Fatal(err)
		}
		if got := podtemplate.PossibleHolders(sandbox); !slices.Contains(got, holder) {
			t.Errorf("%s: the sandbox leads to %v, want %s", name, got, holder)
		}
	}
	if got := podtemplate.HolderOf(&v1alpha1.SandboxSetStatus{UpdateRevision: "rev"}); got != "" {
		t.Errorf("a revision that is not held leads to %s", got)
	}
	if got := podtemplate.PossibleHolders(&v1alpha1.Sandbox{}); len(got) > 0 {
		t.Errorf("a sandbox of no pool leads to %v", got)
	}
}

// A revision does not tell where the template comes from, and those of sets with
// inline templates stay what they were.
func TestSetRevision(t *testing.T) {
	revision := func(set *v1alpha1.SandboxSet, template string) string {
		t.Helper()
		got, err := podtemplate.SetRevision(set, podtemplate.Inline(rawOf(template)))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got, want := revision(setOf(plain), plain), "exlic37ay27aakg2"; got != want {
		t.Errorf("inline: %s, want %s as ever", got, want)
	}
	bare := setOf("", func(s *v1alpha1.SandboxSet) { s.Spec.TemplateRef = to("base") })
	if got, want := revision(bare, plain), "exlic37ay27aakg2"; got != want {
		t.Errorf("by reference: %s, want %s", got, want)
	}
	if revision(bare, plain) == revision(bare, strings.Replace(plain, "busybox", "other", 1)) {
		t.Error("the resolved template does not count")
	}
	serving, err := podtemplate.SetRevision(bare, &podtemplate.Resolved{Template: rawOf(plain), Service: new(false)})
	if err != nil || serving == revision(bare, plain) {
		t.Errorf("what is said of services does not count: %s, %v", serving, err)
	}
	if revision(bare, plain) == revision(referring(), plain) {
		t.Error("the set's own parts do not count")
	}
}

// TestCacheSetRevision: a Cache remembers revisions, and none of other content.
func TestCacheSetRevision(t *testing.T) {
	cache := podtemplate.NewCache()
	set, resolved := referring(), podtemplate.Inline(rawOf(plain))
	set.Generation = 1
	first, err := cache.SetRevision(set, resolved)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*v1alpha1.SandboxSet, *podtemplate.Resolved){
		"nothing": func(*v1alpha1.SandboxSet, *podtemplate.Resolved) {},
		"template": func(_ *v1alpha1.SandboxSet, r *podtemplate.Resolved) {
			r.Template = rawOf(`{"spec":{"containers":[]}}`)
		},
		"volumes of template": func(_ *v1alpha1.SandboxSet, r *podtemplate.Resolved) {
			r.VolumeClaimTemplates = []runtime.RawExtension{volumeOf("cache", "1Gi")}
		},
		"service":         func(_ *v1alpha1.SandboxSet, r *podtemplate.Resolved) { r.Service = new(true) },
		"no service":      func(_ *v1alpha1.SandboxSet, r *podtemplate.Resolved) { r.Service = new(false) },
		"network":         func(_ *v1alpha1.SandboxSet, r *podtemplate.Resolved) { r.NetworkManaged = true },
		"set":             func(s *v1alpha1.SandboxSet, _ *podtemplate.Resolved) { s.Generation++; s.Spec.PersistentContents = nil },
		"set of the name": func(s *v1alpha1.SandboxSet, _ *podtemplate.Resolved) { s.UID = "other"; s.Spec.Runtimes = nil },
	} {
		t.Run(name, func(t *testing.T) {
			set, resolved := set.DeepCopy(), *resolved
			change(set, &resolved)
			want, err := podtemplate.SetRevision(set, &resolved)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := cache.SetRevision(set, &resolved); err != nil || got != want {
				t.Errorf("revision %s, %v, want %s", got, err, want)
			}
			if (want == first) != (name == "nothing") {
				t.Errorf("revision %s, before %s", want, first)
			}
		})
	}
	set.Spec.PersistentContents = nil // which no stored set does within a generation
	if got, err := cache.SetRevision(set, resolved); err != nil || got != first {
		t.Errorf("revision %s, %v is not remembered: %s", got, err, first)
	}
}

// Pods are selected by the template that their set refers to, from birth: where that
// has a NetworkPolicy they are made anew for another one, and nowhere else.
func TestSetRevisionOfNetwork(t *testing.T) {
	revision := func(name string, managed bool) string {
		t.Helper()
		set := setOf("", func(s *v1alpha1.SandboxSet) { s.Spec.TemplateRef = to(name) })
		got, err := podtemplate.SetRevision(set, &podtemplate.Resolved{Template: rawOf(plain), NetworkManaged: managed})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	seen := map[string]string{}
	for what, got := range map[string]string{
		"nobody's": revision("open", false), "of locked": revision("locked", true), "of another": revision("other", true),
		"of a long name": revision(strings.Repeat("x", 70), true),
	} {
		if before, ok := seen[got]; ok {
			t.Errorf("%s and %s are both %s", what, before, got)
		}
		seen[got] = what
	}
	if a, b := revision("open", false), revision("free", false); a != b || a != "exlic37ay27aakg2" {
		t.Errorf("without policies: %s and %s", a, b)
	}
}

// The same through references, from the template that is named first.
func TestResolvedNetwork(t *testing.T) {
	w := newWorld()
	resolve := func(name string) *podtemplate.Resolved {
		t.Helper()
		got, err := podtemplate.ResolveSet(t.Context(), setOf("", func(s *v1alpha1.SandboxSet) { s.Spec.TemplateRef = to(name) }), w)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	w.templates["a"].Spec.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{}
	for name, want := range map[string]bool{"a": true, "b": false, "inline": false, "PodTemplate core": false} {
		if got := resolve(name).NetworkManaged; got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	w.templates["a"].Spec.NetworkPolicyManagement = v1alpha1.NetworkPolicyUnmanaged
	if resolve("a").NetworkManaged {
		t.Error("unmanaged, and still counts")
	}
}

// What a SandboxTemplate holds is its content, whatever it is called and says of itself.
func TestHoldsRevision(t *testing.T) {
	serving := &podtemplate.Resolved{Template: rawOf(plain), Service: new(true)}
	policed := &podtemplate.Resolved{Template: rawOf(plain), NetworkManaged: true}
	revision := func(resolved *podtemplate.Resolved) string {
		t.Helper()
		got, err := podtemplate.SetRevision(referring(), resolved)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	tests := map[string]struct {
		resolved *podtemplate.Resolved
		change   func(*v1alpha1.SandboxTemplate)
		want     bool
	}{
		"as made":               {serving, func(*v1alpha1.SandboxTemplate) {}, true},
		"as made, policed":      {policed, func(*v1alpha1.SandboxTemplate) {}, true},
		"metadata of no weight": {serving, func(s *v1alpha1.SandboxTemplate) { s.Name, s.OwnerReferences, s.Labels["a"] = "x", nil, "b" }, true},
		"for another template":  {serving, func(s *v1alpha1.SandboxTemplate) { s.Labels[v1alpha1.LabelSandboxTemplate] = "open" }, true},
		"policed by another":    {policed, func(s *v1alpha1.SandboxTemplate) { s.Labels[v1alpha1.LabelSandboxTemplate] = "open" }, false},
		"another image": {serving, func(s *v1alpha1.SandboxTemplate) {
			s.Spec.Template = rawOf(strings.Replace(plain, "busybox", "evil", 1))
		}, false},
		"a reference":              {serving, func(s *v1alpha1.SandboxTemplate) { s.Spec.Template, s.Spec.TemplateRef = nil, to("base") }, false},
		"of another set":           {serving, func(s *v1alpha1.SandboxTemplate) { s.Labels[v1alpha1.LabelSandboxPool] = "other" }, false},
		"a network policy":         {serving, func(s *v1alpha1.SandboxTemplate) { s.Spec.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{} }, false},
		"a policy's management":    {serving, func(s *v1alpha1.SandboxTemplate) { s.Spec.NetworkPolicyManagement = v1alpha1.NetworkPolicyManaged }, false},
		"a reference beside":       {serving, func(s *v1alpha1.SandboxTemplate) { s.Spec.TemplateRef = to("base") }, false},
		"lets claims inject":       {serving, func(s *v1alpha1.SandboxTemplate) { s.Spec.EnvVarsInjectionPolicy = v1alpha1.InjectionOverrides }, false},
		"makes more for one claim": {serving, func(s *v1alpha1.SandboxTemplate) { s.Spec.MaxFreshSandboxes = new(int32(9)) }, false},
		"no Service":               {serving, func(s *v1alpha1.SandboxTemplate) { s.Spec.Service = nil }, false},
		"no runtimes":              {serving, func(s *v1alpha1.SandboxTemplate) { s.Spec.Runtimes = nil }, false},
		"no volumes":               {serving, func(s *v1alpha1.SandboxTemplate) { s.Spec.VolumeClaimTemplates = nil }, false},
		"other contents":           {serving, func(s *v1alpha1.SandboxTemplate) { s.Spec.PersistentContents = nil }, false},
		"no pause":                 {serving, func(s *v1alpha1.SandboxTemplate) { s.Spec.PauseStrategy = nil }, false},
	}
	for name, test := range tests {
		held := revision(test.resolved)
		template := podtemplate.NewHolder(referring(), held, test.resolved)
		test.change(template)
		if got := podtemplate.HoldsRevision(template, held); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What earlier versions have made serves on, and nothing is made of their revisions: to
// find other content of the same short hash is easy.
func TestShortRevision(t *testing.T) {
	const short = "5477487d4"
	set := setOf(plain, func(s *v1alpha1.SandboxSet) { s.Name, s.UID = "s", "s" })
	born := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for name, test := range map[string]struct {
		change func(*v1alpha1.SandboxTemplate)
		want   bool
	}{
		"as made": {func(*v1alpha1.SandboxTemplate) {}, true},
		"older":   {func(s *v1alpha1.SandboxTemplate) { s.CreationTimestamp.Time = born.Add(-time.Hour) }, true},
		"younger": {func(s *v1alpha1.SandboxTemplate) { s.CreationTimestamp.Time = born.Add(time.Second) }, false},
		"changed": {func(s *v1alpha1.SandboxTemplate) { s.Generation = 2 }, false},
		"other content": {func(s *v1alpha1.SandboxTemplate) {
			s.Spec.Template = rawOf(strings.Replace(plain, "busybox", "evil", 1))
		}, false},
	} {
		template := podtemplate.NewHolder(set, short, podtemplate.Inline(rawOf(plain)))
		template.UID, template.ResourceVersion, template.Generation, template.CreationTimestamp = "t", "1", 1, born
		test.change(template)
		w, cache := newWorld(), podtemplate.NewCache()
		w.templates[template.Name] = template
		sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
			Namespace: template.Namespace, Name: "x", CreationTimestamp: born, Labels: map[string]string{v1alpha1.LabelTemplateHash: short}, OwnerReferences: template.OwnerReferences,
		}}
		sandbox.Spec.TemplateRef = to(template.Name)
		if _, err := cache.ResolveSandbox(t.Context(), sandbox, w); (err == nil) != test.want || err != nil && !errors.Is(err, podtemplate.ErrRevision) {
			t.Errorf("%s: %v", name, err)
		}
		if podtemplate.HoldsRevision(template, short) || cache.HoldsRevision(template, short) {
			t.Errorf("%s: sandboxes are made of it", name)
		}
	}
}

// The sandbox of a pool comes from the template of its revision, or from none.
func TestResolveSandboxOfPool(t *testing.T) {
	set := referring()
	resolved := podtemplate.Inline(rawOf(plain))
	revision, err := podtemplate.SetRevision(set, resolved)
	if err != nil {
		t.Fatal(err)
	}
	w, cache := newWorld(), podtemplate.NewCache()
	held := podtemplate.NewHolder(set, revision, resolved)
	held.UID, held.ResourceVersion = "held", "1"
	w.templates[held.Name] = held
	resolve := func(change func(*v1alpha1.Sandbox)) error {
		t.Helper()
		sandbox, err := podtemplate.NewSandbox(set, revision, resolved)
		if err != nil {
			t.Fatal(err)
		}
		change(sandbox)
		got, err := cache.ResolveSandbox(t.Context(), sandbox, w)
		if err == nil && string(got.Template.Raw) != plain {
			t.Errorf("got %s", got.Template.Raw)
		}
		return err
	}
	asMade := func(*v1alpha1.Sandbox) {}
	if err := resolve(asMade); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*v1alpha1.Sandbox){
		"another template": func(s *v1alpha1.Sandbox) { s.Spec.TemplateRef.Name = "inline" },
		"another kind":     func(s *v1alpha1.Sandbox) { s.Spec.TemplateRef.Kind = "PodTemplate" },
		"another revision": func(s *v1alpha1.Sandbox) { s.Labels[v1alpha1.LabelTemplateHash] = "other" },
		"no revision":      func(s *v1alpha1.Sandbox) { delete(s.Labels, v1alpha1.LabelTemplateHash) },
	} {
		if err := resolve(change); !errors.Is(err, podtemplate.ErrRevision) {
			t.Errorf("%s: %v", name, err)
		}
	}
	forged := held.DeepCopy()
	forged.ResourceVersion, forged.Spec.Template = "2", rawOf(strings.Replace(plain, "busybox", "evil", 1))
	w.templates[held.Name] = forged
	if err := resolve(asMade); !errors.Is(err, podtemplate.ErrRevision) {
		t.Errorf("other content by the same name: %v", err)
	}
	// Of an orphan, too, but not of a sandbox that refers to any template by itself.
	if err := resolve(func(s *v1alpha1.Sandbox) { s.OwnerReferences = nil }); !errors.Is(err, podtemplate.ErrRevision) {
		t.Errorf("an orphan: %v", err)
	}
	if err := resolve(func(s *v1alpha1.Sandbox) { s.OwnerReferences, s.Spec.TemplateRef.Name = nil, "inline" }); err != nil {
		t.Errorf("a user's own: %v", err)
	}
}

// That a set owns a template makes it no revision.
func TestIsRevision(t *testing.T) {
	set := setOf(plain, func(s *v1alpha1.SandboxSet) { s.Name, s.UID = "s", "s" })
	tests := map[string]struct {
		change func(*v1alpha1.SandboxTemplate)
		want   bool
	}{
		"as made":        {func(*v1alpha1.SandboxTemplate) {}, true},
		"adopted":        {func(s *v1alpha1.SandboxTemplate) { s.Labels["a"] = "b" }, true},
		"a user's name":  {func(s *v1alpha1.SandboxTemplate) { s.Name = "s-mine" }, false},
		"a user's label": {func(s *v1alpha1.SandboxTemplate) { delete(s.Labels, v1alpha1.LabelTemplateHash) }, false},
		"nobody's":       {func(s *v1alpha1.SandboxTemplate) { s.OwnerReferences = nil }, false},
		"another kind's": {func(s *v1alpha1.SandboxTemplate) { s.OwnerReferences[0].Kind = "Application" }, false},
	}
	for name, test := range tests {
		template := podtemplate.NewHolder(set, "h4sh", podtemplate.Inline(rawOf(plain)))
		test.change(template)
		if got := podtemplate.IsRevision(template); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		template.Spec.NetworkPolicyManagement = v1alpha1.NetworkPolicyManaged
		if podtemplate.HasNetworkPolicy(template) == test.want {
			t.Errorf("%s: a policy of its own: %v", name, !test.want)
		}
	}
}

func TestSandboxRevisionOfAReference(t *testing.T) {
	revision := func(ref string) string {
		t.Helper()
		sandbox := &v1alpha1.Sandbox{}
		sandbox.Spec.TemplateRef = to(ref)
		got, err := podtemplate.SandboxRevision(sandbox)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first, again, other, pods := revision("a"), revision("a"), revision("b"), revision("PodTemplate a")
	if first != again || first == other || first == pods {
		t.Errorf("revisions %s, %s, %s, %s", first, again, other, pods)
	}
}
