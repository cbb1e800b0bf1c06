// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// templateLabels are the templates that the sandboxes of the pool and the holder of
// the set's revision are labelled with.
func (f *fixture) templateLabels() (pooled []string, holder string) {
	f.Helper()
	for _, sandbox := range f.pooled() {
		pooled = append(pooled, sandbox.Labels[v1alpha1.LabelSandboxTemplate])
	}
	return pooled, f.template(f.set().Status.CurrentRevision).Labels[v1alpha1.LabelSandboxTemplate]
}

// refer makes the set refer to another template, and lets it go on.
func (f *fixture) refer(name string) {
	f.Helper()
	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.TemplateRef.Name = name })
	for range 4 {
		f.reconcile()
		f.start(f.pooled()...)
		f.sync()
	}
	f.reconcile()
}

// Another template that says the same is a reason to make the pool anew only where a
// NetworkPolicy selects its pods by the name of the template.
func testAnotherNetwork(_ *testing.T, f *fixture) {
	for _, name := range []string{"base", "open", "locked"} {
		f.createTemplate(name, podOf("busybox"))
	}
	locked := f.template("locked")
	locked.Spec.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{}
	if err := f.api.Update(f.Context(), locked); err != nil {
		f.Fatal(err)
	}
	f.createReferring(1, "")
	f.refer("base")
	first := f.wantPooled(1)[0]
	revision := f.set().Status.UpdateRevision

	f.refer("open")
	if now := f.wantPooled(1)[0]; now.UID != first.UID || f.set().Status.UpdateRevision != revision {
		f.Errorf("%s took the place of %s, at revision %s", now.Name, first.Name, f.set().Status.UpdateRevision)
	}
	if _, holder := f.templateLabels(); holder != "open" {
		f.Errorf("what is refilled from the revision alone would be of %q", holder)
	}

	f.refer("locked")
	pooled, holder := f.templateLabels()
	if now := f.set().Status.UpdateRevision; now == revision || len(pooled) != 1 || pooled[0] != "locked" || holder != "locked" {
		f.Errorf("revision %s after %s, sandboxes of %q, held for %q", now, revision, pooled, holder)
	}
	f.wantHolders(f.set().Status.UpdateRevision)

	f.refer("open")
	if pooled, holder = f.templateLabels(); f.set().Status.UpdateRevision != revision || len(pooled) != 1 || pooled[0] != "open" || holder != "open" {
		f.Errorf("back at revision %s: sandboxes of %q, held for %q", f.set().Status.UpdateRevision, pooled, holder)
	}
}

// A template that gets a policy only later rolls out, too.
func testNetworkLater(_ *testing.T, f *fixture) {
	f.createTemplate("base", podOf("busybox"))
	f.createReferring(1, "")
	f.refer("base")
	revision := f.set().Status.UpdateRevision
	base := f.template("base")
	base.Spec.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{}
	if err := f.api.Update(f.Context(), base); err != nil {
		f.Fatal(err)
	}
	f.refer("base")
	if now := f.set().Status.UpdateRevision; now == revision || f.wantPooled(1)[0].Labels[v1alpha1.LabelTemplateHash] != now {
		f.Errorf("revision %s after %s", now, revision)
	}
}
