// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// world is a Lookup of one namespace.
type world struct {
	templates map[string]*v1alpha1.SandboxTemplate
	pods      map[string]*corev1.PodTemplate
	err       error
}

func (w *world) SandboxTemplate(_ context.Context, namespace, name string) (*v1alpha1.SandboxTemplate, error) {
	if namespace != "ns" {
		return nil, fmt.Errorf("asked in namespace %q", namespace)
	}
	return w.templates[name], w.err
}

func (w *world) PodTemplate(_ context.Context, namespace, name string) (*corev1.PodTemplate, error) {
	if namespace != "ns" {
		return nil, fmt.Errorf("asked in namespace %q", namespace)
	}
	return w.pods[name], w.err
}

// to is a reference: a name, perhaps with "Kind/" or "apiVersion/Kind/" before it.
func to(text string) *v1alpha1.SandboxTemplateRef {
	parts := strings.Split(text, " ")
	ref := &v1alpha1.SandboxTemplateRef{Name: parts[len(parts)-1]}
	if len(parts) > 1 {
		ref.Kind = parts[len(parts)-2]
	}
	if len(parts) > 2 {
		ref.APIVersion = parts[0]
	}
	return ref
}

// newWorld has templates that refer to each other, and inline ones at their ends.
func newWorld() *world {
	w := &world{templates: map[string]*v1alpha1.SandboxTemplate{}, pods: map[string]*corev1.PodTemplate{}}
	add := func(name string, change func(*v1alpha1.SandboxTemplateSpec)) {
		template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
		}}
		change(&template.Spec)
		w.templates[name] = template
	}
	refer := func(name, target string) {
		add(name, func(s *v1alpha1.SandboxTemplateSpec) { s.TemplateRef = to(target) })
	}
	add("inline", func(s *v1alpha1.SandboxTemplateSpec) { s.Template = rawOf(plain) })
	add("neither", func(*v1alpha1.SandboxTemplateSpec) {})
	refer("a", "b")
	refer("b", "SandboxTemplate inline")
	refer("pods", "v1 PodTemplate core")
	refer("missing", "nowhere")
	refer("missing-pods", "PodTemplate nowhere")
	refer("wrong", "apps/v1 Deployment x")
	refer("to-neither", "neither")
	refer("self", "self")
	refer("x", "y")
	refer("y", "z")
	refer("z", "y")
	for i := range 12 {
		refer(fmt.Sprintf("long%d", i), fmt.Sprintf("long%d", i+1))
	}
	add("long12", func(s *v1alpha1.SandboxTemplateSpec) { s.Template = rawOf(plain) })
	w.pods["core"] = &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{UID: "uid-core", ResourceVersion: "1"}}
	w.pods["core"].Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "core"}}
	return w
}

func TestResolve(t *testing.T) {
	const core = `{"metadata":{},"spec":{"containers":[{"name":"c","image":"core","resources":{}}]}}`
	tests := map[string]struct {
		ref     string
		patch   string
		want    string
		chain   []string
		err     error
		message string
	}{
		"one":            {ref: "inline", want: plain, chain: []string{"inline"}},
		"by kind":        {ref: "agents.kruise.io/v1alpha1 SandboxTemplate inline", want: plain, chain: []string{"inline"}},
		"a chain":        {ref: "a", want: plain, chain: []string{"a", "b", "inline"}},
		"a PodTemplate":  {ref: "PodTemplate core", want: core, chain: []string{"core"}},
		"one at the end": {ref: "pods", want: core, chain: []string{"pods", "core"}},
		"as long as it may": {ref: "long5", want: plain, chain: []string{
			"long5", "long6", "long7", "long8", "long9", "long10", "long11", "long12",
		}},
		"patched": {
			ref: "a", patch: `{"spec":{"hostname":"h"}}`, chain: []string{"a", "b", "inline"},
			want: strings.Replace(plain, `"spec":{`, `"spec":{"hostname":"h",`, 1),
		},
		"a patched PodTemplate": {
			ref: "PodTemplate core", patch: `{"spec":{"containers":[{"name":"c","image":"x"}]}}`, chain: []string{"core"},
			want: strings.Replace(core, `"core"`, `"x"`, 1),
		},
		"missing":          {ref: "nowhere", err: podtemplate.ErrTemplateNotFound, message: "SandboxTemplate nowhere: not found"},
		"a missing end":    {ref: "missing", err: podtemplate.ErrTemplateNotFound, message: "SandboxTemplate missing -> SandboxTemplate nowhere: not found"},
		"a missing pod":    {ref: "missing-pods", err: podtemplate.ErrTemplateNotFound, message: "SandboxTemplate missing-pods -> PodTemplate nowhere: not found"},
		"itself":           {ref: "self", err: podtemplate.ErrTemplateCycle, message: "SandboxTemplate self -> SandboxTemplate self: "},
		"a cycle":          {ref: "x", err: podtemplate.ErrTemplateCycle, message: "SandboxTemplate x -> SandboxTemplate y -> SandboxTemplate z -> SandboxTemplate y: "},
		"too long":         {ref: "long4", err: podtemplate.ErrTemplateCycle, message: "more than 8"},
		"another kind":     {ref: "wrong", err: podtemplate.ErrTemplateKind, message: "SandboxTemplate wrong -> apps/v1 Deployment x: "},
		"another version":  {ref: "v1 SandboxTemplate inline", err: podtemplate.ErrTemplateKind, message: "v1 SandboxTemplate inline: "},
		"of another group": {ref: "agents.kruise.io/v1alpha1 PodTemplate core", err: podtemplate.ErrTemplateKind, message: "agents.kruise.io/v1alpha1 PodTemplate core: "},
		"no template":      {ref: "to-neither", err: podtemplate.ErrNoTemplate, message: "SandboxTemplate to-neither -> SandboxTemplate neither: "},
		"a bad patch":      {ref: "a", patch: `{"spec":{"containers":[{}]}}`, err: podtemplate.ErrPatch, message: "SandboxTemplate a -> SandboxTemplate b -> SandboxTemplate inline: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			set := setOf("", func(s *v1alpha1.SandboxSet) {
				s.Spec.TemplateRef = to(test.ref)
				if test.patch != "" {
					s.Spec.Patch = rawOf(test.patch)
				}
			})
			check := func(how string, got *podtemplate.Resolved, err error) {
				if test.err != nil {
					if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.message) {
						t.Errorf("%s: got %v, error %v; want %v with %q", how, got, err, test.err, test.message)
					}
					kinds := 0
					for _, kind := range []error{
						podtemplate.ErrTemplateNotFound, podtemplate.ErrTemplateCycle, podtemplate.ErrTemplateKind,
						podtemplate.ErrPatch, podtemplate.ErrNoTemplate,
					} {
						if errors.Is(err, kind) {
							kinds++
						}
					}
					if kinds != 1 {
						t.Errorf("%s: error %v is of %d kinds", how, err, kinds)
					}
					return
				}
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				if diff := cmp.Diff(decoded(t, test.want), decoded(t, string(got.Template.Raw))); diff != "" {
					t.Errorf("%s: template (-want +got):\n%s", how, diff)
				}
				if !slices.Equal(got.Chain, test.chain) {
					t.Errorf("%s: chain %v, want %v", how, got.Chain, test.chain)
				}
			}
			w, cache := newWorld(), podtemplate.NewCache()
			got, err := podtemplate.ResolveSet(t.Context(), set, w)
			check("set", got, err)
			for range 3 {
				got, err = cache.ResolveSet(t.Context(), set, w)
				check("cached", got, err)
			}
			if test.patch != "" {
				if cache.Patches() != 1 {
					t.Errorf("%d patches applied", cache.Patches())
				}
				return
			}
			sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "box"}}
			sandbox.Spec.TemplateRef = set.Spec.TemplateRef
			got, err = podtemplate.NewCache().ResolveSandbox(t.Context(), sandbox, w)
			check("sandbox", got, err)
			if template := w.templates[test.ref]; template != nil {
				got, err = podtemplate.ResolveTemplate(t.Context(), template, w)
				check("template", got, err)
			}
		})
	}
}

func TestResolveInline(t *testing.T) {
	set := setOf(plain)
	got, err := podtemplate.ResolveSet(t.Context(), set, nil)
	if err != nil || got.Template != set.Spec.Template || len(got.Chain) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := podtemplate.ResolveSet(t.Context(), setOf(""), nil); !errors.Is(err, podtemplate.ErrNoTemplate) {
		t.Errorf("neither: %v", err)
	}
}

// What went wrong in the looking says nothing about the template.
func TestResolveOutage(t *testing.T) {
	w := newWorld()
	w.err = errors.New("connection refused")
	for _, ref := range []string{"inline", "PodTemplate core"} {
		set := setOf("", func(s *v1alpha1.SandboxSet) { s.Spec.TemplateRef = to(ref) })
		_, err := podtemplate.ResolveSet(t.Context(), set, w)
		if !errors.Is(err, w.err) || errors.Is(err, podtemplate.ErrTemplateNotFound) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// The cache tells states of a template apart, and shares between sets.
func TestCache(t *testing.T) {
	w, cache := newWorld(), podtemplate.NewCache()
	resolve := func(name, patch string) string {
		t.Helper()
		set := setOf("", func(s *v1alpha1.SandboxSet) {
			s.Name, s.Spec.TemplateRef, s.Spec.Patch = name, to("a"), rawOf(patch)
		})
		got, err := cache.ResolveSet(t.Context(), set, w)
		if err != nil {
			t.Fatal(err)
		}
		return string(got.Template.Raw)
	}
	one := resolve("one", `{"spec":{"hostname":"x"}}`)
	if two := resolve("two", `{"spec":{"hostname":"x"}}`); two != one || cache.Patches() != 1 {
		t.Errorf("two sets of the same patch: %d patches", cache.Patches())
	}
	if other := resolve("one", `{"spec":{"hostname":"y"}}`); other == one || cache.Patches() != 2 {
		t.Errorf("another patch: %d patches", cache.Patches())
	}
	edited := w.templates["inline"].DeepCopy()
	edited.ResourceVersion, edited.Spec.Template = "2", rawOf(strings.Replace(plain, "busybox", "other", 1))
	w.templates["inline"] = edited
	if after := resolve("one", `{"spec":{"hostname":"x"}}`); !strings.Contains(after, "other") || cache.Patches() != 3 {
		t.Errorf("an edited template: %s, %d patches", after, cache.Patches())
	}
	w.templates["a"] = w.templates["inline"] // the chain ends elsewhere
	if resolve("one", `{"spec":{"hostname":"x"}}`); cache.Patches() != 3 {
		t.Errorf("a shorter chain to the same end: %d patches", cache.Patches())
	}
	edited = edited.DeepCopy()
	edited.UID, edited.Spec.Template = "new", rawOf(plain)
	w.templates["a"] = edited
	if again := resolve("one", `{"spec":{"hostname":"x"}}`); again != one {
		t.Errorf("another template of that name and version: %s", again)
	}
}

func BenchmarkCacheHit(b *testing.B) {
	w, cache := newWorld(), podtemplate.NewCache()
	set := setOf("", func(s *v1alpha1.SandboxSet) {
		s.Spec.TemplateRef, s.Spec.Patch = to("inline"), rawOf(`{"spec":{"hostname":"x"}}`)
	})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cache.ResolveSet(b.Context(), set, w); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cache.Patches()), "patches")
}
