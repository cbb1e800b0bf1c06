// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A process that ends soon runs for a moment as well.
func TestIsRunning(t *testing.T) {
	for name, test := range map[string]struct {
		sandbox builder
		want    bool
	}{
		"starting":         {starting("a"), false},
		"runs":             {starting("a").phase(v1alpha1.SandboxRunning).ip("127.1.1.1"), false},
		"not ready":        {available("a").ready(false), false},
		"available":        {available("a"), true},
		"ready, but ended": {available("a").phase(v1alpha1.SandboxSucceeded), false},
	} {
		if got := isRunning(test.sandbox.Sandbox); got != test.want {
			t.Errorf("%s: running: %v", name, got)
		}
	}
}

// TestMayHoldOther: what the controller itself notes on a SandboxTemplate is no reason to look at its set.
func TestMayHoldOther(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.SandboxTemplate)
		want   bool
	}{
		"other version": {func(s *v1alpha1.SandboxTemplate) { s.ResourceVersion = "2" }, false},
		"noted": {func(s *v1alpha1.SandboxTemplate) {
			s.Annotations = map[string]string{v1alpha1.AnnotationRevisionReused: "now"}
		}, false},
		"made anew":  {func(s *v1alpha1.SandboxTemplate) { s.UID = "other" }, true},
		"spec":       {func(s *v1alpha1.SandboxTemplate) { s.Generation++ }, true},
		"is deleted": {func(s *v1alpha1.SandboxTemplate) { s.DeletionTimestamp = new(metav1.Now()) }, true},
		"pool":       {func(s *v1alpha1.SandboxTemplate) { s.Labels[v1alpha1.LabelSandboxPool] = "other" }, true},
		"revision":   {func(s *v1alpha1.SandboxTemplate) { delete(s.Labels, v1alpha1.LabelTemplateHash) }, true},
		"template":   {func(s *v1alpha1.SandboxTemplate) { s.Labels[v1alpha1.LabelSandboxTemplate] = "other" }, true},
	} {
		before := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{
			UID: "uid", ResourceVersion: "1", Generation: 1,
			Labels: map[string]string{v1alpha1.LabelSandboxPool: "pool", v1alpha1.LabelTemplateHash: "x1"},
		}}
		after := before.DeepCopy()
		test.change(after)
		if got := mayHoldOther(before, after); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Those that never were a set's may have the name of a revision of the set "a-b", or of
// a set that refers to the template "a-b".
func TestSetsOfTemplate(t *testing.T) {
	w := watches{indexes: &indexes{setUsers: usersOf{"SandboxTemplate/n/a-b": "of-template", "PodTemplate/n/a-b": "of-pods"}}}
	check := func(template *v1alpha1.SandboxTemplate, want ...string) {
		t.Helper()
		got := sets.New[string]()
		for _, key := range w.setsOfTemplate(t.Context(), template) {
			got.Insert(key.String())
		}
		if !got.Equal(sets.New(want...)) {
			t.Errorf("%s concerns %v, want %v", template.Name, got, want)
		}
	}
	owned := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "a-b-x1", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "owner", Controller: new(true),
		}},
		Labels: map[string]string{v1alpha1.LabelSandboxPool: "labelled"},
	}}
	check(owned, "n/owner", "n/labelled")
	check(&v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a-b-x1"}}, "n/a-b", "n/of-template", "n/of-pods")
	check(&v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "python"}})
}

// usersOf are the sets that refer to templates, by kind, namespace and name.
type usersOf map[string]string

func (u usersOf) UsersOf(kind, namespace, name string) ([]client.Object, error) {
	set := &v1alpha1.SandboxSet{}
	if set.Name = u[kind+"/"+namespace+"/"+name]; set.Name == "" {
		return nil, nil
	}
	return []client.Object{set}, nil
}

// A claim may have taken a sandbox before the cache shows it at all.
func TestSetOf(t *testing.T) {
	pooled := available("a").label(v1alpha1.LabelSandboxPool, "whatever the user wrote")
	if got := setOf(pooled.Sandbox); got.String() != "ns/pool" {
		t.Errorf("pooled: %s", got)
	}
	claimed := available("a")
	claimed.OwnerReferences = nil
	if got := setOf(claimed.Sandbox); got.String() != "ns/pool" {
		t.Errorf("claimed: %s", got)
	}
}

// TestRecyclingFails: a pool no longer waits for a sandbox whose recycling has failed.
func TestRecyclingFails(t *testing.T) {
	w := watches{clock: clocktesting.NewFakePassiveClock(epoch), states: newSetStates(0), claims: newWaitingClaims()}
	before := recycling(time.Second).phase(v1alpha1.SandboxRecycling)
	for name, want := range map[string][]string{"pool": {"pool"}, "": nil} {
		q := &enqueuedSets{}
		before.label(v1alpha1.LabelSandboxPool, name)
		w.sandboxUpdated(before.Sandbox, builder{before.DeepCopy()}.phase(v1alpha1.SandboxFailed).Sandbox, q)
		if !slices.Equal(q.sets, want) {
			t.Errorf("the label %q enqueues %q, want %q", name, q.sets, want)
		}
	}
}
