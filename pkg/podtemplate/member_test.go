// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// templatesByName finds SandboxTemplates, or fails.
type templatesByName struct {
	all map[string]*v1alpha1.SandboxTemplate
	err error
}

func (l *templatesByName) SandboxTemplate(_ context.Context, _, name string) (*v1alpha1.SandboxTemplate, error) {
	return l.all[name], l.err
}

func (l *templatesByName) PodTemplate(context.Context, string, string) (*corev1.PodTemplate, error) {
	return nil, l.err
}

// TestNewMember: a member is of the revision that the set's status names, wherever that is
// to be found, and as the set itself makes it.
func TestNewMember(t *testing.T) {
	shared := builders.Template("shared")
	shared.Namespace = "ns"
	lookup := &templatesByName{all: map[string]*v1alpha1.SandboxTemplate{"shared": shared}}
	cache := podtemplate.NewCache()
	newSet := func(name string, refers bool) (*v1alpha1.SandboxSet, *v1alpha1.Sandbox) {
		t.Helper()
		set := builders.Set(name, 1)
		set.Namespace, set.UID = "ns", types.UID(name)
		if refers {
			set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "shared"}
		}
		resolved, err := podtemplate.ResolveSet(t.Context(), set, lookup)
		if err != nil {
			t.Fatal(err)
		}
		revision, err := podtemplate.SetRevision(set, resolved)
		if err != nil {
			t.Fatal(err)
		}
		set.Status.UpdateRevision, set.Status.CurrentRevision = revision, podtemplate.CurrentRevision(set, revision)
		held := podtemplate.NewHolder(set, revision, resolved)
		lookup.all[held.Name] = held
		made, err := podtemplate.NewSandbox(set, revision, resolved)
		if err != nil {
			t.Fatal(err)
		}
		return set, made
	}
	inline, ofInline := newSet("inline", false)
	refers, ofRefers := newSet("refers", true)
	check := func(what string, set *v1alpha1.SandboxSet, want *v1alpha1.Sandbox, wantErr error) {
		t.Helper()
		got, err := cache.NewMember(t.Context(), set, lookup)
		if !errors.Is(err, wantErr) {
			t.Errorf("%s: got the error %v, want %v", what, err, wantErr)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("inline", inline, ofInline, nil)
	check("refers", refers, ofRefers, nil)

	rewritten := inline.DeepCopy()
	template, err := v1alpha1.PodTemplate(inline.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	template.Spec.Containers[0].Env = []corev1.EnvVar{}
	if rewritten.Spec.Template, err = v1alpha1.RawTemplate(*template); err != nil {
		t.Fatal(err)
	}
	check("inline, and the spec is written otherwise", rewritten, ofInline, nil)

	changed := inline.DeepCopy()
	changed.Spec.Template = builders.PodTemplateOf("other")
	check("inline, and the spec asks for another", changed, nil, podtemplate.ErrRevision)

	lookup.all["shared"] = builders.Template("shared")
	lookup.all["shared"].Spec.Template = builders.PodTemplateOf("other")
	check("refers, and the template is another", refers, ofRefers, nil)
	delete(lookup.all, "shared")
	check("refers, and the template is gone", refers, ofRefers, nil)

	forged := lookup.all[podtemplate.HolderOf(&refers.Status)].DeepCopy()
	forged.Spec.Template = builders.PodTemplateOf("evil")
	lookup.all[forged.Name] = forged
	check("refers, and the revision is forged", refers, nil, podtemplate.ErrTemplateNotFound)
	lookup.err = errors.New("no answer")
	check("no answer", refers, nil, lookup.err)
}
