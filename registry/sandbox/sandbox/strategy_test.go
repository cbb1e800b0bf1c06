// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
)

var now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(d))) }

func newStrategy() sandbox.Strategy {
	return sandbox.NewStrategy(registrytest.NewScheme(), testclock.NewFakePassiveClock(now))
}

func TestPrepareForCreate(t *testing.T) {
	obj := registrytest.NewSandbox("a")
	obj.Generation = 7
	obj.Status = v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxRunning, SandboxIP: "10.0.0.1"}
	obj.Spec.Template.Raw = []byte(`{"spec": {"containers": [{"name": "main", "image": "busybox:1"}]}}`)
	obj.Spec.ShutdownTime = at(1500 * time.Millisecond)

	newStrategy().PrepareForCreate(t.Context(), obj)

	want := registrytest.NewSandbox("a")
	want.Generation = 1
	want.Spec.ShutdownTime = at(time.Second)
	revision, err := podtemplate.SandboxRevision(want)
	if err != nil {
		t.Fatal(err)
	}
	want.Status = v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxPending, ObservedGeneration: 1, UpdateRevision: revision}
	if diff := cmp.Diff(want, obj); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A sandbox of a template says of which, for the pod to be selected by. A user who
// applies or replaces it without the label does not take it away.
func TestTemplateLabel(t *testing.T) {
	const label = v1alpha1.LabelSandboxTemplate
	long := strings.Repeat("a", 64)
	ref := func(kind, name string) *v1alpha1.SandboxTemplateRef {
		return &v1alpha1.SandboxTemplateRef{Kind: kind, Name: name}
	}
	tests := map[string]struct {
		ref    *v1alpha1.SandboxTemplateRef
		labels map[string]string
		want   string
	}{
		"a template":         {ref: ref("", "python"), want: "python"},
		"by its kind":        {ref: ref("SandboxTemplate", "python"), want: "python"},
		"a long name":        {ref: ref("", long), want: v1alpha1.TemplateLabel(long)},
		"said already":       {ref: ref("", "pool-abc"), labels: map[string]string{label: "python"}, want: "python"},
		"a PodTemplate":      {ref: ref("PodTemplate", "python")},
		"a template inlined": {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			obj := registrytest.NewSandbox("a")
			obj.Labels = tc.labels
			if tc.ref != nil {
				obj.Spec.Template, obj.Spec.TemplateRef = nil, tc.ref
			}
			newStrategy().PrepareForCreate(t.Context(), obj)
			if obj.Labels[label] != tc.want {
				t.Errorf("labels %v, want %q", obj.Labels, tc.want)
			}
			updated := obj.DeepCopy()
			updated.Labels = nil
			newStrategy().PrepareForUpdate(t.Context(), updated, obj)
			if updated.Labels[label] != tc.want {
				t.Errorf("after an update without it %v, want %q", updated.Labels, tc.want)
			}
			// One that was made before there was a label stays without.
			before := obj.DeepCopy()
			before.Labels = nil
			updated = before.DeepCopy()
			newStrategy().PrepareForUpdate(t.Context(), updated, before)
			if len(updated.Labels) > 0 {
				t.Errorf("an update labels an old sandbox: %v", updated.Labels)
			}
		})
	}
}

func TestPrepareForUpdate(t *testing.T) {
	tests := map[string]struct {
		change         func(*v1alpha1.Sandbox)
		wantGeneration int64
	}{
		"nothing": {func(*v1alpha1.Sandbox) {}, 3},
		"labels":  {func(s *v1alpha1.Sandbox) { s.Labels = map[string]string{"a": "b"} }, 3},
		"status":  {func(s *v1alpha1.Sandbox) { s.Status.Phase = v1alpha1.SandboxFailed }, 3},
		"template written otherwise": {func(s *v1alpha1.Sandbox) {
			s.Spec.Template.Raw = []byte("{ \"spec\":{\"containers\":[ {\"name\":\"main\",\"image\":\"busybox:1\"}]}}\n")
		}, 3},
		"fraction of a second": {func(s *v1alpha1.Sandbox) { s.Spec.PauseTime = at(time.Hour + time.Millisecond) }, 3},
		"template":             {func(s *v1alpha1.Sandbox) { s.Spec.Template.Raw = []byte(`{"spec":{}}`) }, 4},
		"paused":               {func(s *v1alpha1.Sandbox) { s.Spec.Paused = true }, 4},
		"no pause time":        {func(s *v1alpha1.Sandbox) { s.Spec.PauseTime = nil }, 4},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored := registrytest.NewSandbox("a")
			stored.Generation = 3
			stored.Spec.PauseTime = at(time.Hour)
			stored.Status.Phase = v1alpha1.SandboxRunning
			before := stored.DeepCopy()
			updated := stored.DeepCopy()
			tc.change(updated)

			newStrategy().PrepareForUpdate(t.Context(), updated, stored)

			if updated.Generation != tc.wantGeneration {
				t.Errorf("generation %d, want %d", updated.Generation, tc.wantGeneration)
			}
			if updated.Status.Phase != v1alpha1.SandboxRunning {
				t.Errorf("status was changed to %s", updated.Status.Phase)
			}
			if diff := cmp.Diff(before, stored); diff != "" {
				t.Errorf("stored object was changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestStatusPrepareForUpdate(t *testing.T) {
	stored := registrytest.NewSandbox("a")
	stored.Generation = 3
	stored.Labels = map[string]string{"a": "b"}
	updated := stored.DeepCopy()
	updated.Labels = nil
	updated.Finalizers = []string{"example.com/hold"}
	updated.Spec.Paused = true
	updated.Status.Phase = v1alpha1.SandboxRunning

	sandbox.NewStatusStrategy(newStrategy()).PrepareForUpdate(t.Context(), updated, stored)

	want := stored.DeepCopy()
	want.Status.Phase = v1alpha1.SandboxRunning
	if diff := cmp.Diff(want, updated); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWarnings(t *testing.T) {
	const shutdown = "spec.shutdownTime: 2026-09-01T11:00:00Z has passed already; the sandbox is deleted at once"
	const pause = "spec.pauseTime: 2026-09-01T11:00:00Z has passed already; the sandbox is paused at once"
	const kept = "spec.shutdownTime: 2026-09-01T11:00:00Z has passed already; the pod of the sandbox is deleted at once, and the sandbox stays"
	tests := map[string]struct {
		old, spec v1alpha1.SandboxSpec
		want      []string
	}{
		"past shutdown, kept": {v1alpha1.SandboxSpec{}, v1alpha1.SandboxSpec{ShutdownTime: at(-time.Hour), ShutdownPolicy: v1alpha1.ShutdownRetain}, []string{kept}},
		"none":                {v1alpha1.SandboxSpec{}, v1alpha1.SandboxSpec{}, nil},
		"ahead":               {v1alpha1.SandboxSpec{}, v1alpha1.SandboxSpec{ShutdownTime: at(time.Hour), PauseTime: at(time.Hour)}, nil},
		"past shutdown":       {v1alpha1.SandboxSpec{}, v1alpha1.SandboxSpec{ShutdownTime: at(-time.Hour)}, []string{shutdown}},
		"past pause":          {v1alpha1.SandboxSpec{}, v1alpha1.SandboxSpec{PauseTime: at(-time.Hour)}, []string{pause}},
		"resumed":             {v1alpha1.SandboxSpec{PauseTime: at(-time.Hour), Paused: true}, v1alpha1.SandboxSpec{PauseTime: at(-time.Hour)}, []string{pause}},
		"passed meanwhile":    {v1alpha1.SandboxSpec{ShutdownTime: at(-time.Hour)}, v1alpha1.SandboxSpec{ShutdownTime: at(-time.Hour), Paused: true}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := newStrategy().WarningsOnUpdate(t.Context(), &v1alpha1.Sandbox{Spec: tc.spec}, &v1alpha1.Sandbox{Spec: tc.old})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := newStrategy().WarningsOnCreate(t.Context(), &v1alpha1.Sandbox{Spec: tests["past shutdown"].spec}); len(got) != 1 {
		t.Errorf("create warns %q", got)
	}
	// Warnings about what a pause does not keep come with each way to ask for it.
	keeps := &v1alpha1.Sandbox{Spec: v1alpha1.SandboxSpec{PersistentContents: []string{"ip"}}}
	if got := newStrategy().WarningsOnCreate(t.Context(), keeps); len(got) != 1 {
		t.Errorf("create with contents warns %q", got)
	}
	if got := newStrategy().WarningsOnUpdate(t.Context(), keeps, &v1alpha1.Sandbox{}); len(got) != 1 {
		t.Errorf("asking for contents warns %q", got)
	}
	if got := newStrategy().WarningsOnUpdate(t.Context(), keeps, keeps); len(got) != 0 {
		t.Errorf("an update that leaves the contents warns %q", got)
	}
	owned := keeps.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "SandboxSet", Controller: new(true)}}
	if got := newStrategy().WarningsOnCreate(t.Context(), owned); len(got) != 0 {
		t.Errorf("a sandbox of a set warns %q", got)
	}
	if got := sandbox.NewStatusStrategy(newStrategy()).WarningsOnUpdate(t.Context(), &v1alpha1.Sandbox{Spec: tests["past shutdown"].spec}, &v1alpha1.Sandbox{}); got != nil {
		t.Errorf("status update warns %q", got)
	}
}

// A field that GetAttrs offers and the scheme does not know could never be
// selected by; one that the scheme knows and GetAttrs lacks would match nothing.
func TestGetAttrs(t *testing.T) {
	obj := registrytest.NewSandbox("a")
	obj.Labels = map[string]string{"l": "v"}
	obj.Status.Phase = v1alpha1.SandboxRunning
	labels, fields, err := sandbox.GetAttrs(obj)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(obj.Labels, map[string]string(labels)); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	want := map[string]string{"metadata.name": "a", "metadata.namespace": registrytest.Namespace, "status.phase": "Running"}
	if diff := cmp.Diff(want, map[string]string(fields)); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	scheme := registrytest.NewScheme()
	for name := range fields {
		if _, _, err := scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind("Sandbox"), name, "x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := sandbox.GetAttrs(&runtime.Unknown{}); err == nil {
		t.Error("another kind is no error")
	}
}
